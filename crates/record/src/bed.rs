//! The test bed of a case: where its client, its server and its emulated links are.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use ipnet::IpNet;
use model::{BitsPerSec, Nanos};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stats::layers::ETHERNET_HEADER;

use conditions::route::Route;
use conditions::{At, EmulatedLink, Error, Hop, LinkSpec, emulated_link, require, route, tagged};

/// IPv6 requires at least 1280 bytes (RFC 8200 §5); veth supports at most 65535.
const MTUS: RangeInclusive<u32> = 1280..=65_535;
/// Number of nodes of a chain. A chain needs two nodes to measure between, and no machine could keep up with more than
/// 16 segments.
const NODES: RangeInclusive<usize> = 2..=17;
const DEFAULT_MTU: u32 = 1500;
/// Number of clients that a bed on one machine supports.
const CLIENTS: RangeInclusive<u32> = 1..=1000;
const DEFAULT_HTTP_PORT: u16 = 8080;
/// Name of the link in a bed that has only one.
pub const THE_LINK: &str = "link";

tagged! {
    /// The test bed of a case.
    #[derive(Clone, Debug, PartialEq)]
    pub enum Bed, default Some("netns");

    /// Client, emulator and server are in namespaces of this machine.
    "netns" => Netns(Pair),
    /// The nodes of a chain are in namespaces of this machine, with routers between the ends and an emulator on every
    /// link.
    "chain" => Chain(Chain),
    /// The server is another host, on which `farwire serve` runs; farwire emulates nothing.
    "external" => External(External),
    /// Client and server are two network interfaces of this machine. Each is moved into a separate namespace while the
    /// experiment runs. farwire measures the network between them and emulates nothing.
    "nics" => Nics(Nics),
}

/// The bed of kind `netns`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Pair {
    /// MTU of every interface; 1500 when absent.
    pub mtu: u32,
    /// Whether the end hosts' segmentation and checksum offloads stay on; true when absent.
    pub offloads: bool,
    /// Rate of a kernel token bucket (tbf) at the client's egress, counting L2 bytes without FCS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tbf: Option<BitsPerSec>,
    /// The conditions of the bed's wire, which apply to every case in addition to the case's own.
    pub wire: LinkSpec,
    /// Number of clients, 1 to 1000; 1 when absent. Each client is behind a separate link with these conditions. All
    /// clients reach the same far end, and every instrument runs in all of them simultaneously.
    #[serde(skip_serializing_if = "is_one")]
    pub clients: u32,
}

/// Returns whether there is one client, which is the default and is therefore not written.
fn is_one(clients: &u32) -> bool {
    *clients == 1
}

impl Default for Pair {
    fn default() -> Self {
        Self {
            mtu: DEFAULT_MTU,
            offloads: true,
            tbf: None,
            wire: LinkSpec::default(),
            clients: 1,
        }
    }
}

/// The bed of kind `chain`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Chain {
    /// Names of the nodes in order from one end to the other; the nodes between the ends are routers.
    pub nodes: Vec<String>,
    /// Conditions of each link by the names of its two nodes, for example `PC1-router`; up is the direction from the
    /// first node to the last. A link without conditions may be left out.
    #[serde(default)]
    pub links: BTreeMap<String, LinkSpec>,
    /// MTU of every interface; 1500 when absent.
    #[serde(default = "default_mtu")]
    pub mtu: u32,
    /// Whether the nodes' segmentation and checksum offloads stay on; true when absent.
    #[serde(default = "default_true")]
    pub offloads: bool,
}

fn default_mtu() -> u32 {
    DEFAULT_MTU
}

fn default_true() -> bool {
    true
}

/// The bed of kind `external`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct External {
    /// Host name or address.
    pub host: String,
    /// Port of its web server; 8080 when absent.
    #[serde(default = "default_http_port")]
    pub http_port: u16,
}

fn default_http_port() -> u16 {
    DEFAULT_HTTP_PORT
}

/// The bed of kind `nics`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Nics {
    /// The interface on which the instruments run.
    pub client: Nic,
    /// The interface of the far end.
    pub server: Nic,
}

/// A network interface and the addresses that it gets in its namespace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Nic {
    /// Name of the interface; it must have no address, because farwire could not restore it.
    pub interface: String,
    /// Address with prefix length, for example `192.0.2.1/24`.
    #[schemars(with = "String")]
    pub address: IpNet,
    /// Gateway for all destinations outside the interface's own network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub gateway: Option<IpAddr>,
}

