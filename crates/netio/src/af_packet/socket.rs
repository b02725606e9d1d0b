//! The options of the packet socket.

use std::ffi::CString;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::OpenError;

const VERSION: libc::c_int = 1; // TPACKET_V2
const ETH_P_ALL: u16 = 0x0003;

pub(super) fn interface_index(name: &str) -> Result<libc::c_int, OpenError> {
    let missing = || OpenError::NoInterface(name.to_owned());
    let c_name = CString::new(name).map_err(|_| missing())?;
    // SAFETY: `c_name` is a terminated string that outlives the call.
    let index = unsafe { libc::if_nametoindex(c_name.as_ptr()) };
    match libc::c_int::try_from(index) {
        Ok(index) if index > 0 => Ok(index),
        _ => Err(missing()),
    }
}

/// A socket that receives nothing until it is bound.
pub(super) fn open() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: a plain socket call; the result is checked before it is owned.
    let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
    // SAFETY: `fd` was just opened and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub(super) fn configure(socket: &OwnedFd) -> io::Result<()> {
    set(socket, libc::PACKET_VERSION, &VERSION)?;
    set(socket, libc::PACKET_VNET_HDR, &1)?;
    set(socket, libc::PACKET_IGNORE_OUTGOING, &1)?;
    // Frames that wait for a real card's completion count against this; the forced form needs privilege.
    let bytes: libc::c_int = 8 << 20;
    let wanted = [libc::SO_SNDBUFFORCE, libc::SO_SNDBUF];
    let set = |option: &libc::c_int| set_at(socket, libc::SOL_SOCKET, *option, &bytes).is_ok();
    let _ = wanted.iter().any(set);
    Ok(())
}

/// The address of an interface, or with 0 of all of them.
pub(super) fn address(index: libc::c_int) -> libc::sockaddr_ll {
    libc::sockaddr_ll {
        sll_family: u16::try_from(libc::AF_PACKET).expect("AF_PACKET is 17"),
        sll_protocol: ETH_P_ALL.to_be(),
        sll_ifindex: index,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    }
}

pub(super) fn bind(socket: &OwnedFd, index: libc::c_int) -> io::Result<()> {
    let address = address(index);
    // SAFETY: the address is a complete sockaddr_ll of the size given.
    check(unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            socklen::<libc::sockaddr_ll>(),
        )
    })?;
    Ok(())
}

pub(super) fn promiscuous(socket: &OwnedFd, index: libc::c_int) -> io::Result<()> {
    let membership = libc::packet_mreq {
        mr_ifindex: index,
        mr_type: u16::try_from(libc::PACKET_MR_PROMISC).expect("a small constant"),
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(socket, libc::PACKET_ADD_MEMBERSHIP, &membership)
}

/// Frames dropped by the ring since the last call; reading resets the kernel's counter.
pub(super) fn take_drops(socket: &OwnedFd) -> u32 {
    let mut stats = libc::tpacket_stats {
        tp_packets: 0,
        tp_drops: 0,
    };
    let mut len = socklen::<libc::tpacket_stats>();
    // SAFETY: `stats` and `len` are valid for the call to fill; len is the size of stats.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut stats).cast(),
            &raw mut len,
        )
    };
    if result == 0 { stats.tp_drops } else { 0 }
}

/// Sets an option of the packet level.
pub(super) fn set<T>(socket: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    set_at(socket, libc::SOL_PACKET, option, value)
}

pub(super) fn set_at<T>(
    socket: &OwnedFd,
    level: libc::c_int,
    option: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: `value` is valid for reads of its size for the length of the call.
    check(unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(value).cast(),
            socklen::<T>(),
        )
    })?;
    Ok(())
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

pub(super) fn socklen<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).expect("a small struct")
}
