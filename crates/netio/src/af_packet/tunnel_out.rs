//! Sends whole trains of UDP tunnels (VXLAN, Geneve), whose headers a packet socket cannot describe.
//!
//! The header of a tap can (`TUN_F_UDP_TUNNEL_GSO`, since Linux 6.17; drivers/net/tun_vnet.h). Frames written to a tap
//! count as received by it, and are redirected to the interface of a port ([`Redirect`]).
//!
//! Order: the kernel passes a written frame to the interface before the write returns (`tun_rx_batched`,
//! drivers/net/tun.c), as a packet socket does. Later frames could overtake it in two cases, in which trains are not
//! sent this way: if received packets are steered to other processors (`rps_default_mask`), and if the interface has
//! several transmit queues, to which frames of a tap and of a socket are assigned by different rules.
//!
//! The redirection belongs to the tap, and the tap disappears with its descriptor, so nothing is left behind.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;

use rtnetlink::LinkUnspec;

use crate::netlink::{self, NetlinkError, RequestContext as _};
use crate::offloads::{OffloadError, Offloads};
use crate::redirect::Redirect;

use super::socket::check;
use super::vnet::TUNNEL_LEN;

/// Name of the tap; the kernel replaces `%d` by a number.
const NAME: &[u8] = b"farwire%d";

// include/uapi/linux/if_tun.h
const TUN_F_UDP_TUNNEL_GSO: libc::c_uint = 0x80;
const TUN_F_UDP_TUNNEL_GSO_CSUM: libc::c_uint = 0x100;
const OFFLOADS: libc::c_uint = libc::TUN_F_CSUM
    | libc::TUN_F_TSO4
    | libc::TUN_F_TSO6
    | libc::TUN_F_TSO_ECN
    | libc::TUN_F_USO4
    | libc::TUN_F_USO6
    | TUN_F_UDP_TUNNEL_GSO
    | TUN_F_UDP_TUNNEL_GSO_CSUM;

/// A tap whose frames leave by an interface.
#[derive(Debug)]
pub(crate) struct TunnelOut {
    tap: File,
    redirect: Redirect,
    /// The number of the interface.
    interface: u32,
    is_used: bool,
}

/// The reason why tunnels' trains cannot be sent whole.
#[derive(Debug, thiserror::Error)]
pub enum TunnelOutError {
    /// There is no tap, or none with support for tunnels, which requires Linux 6.17.
    #[error("{step}: {source}")]
    Tap {
        /// The operation.
        step: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// The tap could not be connected to the interface.
    #[error(transparent)]
    Redirect(#[from] NetlinkError),
    /// The number of the interface's queues is not known.
    #[error(transparent)]
    Queues(#[from] OffloadError),
    /// Frames could overtake each other.
    #[error("{0}: trains of packets would overtake single packets")]
    Order(&'static str),
}

impl TunnelOut {
    /// Opens a way out by `interface` in the namespace of the calling thread.
    ///
    /// # Errors
    /// See [`TunnelOutError`].
    pub(crate) fn open(interface: &str) -> Result<Self, TunnelOutError> {
        let offloads = Offloads::open(interface)?;
        if offloads.transmit_queues()? != 1 {
            return Err(TunnelOutError::Order(
                "the interface has several transmit queues",
            ));
        }
        if steers_packets() {
            return Err(TunnelOutError::Order(
                "net.core.rps_default_mask steers received packets",
            ));
        }
        let (tap, index) = open_tap()?;
        set_up(index)?;
        let redirect = Redirect::new(index, offloads.index())?;
        Ok(Self {
            tap,
            redirect,
            interface: offloads.index(),
            is_used: false,
        })
    }

    /// Returns whether frames leave by the interface with this number.
    pub(crate) fn leads_to(&self, interface: u32) -> bool {
        self.interface == interface
    }

    /// Sends a frame of two parts with its header. The kernel drops and counts frames that the interface refuses
    /// ([`TunnelOut::refused`]).
    pub(crate) fn send(
        &mut self,
        header: &[u8; TUNNEL_LEN],
        [head, body]: [&[u8]; 2],
    ) -> io::Result<()> {
        let parts = [header.as_slice(), head, body].map(IoSlice::new);
        self.is_used = true;
        self.tap.write_vectored(&parts).map(drop)
    }

    /// Returns the number of sent frames that the interface refused.
    pub(crate) fn refused(&self) -> u64 {
        // Most of these taps never carry a tunnel.
        if !self.is_used {
            return 0;
        }
        self.redirect.refused().unwrap_or(0)
    }
}

/// Returns whether the kernel would steer packets that new interfaces receive to other processors.
fn steers_packets() -> bool {
    let mask = fs::read_to_string("/proc/sys/net/core/rps_default_mask");
    mask.is_ok_and(|mask| mask.chars().any(|digit| !"0,\n".contains(digit)))
}

/// Opens a tap without carrier, which the network stack does not use, and returns it with its number.
fn open_tap() -> Result<(File, u32), TunnelOutError> {
    let failed = |step| move |source| TunnelOutError::Tap { step, source };
    if cfg!(target_endian = "big") {
        let source = io::ErrorKind::Unsupported.into();
        return Err(failed("a tap's tunnel header is in little-endian order")(
            source,
        ));
    }
    let tap = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")
        .map_err(failed("cannot open /dev/net/tun"))?;
    // SAFETY: an ifreq is a name and a union of plain data, for all of which zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(NAME) {
        // Characters of C are signed on x86, and unsigned on Arm.
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | libc::IFF_NO_CARRIER;
    request.ifr_ifru.ifru_flags = i16::try_from(flags).expect("flags of 16 bits");
    // SAFETY: TUNSETIFF reads and writes a whole ifreq, which `request` is.
    check(unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETIFF, &raw mut request) })
        .map_err(failed("making a tap"))?;
    let length = libc::c_int::try_from(TUNNEL_LEN).expect("24");
    // SAFETY: TUNSETVNETHDRSZ reads an int, which `length` is.
    check(unsafe { libc::ioctl(tap.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const length) })
        .map_err(failed("cannot set the length of a tap's header"))?;
    // SAFETY: TUNSETOFFLOAD takes its argument by value.
    check(unsafe {
        libc::ioctl(
            tap.as_raw_fd(),
            libc::TUNSETOFFLOAD,
            libc::c_ulong::from(OFFLOADS),
        )
    })
    .map_err(failed(
        "cannot let a tap accept tunnelled trains (Linux 6.17)",
    ))?;
    // SAFETY: TUNSETIFF wrote the name of the tap into the request, terminated by a zero byte.
    let index = unsafe { libc::if_nametoindex(request.ifr_name.as_ptr()) };
    Ok((tap, index))
}

fn set_up(index: u32) -> Result<(), NetlinkError> {
    netlink::call_here(async |handle| {
        let up = LinkUnspec::new_with_index(index).arp(false).up().build();
        let set = handle.link().set(up).execute().await;
        set.context(|| "set a tap up".to_owned())
    })
}