impl Default for Bed {
    fn default() -> Self {
        Self::Netns(Pair::default())
    }
}

/// The kernel's token bucket at a bed's client, with the parameters of tc-tbf(8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// Rate at which the bucket fills, in L2 bits/s without FCS.
    pub rate: BitsPerSec,
    /// Bytes that may leave back to back, faster than the rate.
    pub burst: u32,
    /// Bytes that may wait in the queue.
    pub limit: u32,
}

impl TokenBucket {
    /// Creates a bucket of this rate for frames of up to `frame` bytes. Its burst is 1 ms at this rate, the shortest
    /// with which the kernel's timers still keep the rate, but at least four frames; its queue holds 100 ms at this
    /// rate.
    fn new(rate: BitsPerSec, frame: u32) -> Self {
        const DEPTH: Nanos = Nanos::from_millis(1);
        const QUEUE: Nanos = Nanos::from_millis(100);
        const LEAST_FRAMES: u32 = 4;
        let within = |time: Nanos| {
            u32::try_from(rate.bytes_in(time).0)
                .unwrap_or(u32::MAX)
                .max(LEAST_FRAMES * frame)
        };
        Self {
            rate,
            burst: within(DEPTH),
            limit: within(QUEUE),
        }
    }
}

/// The nodes between which a case measures, as indexes into the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// Index of the client's node, from 0.
    pub client: usize,
    /// Index of the server's node, from 0.
    pub server: usize,
}

impl Ends {
    /// Returns the number of links between the two nodes.
    pub fn segments(self) -> usize {
        self.client.abs_diff(self.server)
    }

    /// Returns whether all links between `other` are between these nodes, too.
    pub fn covers(self, other: Self) -> bool {
        let range = |ends: Self| [ends.client.min(ends.server), ends.client.max(ends.server)];
        let ([first, last], [from, to]) = (range(self), range(other));
        first <= from && to <= last
    }

    /// The ends of a bed without routers.
    pub const OF_PAIR: Self = Self {
        client: 0,
        server: 1,
    };
}

impl Bed {
    /// Returns the MTU of the bed's interfaces, or `None` if farwire does not create them.
    pub fn mtu(&self) -> Option<u32> {
        match self {
            Self::Netns(pair) => Some(pair.mtu),
            Self::Chain(chain) => Some(chain.mtu),
            Self::External(_) | Self::Nics(_) => None,
        }
    }

    /// Returns whether segmentation and checksum offloads are on, or `None` if farwire does not create the interfaces.
    pub fn offloads(&self) -> Option<bool> {
        match self {
            Self::Netns(pair) => Some(pair.offloads),
            Self::Chain(chain) => Some(chain.offloads),
            Self::External(_) | Self::Nics(_) => None,
        }
    }

    /// Returns the rate of the kernel's token bucket at the client, in L2 bits/s without FCS, or `None` if there is
    /// none.
    pub fn tbf(&self) -> Option<BitsPerSec> {
        match self {
            Self::Netns(pair) => pair.tbf,
            _ => None,
        }
    }

    /// Returns the kernel's token bucket at the client, if there is one.
    pub fn token_bucket(&self) -> Option<TokenBucket> {
        let frame = self.mtu()? + ETHERNET_HEADER;
        self.tbf().map(|rate| TokenBucket::new(rate, frame))
    }

    /// Returns the number of clients that measure simultaneously.
    pub fn clients(&self) -> u32 {
        match self {
            Self::Netns(pair) => pair.clients,
            _ => 1,
        }
    }

    /// Returns the same bed with one client and without conditions, or `None` if farwire does not emulate this bed's
    /// conditions.
    pub fn bare(&self) -> Option<Self> {
        match self {
            Self::Netns(pair) => Some(Self::Netns(Pair {
                tbf: None,
                wire: LinkSpec::default(),
                clients: 1,
                ..pair.clone()
            })),
            Self::Chain(chain) => Some(Self::Chain(Chain {
                links: BTreeMap::new(),
                ..chain.clone()
            })),
            Self::External(_) | Self::Nics(_) => None,
        }
    }

    /// Returns whether farwire creates the whole bed in namespaces.
    pub fn is_own(&self) -> bool {
        matches!(self, Self::Netns(_) | Self::Chain(_))
    }

