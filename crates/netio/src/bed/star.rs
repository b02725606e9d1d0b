//! The test bed of many clients. Each is in a separate namespace behind a separate link, and all reach one far end.

use std::net::{IpAddr, Ipv4Addr};

use rtnetlink::packet_route::route::RouteScope;
use rtnetlink::{Handle, RouteMessageBuilder};

use super::address::{CLIENT_PORT, SERVER, SERVER_PORT, WAN};
use super::node::{prepare_host, switch_offloads};
use super::wiring::{Wire, add, index_of, silence, up, wait_running};
use super::{BedConfig, BedError};
use crate::netlink::{self, NetlinkError, RequestContext as _};
use crate::netns::{NetNs, NetNsError};

/// Clients around one far end, with IPv4 only. The kernel removes the bed when this value and all processes in it are
/// gone.
///
/// Client N, from 1, has the address 10.78.0.0 + N. Its link is between the emulator's interfaces `clientN` and
/// `serverN`. The latter is connected to `wanN` in the far end's namespace. The far end has one address, that of
/// [`SERVER`], and a route to each client.
#[derive(Debug)]
pub struct Star {
    clients: Vec<NetNs>,
    emulator: NetNs,
    server: NetNs,
}

impl Star {
    /// Largest number of clients.
    pub const MOST_CLIENTS: u16 = 1000;

    /// Builds a bed of this many clients with interfaces according to `config`, whose number of segments is ignored.
    /// From the return on packets pass, and the first one is not delayed.
    ///
    /// # Errors
    /// Those of [`super::Bed::build`], and a number of clients out of range.
    pub fn build(config: &BedConfig, clients: u16) -> Result<Self, BedError> {
        config.check_mtu()?;
        if !(1..=Self::MOST_CLIENTS).contains(&clients) {
            return Err(BedError::Clients(clients));
        }
        let namespaces = (0..clients).map(|_| NetNs::create());
        let star = Self {
            clients: namespaces.collect::<Result<_, NetNsError>>()?,
            emulator: NetNs::create()?,
            server: NetNs::create()?,
        };
        star.emulator.run(silence)??;
        star.wire(config.mtu)?;
        let numbers = || (1..).zip(&star.clients);
        for (number, client) in numbers() {
            client.run(|| -> Result<(), BedError> {
                silence()?;
                prepare_host(config)?;
                switch_offloads(config, WAN)
            })??;
            netlink::call(client, |handle| connect_client(handle, number))?;
        }
        star.server.run(|| -> Result<(), BedError> {
            silence()?;
            prepare_host(config)?;
            (1..=clients).try_for_each(|number| switch_offloads(config, &behind(number)))
        })??;
        netlink::call(&star.server, |handle| connect_server(handle, clients))?;
        star.wait()?;
        Ok(star)
    }

    /// Returns the namespaces of the clients in order. The interface of each is [`WAN`].
    pub fn clients(&self) -> &[NetNs] {
        &self.clients
    }

    /// Returns the namespace of the emulator.
    pub fn emulator(&self) -> &NetNs {
        &self.emulator
    }

    /// Returns the namespace of the far end. Its IPv4 address is that of [`SERVER`].
    pub fn server(&self) -> &NetNs {
        &self.server
    }

    /// Returns the emulator's interfaces: for each client, first the one towards the client and then the one towards
    /// the far end.
    pub fn ports(&self) -> Vec<String> {
        let numbers = (1..).zip(&self.clients);
        numbers.flat_map(|(number, _)| ports(number)).collect()
    }

    /// Connects the emulator to the clients and to the far end, and sets its interfaces up.
    fn wire(&self, mtu: u32) -> Result<(), NetlinkError> {
        let wires = (1..).zip(&self.clients).flat_map(|(number, client)| {
            let [to_client, to_server] = ports(number);
            let of_client = Wire {
                port: to_client,
                name: WAN.to_owned(),
                namespace: client,
                mac: mac(number),
            };
            let of_server = Wire {
                port: to_server,
                name: behind(number),
                namespace: &self.server,
                mac: SERVER.mac,
            };
            [of_client, of_server]
        });
        netlink::call(&self.emulator, async |handle| {
            for wire in wires {
                add(&handle, &wire, mtu).await?;
            }
            Ok(())
        })
    }

