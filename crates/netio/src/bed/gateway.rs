//! Connects a bed to the host's network: the far end forwards between the link and a tap, whose other end belongs to a
//! user-mode network stack on the host.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, poll};
use rtnetlink::packet_route::route::{RouteFlags, RouteMessage};
use rtnetlink::{Handle, LinkUnspec, RouteMessageBuilder};

use super::address::{Endpoint, SERVER, WAN};
use super::node::quieten_ipv6;
use super::wiring::{index_of, wait_running};
use super::{Bed, BedConfig, BedError};
use crate::iface::{DefaultRoutes, Interface, InterfaceError, LinkWatcher};
use crate::netlink::{self, NetlinkError, RequestContext as _};
use crate::netns::write_sysctl_here;

/// Name of the tap in the far end's namespace.
pub const HOST_TAP: &str = "host";

/// The addresses at which the client reaches the host's loopback, and the hardware address of the tap's other end.
///
/// A name with both addresses yields the IPv4 address first, at which more services of a loopback listen. For that, the IPv6
/// address has another scope than that of the client (RFC 6724 section 3.1, and section 6 rule 2): it is a site-local one, a
/// kind that no network uses any more (RFC 3879).
pub const HOST: Endpoint = Endpoint {
    v4: Ipv4Addr::new(10, 77, 255, 1),
    v6: Ipv6Addr::new(0xfec0, 0, 0, 0x77, 0, 0, 0, 1),
    mac: [0x02, 0, 10, 77, 255, 1],
};

/// The longest time until the tap exists.
const TAP_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval at which the maker of the tap is checked, in milliseconds.
const LOOK_AGAIN: u16 = 20;

impl Bed {
    /// Waits until the tap [`HOST_TAP`] exists in the far end's namespace, and forwards between it and the link. From the
    /// return on the client has a default route for each of `families`, which lead through the link and the tap. The bed must
    /// have these families.
    ///
    /// `has_ended` is asked repeatedly whether the process that makes the tap has ended. The tap has no addresses; the
    /// neighbour at its other end is [`HOST`].
    ///
    /// # Errors
    /// [`BedError::NoTap`] if the process has ended or the tap does not appear within 10 s; a refusal of the kernel.
    pub fn open_to_host(
        &self,
        config: &BedConfig,
        families: DefaultRoutes,
        has_ended: impl Fn() -> bool + Send,
    ) -> Result<(), BedError> {
        self.server().run(|| -> Result<(), BedError> {
            await_tap(has_ended)?;
            write_sysctl_here("net/ipv4/ip_forward", "1")?;
            if config.has_ipv6() {
                write_sysctl_here("net/ipv6/conf/all/forwarding", "1")?;
                quieten_ipv6(HOST_TAP)?;
            }
            Ok(())
        })??;
        netlink::call(self.server(), |handle| {
            connect_tap(handle, config.mtu, families)
        })?;
        self.server().run(|| wait_running(&[HOST_TAP]))??;
        netlink::call(self.client(), async |handle| {
            for gateway in of_families(SERVER, families) {
                add_default(&handle, gateway, WAN).await?;
            }
            Ok(())
        })?;
        Ok(())
    }
}

/// Waits until the tap exists in the namespace of the calling thread.
fn await_tap(has_ended: impl Fn() -> bool) -> Result<(), BedError> {
    let what = || "watch the far end's interfaces".to_owned();
    let deadline = Instant::now() + TAP_TIMEOUT;
    let mut watcher = LinkWatcher::new().context(what)?;
    loop {
        match Interface::find(HOST_TAP) {
            Ok(_) => return Ok(()),
            Err(InterfaceError::Missing(_)) => {}
            Err(error) => return Err(error.into()),
        }
        if has_ended() || Instant::now() >= deadline {
            return Err(BedError::NoTap);
        }
        let mut fds = [PollFd::new(watcher.as_fd(), PollFlags::POLLIN)];
        let _ = poll(&mut fds, LOOK_AGAIN);
        watcher.changes().context(what)?;
    }
}

/// Sets the tap up, with default routes to its other end.
async fn connect_tap(
    handle: Handle,
    mtu: u32,
    families: DefaultRoutes,
) -> Result<(), NetlinkError> {
    let index = index_of(HOST_TAP)?;
    let up = LinkUnspec::new_with_index(index).mtu(mtu).up().build();
    let set = handle.link().set(up).execute().await;
    set.context(|| format!("set the far end's interface {HOST_TAP} up"))?;
    for gateway in of_families(HOST, families) {
        let neighbours = handle.neighbours();
        let add = neighbours.add(index, gateway).link_layer_address(&HOST.mac);
        let add = add.replace().execute().await;
        add.context(|| format!("make {gateway} a permanent neighbour"))?;
        add_default(&handle, gateway, HOST_TAP).await?;
    }
    Ok(())
}

/// Adds a default route through `gateway`, which the interface reaches directly.
async fn add_default(handle: &Handle, gateway: IpAddr, name: &str) -> Result<(), NetlinkError> {
    let index = index_of(name)?;
    let mut route = default_route(gateway, index);
    route.header.flags |= RouteFlags::Onlink;
    let add = handle.route().add(route).execute().await;
    add.context(|| format!("make {gateway} the gateway to the host's network"))
}

fn default_route(gateway: IpAddr, index: u32) -> RouteMessage {
    match gateway {
        IpAddr::V4(gateway) => RouteMessageBuilder::<Ipv4Addr>::new()
            .gateway(gateway)
            .output_interface(index)
            .build(),
        IpAddr::V6(gateway) => RouteMessageBuilder::<Ipv6Addr>::new()
            .gateway(gateway)
            .output_interface(index)
            .build(),
    }
}

/// Returns the addresses of `endpoint` that belong to `families`.
fn of_families(endpoint: Endpoint, families: DefaultRoutes) -> impl Iterator<Item = IpAddr> {
    let v4 = families.v4.then_some(IpAddr::from(endpoint.v4));
    let v6 = families.v6.then_some(IpAddr::from(endpoint.v6));
    [v4, v6].into_iter().flatten()
}