    /// Checks the bed, the conditions `link` of a case, which only the bed `netns` has, and the nodes `between` which the
    /// case measures, which only the bed `chain` has.
    ///
    /// # Errors
    /// An invalid value, with the name of its key, or a link or a pair of nodes that this bed does not have.
    pub fn check(&self, link: &LinkSpec, between: Option<&[String; 2]>) -> Result<(), Error> {
        let plain = *link == LinkSpec::default();
        match self {
            Self::Netns(pair) => {
                pair.check().at("bed")?;
                link.check()
                    .and_then(|()| link.require_addresses())
                    .at("link")?;
            }
            Self::Chain(chain) => {
                require!(plain, "link": "the conditions of a chain belong in bed.links");
                chain.check().at("bed")?;
            }
            Self::External(_) | Self::Nics(_) => require!(
                plain,
                "link": "this bed emulates no link: use `netns` or `chain` for conditions"
            ),
        }
        match (self, between) {
            (Self::Chain(chain), between) => chain.ends(between).map(drop),
            (_, None) => Ok(()),
            (_, Some(_)) => {
                let error = Error::other("only the bed `chain` has nodes to choose");
                Err(error.at("between"))
            }
        }
    }

    /// Checks the number of clients or nodes.
    ///
    /// # Errors
    /// A number out of range, with the name of its key.
    pub(crate) fn check_size(&self) -> Result<(), Error> {
        match self {
            Self::Netns(pair) => pair.check_size().at("bed"),
            Self::Chain(chain) => chain.check_size().at("bed"),
            Self::External(_) | Self::Nics(_) => Ok(()),
        }
    }

    /// Returns the emulated links with their names: those of a chain in order, or those of all clients. Each link draws
    /// its random numbers independently of the others. `link` has the conditions of the case.
    ///
    /// # Errors
    /// Conditions that contradict each other.
    pub fn links(&self, link: &LinkSpec, seed: u64) -> Result<Vec<(String, EmulatedLink)>, Error> {
        let hops = match self {
            Self::Netns(pair) => {
                link.require_addresses()?;
                pair.links(wire_and_box(&pair.wire, link)?)
            }
            Self::Chain(chain) => {
                let each = chain.segments().map(|name| {
                    let spec = chain.link(&name);
                    spec.require_addresses()?;
                    let hops = spec.all_hops("link")?;
                    Ok((name, hops))
                });
                each.collect::<Result<_, Error>>()?
            }
            Self::External(_) | Self::Nics(_) => Vec::new(),
        };
        let link = |(number, (name, hops)): (u64, (String, Vec<Hop>))| {
            let waits = match self {
                Self::Chain(chain) => chain.link(&name).waits(),
                Self::Netns(_) | Self::External(_) | Self::Nics(_) => link.waits(),
            };
            let mut emulated = emulated_link(&hops, seed, number);
            emulated.config.waits = waits;
            (name, emulated)
        };
        Ok((0..).zip(hops).map(link).collect())
    }

    /// Returns the emulated stages between the client and the server; the route is empty if nothing is emulated.
    ///
    /// # Errors
    /// The same as for [`Bed::links`].
    pub fn path(&self, link: &LinkSpec, between: Option<&[String; 2]>) -> Result<Route, Error> {
        let hops = match self {
            Self::Netns(pair) => wire_and_box(&pair.wire, link)?,
            Self::Chain(chain) => chain.path(chain.ends(between)?)?,
            Self::External(_) | Self::Nics(_) => Vec::new(),
        };
        Ok(route(&hops))
    }
}

fn wire_and_box(wire: &LinkSpec, link: &LinkSpec) -> Result<Vec<Hop>, Error> {
    let mut hops = wire.all_hops("wire")?;
    hops.extend(link.all_hops("box")?);
    Ok(hops)
}

impl Pair {
    fn check(&self) -> Result<(), Error> {
        check_mtu(self.mtu)?;
        self.check_size()?;
        require!(
            self.clients == 1 || self.tbf.is_none(),
            "tbf": "a bed of several clients has no tbf: set the rate in `wire` or in the `link` of a case"
        );
        let check = || {
            require!(
                self.wire.rules.is_empty(),
                "rules": "the wire treats all packets alike: write rules in `link`"
            );
            self.wire.check()
        };
        check().at("wire")
    }

    fn check_size(&self) -> Result<(), Error> {
        let clients = self.clients;
        require!(
            CLIENTS.contains(&clients),
            "clients": "{clients} is out of range: 1 to 1000"
        );
        Ok(())
    }