    /// Waits until the kernel sends through every interface.
    fn wait(&self) -> Result<(), BedError> {
        let wait = |names: &[String]| {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            wait_running(&names)
        };
        self.emulator.run(|| wait(&self.ports()))??;
        let numbers = (1..).zip(&self.clients);
        let names: Vec<String> = numbers.map(|(number, _)| behind(number)).collect();
        self.server.run(|| wait(&names))??;
        for client in &self.clients {
            client.run(|| wait_running(&[WAN]))??;
        }
        Ok(())
    }
}

/// Returns the emulator's two interfaces for a client.
fn ports(number: u16) -> [String; 2] {
    [CLIENT_PORT, SERVER_PORT].map(|port| format!("{port}{number}"))
}

/// Returns the far end's interface behind the link of a client.
fn behind(number: u16) -> String {
    format!("{WAN}{number}")
}

/// Returns the address of client `number`.
fn address(number: u16) -> Ipv4Addr {
    const NETWORK: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 0);
    Ipv4Addr::from_bits(NETWORK.to_bits() + u32::from(number))
}

/// Returns the locally administered hardware address of client `number`.
fn mac(number: u16) -> [u8; 6] {
    let [a, b, c, d] = address(number).octets();
    [0x02, 0, a, b, c, d]
}

async fn connect_client(handle: Handle, number: u16) -> Result<(), NetlinkError> {
    up(&handle, WAN).await?;
    up(&handle, "lo").await?;
    let index = index_of(WAN)?;
    add_address(&handle, index, address(number)).await?;
    add_route(&handle, index, address(number), SERVER.v4, SERVER.mac).await
}

async fn connect_server(handle: Handle, clients: u16) -> Result<(), NetlinkError> {
    up(&handle, "lo").await?;
    add_address(&handle, index_of("lo")?, SERVER.v4).await?;
    for number in 1..=clients {
        let name = behind(number);
        up(&handle, &name).await?;
        let index = index_of(&name)?;
        add_route(&handle, index, SERVER.v4, address(number), mac(number)).await?;
    }
    Ok(())
}

async fn add_address(handle: &Handle, index: u32, own: Ipv4Addr) -> Result<(), NetlinkError> {
    let add = handle
        .address()
        .add(index, IpAddr::V4(own), 32)
        .execute()
        .await;
    add.context(|| format!("give the test bed the address {own}"))
}

/// Adds a route from `own` to `other` through an interface, with `mac` as its permanent neighbour entry.
async fn add_route(
    handle: &Handle,
    index: u32,
    own: Ipv4Addr,
    other: Ipv4Addr,
    mac: [u8; 6],
) -> Result<(), NetlinkError> {
    let route = RouteMessageBuilder::<Ipv4Addr>::new()
        .destination_prefix(other, 32)
        .output_interface(index)
        .scope(RouteScope::Link)
        .pref_source(own)
        .build();
    let add = handle.route().add(route).execute().await;
    add.context(|| format!("route {other} in the test bed"))?;
    let neighbours = handle.neighbours();
    let neighbour = neighbours.add(index, other.into()).link_layer_address(&mac);
    let add = neighbour.execute().await;
    add.context(|| format!("make {other} a permanent neighbour"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_client_has_a_different_address() {
        assert_eq!(address(1).to_string(), "10.78.0.1");
        assert_eq!(address(Star::MOST_CLIENTS).to_string(), "10.78.3.232");
        assert_eq!(mac(300), [2, 0, 10, 78, 1, 44]);
        assert_eq!(ports(1000), ["client1000", "server1000"]);
    }

    #[test]
    fn a_bed_with_no_client_or_too_many_is_refused() {
        for clients in [0, 1001] {
            let refused = Star::build(&BedConfig::default(), clients).unwrap_err();
            assert!(matches!(refused, BedError::Clients(_)), "{refused}");
        }
    }
}
