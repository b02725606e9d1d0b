//! The wires of a bed: veth pairs between nodes and emulators.

use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::Path;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rtnetlink::packet_route::link::{InfoData, InfoVeth};
use rtnetlink::{Handle, LinkUnspec, LinkVeth};

use super::BedError;
use super::address::Attachment;
use crate::iface::{Interface, LinkWatcher};
use crate::netlink::{self, NetlinkError, RequestContext as _};
use crate::netns::{NetNs, NetNsError, write_sysctl_here};

/// Keeps the stack of the emulator's namespace quiet on every interface yet to come.
pub(super) fn silence() -> Result<(), NetNsError> {
    if ipv6_exists() {
        write_sysctl_here("net/ipv6/conf/all/disable_ipv6", "1")?;
        write_sysctl_here("net/ipv6/conf/default/disable_ipv6", "1")?;
    }
    Ok(())
}

/// What a veth pair joins to an emulator.
pub(super) struct Wire<'a> {
    /// The emulator's end.
    pub(super) port: String,
    /// The other one, where it is, and its hardware address.
    pub(super) name: String,
    pub(super) namespace: &'a NetNs,
    pub(super) mac: [u8; 6],
}

/// Joins the emulator to a new interface of the node in `namespace`; both ends have the MTU, the emulator's is up.
pub(super) fn join(
    emulator: &NetNs,
    namespace: &NetNs,
    interface: Attachment,
    mtu: u32,
) -> Result<(), NetlinkError> {
    let wire = Wire {
        port: interface.port().to_owned(),
        name: interface.name.to_owned(),
        namespace,
        mac: interface.own().mac,
    };
    netlink::call(emulator, async |handle| {
        up(&handle, "lo").await?;
        add(&handle, &wire, mtu).await
    })
}

/// Makes the pair of a wire; both ends have the MTU, the emulator's is up and answers no ARP.
pub(super) async fn add(handle: &Handle, wire: &Wire<'_>, mtu: u32) -> Result<(), NetlinkError> {
    let Wire { port, name, .. } = wire;
    let peer = LinkUnspec::new_with_name(name)
        .mtu(mtu)
        .address(wire.mac.to_vec())
        .setns_by_fd(wire.namespace.as_fd().as_raw_fd())
        .build();
    let pair = LinkVeth::new(port, name)
        .mtu(mtu)
        .arp(false)
        .up()
        .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)))
        .build();
    let add = handle.link().add(pair).execute().await;
    add.asked(|| format!("join the test bed's interface {port} to its {name}"))
}

/// Sets an interface up.
pub(crate) async fn up(handle: &Handle, name: &str) -> Result<(), NetlinkError> {
    let up = LinkUnspec::new_with_name(name).up().build();
    let set = handle.link().set(up).execute().await;
    set.asked(|| format!("set the test bed's interface {name} up"))
}

pub(crate) fn index_of(name: &str) -> Result<u32, NetlinkError> {
    nix::net::if_::if_nametoindex(name)
        .map_err(std::io::Error::from)
        .asked(|| format!("find the test bed's interface {name}"))
}

/// Waits until the kernel sends through each of the interfaces `names` of the calling thread's namespace.
///
/// Carrier settles some milliseconds after the second end of a pair comes up; what is sent before is lost.
pub(crate) fn wait_running(names: &[&str]) -> Result<(), BedError> {
    let what = || "watch the test bed's interfaces".to_owned();
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut watcher = LinkWatcher::new().asked(what)?;
    for &name in names {
        while !Interface::find(name)?.running {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut fds = [PollFd::new(watcher.as_fd(), PollFlags::POLLIN)];
            if poll(&mut fds, timeout) == Ok(0) {
                return Err(BedError::Down(name.to_owned()));
            }
            watcher.changes().asked(what)?;
        }
    }
    Ok(())
}

/// Whether the kernel has IPv6 at all.
pub(super) fn ipv6_exists() -> bool {
    Path::new("/proc/sys/net/ipv6").exists()
}