    /// Returns the links of all clients with their names; every link has the same hops.
    fn links(&self, hops: Vec<Hop>) -> Vec<(String, Vec<Hop>)> {
        match self.clients {
            1 => vec![(THE_LINK.to_owned(), hops)],
            clients => (1..=clients)
                .map(|number| (format!("client {number}"), hops.clone()))
                .collect(),
        }
    }
}

fn check_mtu(mtu: u32) -> Result<(), Error> {
    require!(MTUS.contains(&mtu), "mtu": "{mtu} is out of range: 1280 to 65535");
    Ok(())
}

impl Chain {
    /// Returns the names of the links in the order of the nodes.
    pub fn segments(&self) -> impl Iterator<Item = String> {
        self.nodes.windows(2).map(|pair| pair.join("-"))
    }

    /// Returns the nodes between which a case measures: those named by `between`, or else the first and the last node.
    ///
    /// # Errors
    /// A name that no node has, or the same node twice.
    pub fn ends(&self, between: Option<&[String; 2]>) -> Result<Ends, Error> {
        let Some([client, server]) = between else {
            return Ok(Ends {
                client: 0,
                server: self.nodes.len() - 1,
            });
        };
        let number = |name: &String| {
            let found = self.nodes.iter().position(|node| node == name);
            found.ok_or_else(|| {
                let known = self.nodes.join(", ");
                let error = Error::other(format_args!(
                    "there is no node `{name}`; use one of: {known}"
                ));
                error.at("between")
            })
        };
        let ends = Ends {
            client: number(client)?,
            server: number(server)?,
        };
        require!(
            ends.client != ends.server,
            "between": "`{client}` is named twice: a node has no link to itself"
        );
        Ok(ends)
    }

    fn check(&self) -> Result<(), Error> {
        check_mtu(self.mtu)?;
        self.check_size()?;
        let nodes = &self.nodes;
        for (number, node) in nodes.iter().enumerate() {
            require!(!node.is_empty(), "nodes": "a node has no name");
            require!(
                !nodes[..number].contains(node),
                "nodes": "`{node}` is listed twice"
            );
        }
        for (name, link) in &self.links {
            let known: Vec<String> = self.segments().collect();
            require!(
                known.contains(name),
                "links": "there is no `{name}`; use one of: {}", known.join(", ")
            );
            let checked = link.check().and_then(|()| link.require_addresses());
            checked.at(name.as_str()).at("links")?;
        }
        Ok(())
    }

    fn check_size(&self) -> Result<(), Error> {
        let nodes = self.nodes.len();
        require!(NODES.contains(&nodes), "nodes": "{nodes} are out of range: 2 to 17");
        Ok(())
    }

    fn link(&self, name: &str) -> LinkSpec {
        self.links.get(name).cloned().unwrap_or_default()
    }

