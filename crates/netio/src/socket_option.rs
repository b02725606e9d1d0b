//! Socket options that have no type in nix.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

use nix::errno::Errno;

/// Returns the first `N` bytes of an option's value. Bytes that the kernel does not write are 0.
pub(crate) fn get<const N: usize>(
    socket: impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
) -> io::Result<[u8; N]> {
    let mut value = [0; N];
    let mut length = length_of::<[u8; N]>();
    // SAFETY: `value` has room for `length` bytes, and both are valid for the call to write.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            value.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    Errno::result(result)?;
    Ok(value)
}

/// Sets an option to `value`, which the kernel copies.
pub(crate) fn set<T>(
    socket: impl AsFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: `value` is valid for reads of its size for the duration of the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            length_of::<T>(),
        )
    };
    Errno::result(result)?;
    Ok(())
}

/// Returns the size of a type as a `socklen_t`.
pub(crate) fn length_of<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).expect("a small type")
}
