//! Options of packet sockets.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use nix::sys::socket::{AddressFamily, SockFlag, SockType};

use super::OpenError;
use crate::socket_option;

const VERSION: libc::c_int = 1; // TPACKET_V2
const ETH_P_ALL: u16 = 0x0003;

pub(super) fn interface_index(name: &str) -> Result<libc::c_int, OpenError> {
    let index = if_nametoindex(name).map(libc::c_uint::cast_signed);
    index.map_err(|_| OpenError::NoInterface(name.to_owned()))
}

/// Opens a socket that receives nothing until it is bound.
pub(super) fn open() -> io::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let family = AddressFamily::Packet;
    Ok(nix::sys::socket::socket(
        family,
        SockType::Raw,
        flags,
        None,
    )?)
}

pub(super) fn configure(socket: &OwnedFd) -> io::Result<()> {
    set(socket, libc::PACKET_VERSION, &VERSION)?;
    set(socket, libc::PACKET_VNET_HDR, &1)?;
    set(socket, libc::PACKET_IGNORE_OUTGOING, &1)?;
    // Frames that a network card has not finished sending count against this buffer. SO_SNDBUFFORCE requires a
    // privilege.
    let bytes: libc::c_int = 8 << 20;
    let wanted = [libc::SO_SNDBUFFORCE, libc::SO_SNDBUF];
    let set = |option| socket_option::set(socket, libc::SOL_SOCKET, option, &bytes).is_ok();
    let _ = wanted.into_iter().any(set);
    Ok(())
}

/// Returns the address of an interface, or of all interfaces for index 0.
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
    // SAFETY: the address is a complete sockaddr_ll of the given size.
    check(unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            socket_option::length_of::<libc::sockaddr_ll>(),
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

/// Returns the number of frames that the ring has dropped since the last call; reading it resets the kernel's counter.
pub(super) fn take_drops(socket: &OwnedFd) -> u32 {
    // `struct tpacket_stats` has two counts: frames, and dropped frames.
    let stats = socket_option::get::<8>(socket, libc::SOL_PACKET, libc::PACKET_STATISTICS);
    stats.map_or(0, |[.., a, b, c, d]| u32::from_ne_bytes([a, b, c, d]))
}

/// Sets an option at the packet level.
pub(super) fn set<T>(socket: &OwnedFd, option: libc::c_int, value: &T) -> io::Result<()> {
    socket_option::set(socket, libc::SOL_PACKET, option, value)
}

/// Returns the result of a system call, or its error.
pub(super) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    Ok(Errno::result(result)?)
}