    fn path(&self, ends: Ends) -> Result<Vec<Hop>, Error> {
        let first = ends.client.min(ends.server);
        let last = ends.client.max(ends.server);
        let segments = self.segments().skip(first).take(last - first);
        let mut hops: Vec<Hop> = Vec::new();
        for name in segments {
            hops.extend(self.link(&name).all_hops("link")?);
        }
        if ends.server < ends.client {
            hops = hops.into_iter().rev().map(Hop::reversed).collect();
        }
        Ok(hops)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use conditions::route::PathStages;

    fn bed(text: &str) -> Bed {
        toml::from_str(text).unwrap()
    }

    fn chain() -> Bed {
        bed("kind = 'chain'\nnodes = ['a', 'b', 'c']\n\
             links = { a-b = { rate = '1mbit' }, b-c = { up = { delay = '3ms' } } }")
    }

    fn delays(stages: &PathStages) -> Vec<u64> {
        let delays = stages.behaviours().filter_map(|stage| stage.delay);
        delays.map(|delay| delay.time.0).collect()
    }

    fn ends(client: &str, server: &str) -> [String; 2] {
        [client, server].map(str::to_owned)
    }

    fn refusal(bed: &Bed, between: Option<&[String; 2]>) -> String {
        let error = bed.check(&LinkSpec::default(), between).unwrap_err();
        error.to_string()
    }

    #[test]
    fn a_chain_has_a_link_between_neighbours_with_independent_draws() {
        let links = chain().links(&LinkSpec::default(), 7).unwrap();
        let names: Vec<&str> = links.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a-b", "b-c"]);
        assert_eq!((links[0].1.config.link, links[1].1.config.link), (0, 1));
        let [up, down] = &links[1].1.config.paths[..] else {
            panic!("{links:?}");
        };
        assert_eq!(delays(&PathStages(up.stages.clone())), [3_000_000]);
        assert!(down.stages.is_empty());
    }

    #[test]
    fn the_path_back_has_the_hops_reversed() {
        let there = chain().path(&LinkSpec::default(), None).unwrap();
        assert_eq!((there.up.0.len(), there.down.0.len()), (2, 1));
        assert_eq!(delays(&there.up), [3_000_000]);
        let back = chain()
            .path(&LinkSpec::default(), Some(&ends("c", "b")))
            .unwrap();
        assert!(back.up.0.is_empty());
        assert_eq!(delays(&back.down), [3_000_000]);
    }

    #[test]
    fn an_invalid_chain_is_refused_with_its_key() {
        let text = "kind = 'chain'\nnodes = ['a', 'b']\nlinks = { a-c = {} }";
        let refused = refusal(&bed(text), None);
        assert_eq!(refused, "bed: links: there is no `a-c`; use one of: a-b");
        let refused = refusal(&bed("kind = 'chain'\nnodes = ['a', 'a']"), None);
        assert_eq!(refused, "bed: nodes: `a` is listed twice");
        let refused = refusal(&bed("kind = 'chain'\nnodes = ['a']"), None);
        assert_eq!(refused, "bed: nodes: 1 are out of range: 2 to 17");
        let refused = refusal(&chain(), Some(&ends("a", "d")));
        assert_eq!(
            refused,
            "between: there is no node `d`; use one of: a, b, c"
        );
        assert!(refusal(&chain(), Some(&ends("a", "a"))).contains("`a` is named twice"));
    }

    #[test]
    fn a_bed_without_an_emulator_has_no_conditions() {
        let external = bed("kind = 'external'\nhost = '192.0.2.1'");
        let link = toml::from_str("delay = '1ms'").unwrap();
        assert!(external.check(&LinkSpec::default(), None).is_ok());
        assert!(external.check(&link, None).is_err());
        assert!(refusal(&external, Some(&ends("a", "b"))).starts_with("between: only"));
        assert!(external.path(&link, None).unwrap().up.0.is_empty());
    }

    #[test]
    fn a_key_of_another_bed_is_refused() {
        let error = toml::from_str::<Bed>("kind = 'external'\nhost = 'x'\nmtu = 9000");
        assert!(error.unwrap_err().to_string().contains("mtu"));
    }

    #[test]
    fn every_client_has_a_separate_link_with_independent_draws() {
        let three = bed("kind = 'netns'\nclients = 3\nwire = { rate = '1mbit' }");
        let links = three.links(&LinkSpec::default(), 7).unwrap();
        let names: Vec<&str> = links.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["client 1", "client 2", "client 3"]);
        let numbers: Vec<u64> = links.iter().map(|(_, link)| link.config.link).collect();
        assert_eq!(numbers, [0, 1, 2]);
        assert_eq!(three.bare().unwrap().clients(), 1);
        let text = toml::to_string(&three).unwrap();
        assert_eq!(bed(&text), three);
    }

    #[test]
    fn a_bed_of_one_client_is_written_without_the_number_of_clients() {
        let one = bed("kind = 'netns'\nclients = 1");
        assert_eq!(one, Bed::default());
        assert!(!toml::to_string(&one).unwrap().contains("clients"));
    }

    #[test]
    fn an_invalid_number_of_clients_is_refused_with_its_key() {
        for clients in [0, 1001] {
            let refused = refusal(&bed(&format!("clients = {clients}")), None);
            assert_eq!(
                refused,
                format!("bed: clients: {clients} is out of range: 1 to 1000")
            );
        }
        let refused = refusal(&bed("clients = 2\ntbf = '1mbit'"), None);
        assert!(refused.starts_with("bed: tbf: a bed of several clients has no tbf"));
        let chain = "kind = 'chain'\nnodes = ['a', 'b']\nclients = 2";
        let refused = toml::from_str::<Bed>(chain).unwrap_err().to_string();
        assert!(
            refused.contains("unknown key `clients`; use one of: nodes, links, mtu, offloads"),
            "{refused}"
        );
    }

    #[test]
    fn a_token_bucket_holds_a_millisecond_but_at_least_four_frames() {
        let of = |rate: &str| TokenBucket::new(rate.parse().unwrap(), 1514);
        assert_eq!(of("1gbit").burst, 125_000);
        assert_eq!(of("1gbit").limit, 12_500_000);
        assert_eq!(of("1mbit").burst, 4 * 1514);
    }
}
