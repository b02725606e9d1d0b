//! The wires of a bed, which are veth pairs between nodes and emulators.

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

/// Disables IPv6 on every future interface in the emulator's namespace.
pub(super) fn silence() -> Result<(), NetNsError> {
    if ipv6_exists() {
        write_sysctl_here("net/ipv6/conf/all/disable_ipv6", "1")?;
        write_sysctl_here("net/ipv6/conf/default/disable_ipv6", "1")?;
    }
    Ok(())
}

/// A veth pair between an emulator and a node.
pub(super) struct Wire<'a> {
    /// Name of the emulator's end.
    pub(super) port: String,
    /// The other end: its name, its namespace and its hardware address.
    pub(super) name: String,
    pub(super) namespace: &'a NetNs,
    pub(super) mac: [u8; 6],
}

/// Connects the emulator to a new interface of the node in `namespace`. Both ends have the MTU, and the emulator's end
/// is up.
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

/// Creates the veth pair of a wire. Both ends have the MTU; the emulator's end is up and answers no ARP.
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
    add.context(|| format!("join the test bed's interface {port} to its {name}"))
}

/// Sets an interface up.
pub(crate) async fn up(handle: &Handle, name: &str) -> Result<(), NetlinkError> {
    let up = LinkUnspec::new_with_name(name).up().build();
    let set = handle.link().set(up).execute().await;
    set.context(|| format!("set the test bed's interface {name} up"))
}

pub(crate) fn index_of(name: &str) -> Result<u32, NetlinkError> {
    nix::net::if_::if_nametoindex(name)
        .map_err(std::io::Error::from)
        .context(|| format!("find the test bed's interface {name}"))
}

/// Waits until the kernel sends through each of the interfaces `names` in the namespace of the calling thread.
///
/// The carrier settles some milliseconds after the second end of a pair is set up. Packets that are sent before are
/// lost.
pub(crate) fn wait_running(names: &[&str]) -> Result<(), BedError> {
    wait_running_within(Duration::from_secs(10), names)
}

/// Waits in the same way, but not longer than `timeout` for all of them.
pub(crate) fn wait_running_within(timeout: Duration, names: &[&str]) -> Result<(), BedError> {
    let what = || "watch the test bed's interfaces".to_owned();
    let deadline = Instant::now() + timeout;
    let mut watcher = LinkWatcher::new().context(what)?;
    for &name in names {
        while !Interface::find(name)?.running {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
            let mut fds = [PollFd::new(watcher.as_fd(), PollFlags::POLLIN)];
            if poll(&mut fds, timeout) == Ok(0) {
                return Err(BedError::Down(name.to_owned()));
            }
            watcher.changes().context(what)?;
        }
    }
    Ok(())
}

/// Returns whether the kernel supports IPv6.
pub(super) fn ipv6_exists() -> bool {
    Path::new("/proc/sys/net/ipv6").exists()
}
