//! The stages that a link's conditions ask for, and the order in which each side's packets pass through them.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::config::{Conditions, HopConfig, LinkConfig, Toffee};
use crate::draw::Draws;
use crate::impair::delay::Delay;
use crate::impair::loss::Loss;
use crate::packet::Side;
use crate::queue::fluctuating::Fluctuating;
use crate::queue::server::Server;
use crate::queue::service::Service;
use crate::stage::{NamedStage, Stage};
use crate::units::Probability;

/// The stages of a link and the two paths over them.
#[derive(Debug)]
pub(crate) struct Topology {
    pub(crate) stages: Vec<NamedStage>,
    /// Indexes of stages, by [`Side::index`].
    pub(crate) paths: [Vec<usize>; 2],
    /// Whether a stage stands in both paths, so that the two directions' order matters.
    pub(crate) shared: bool,
}

impl Topology {
    /// What `config` asks for; conditions that do nothing get no stage.
    pub(crate) fn new(config: &LinkConfig) -> Self {
        let mut topology = Self {
            stages: Vec::new(),
            paths: [Vec::new(), Vec::new()],
            shared: false,
        };
        let mut down_by_hop = Vec::new();
        for hop in &config.hops {
            let server = topology.toffee_server(hop);
            let up = topology.direction(config, hop, "up", &hop.up, server);
            topology.paths[Side::A.index()].extend(up);
            down_by_hop.push(topology.direction(config, hop, "down", &hop.down, server));
        }
        topology.paths[Side::B.index()].extend(down_by_hop.into_iter().rev().flatten());
        topology.hold_before_servers();
        topology
    }

    /// The server that stands in both paths of `hop`, if any.
    fn toffee_server(&mut self, hop: &HopConfig) -> Option<usize> {
        let Toffee {
            delay,
            dynamic,
            queue,
            ..
        } = hop.toffee?;
        if delay.0 == 0 && dynamic.is_none() {
            return None;
        }
        self.shared = true;
        let server = Server::new(Service::Toffee(delay, dynamic), queue);
        Some(self.add(format!("{}.toffee", hop.name), Stage::Server(server)))
    }

    /// One direction of `hop`: what the directions share, rate, loss, delay.
    fn direction(
        &mut self,
        link: &LinkConfig,
        hop: &HopConfig,
        direction: &str,
        own: &Conditions,
        shared: Option<usize>,
    ) -> Vec<usize> {
        let name = |kind: &str| format!("{}.{direction}.{kind}", hop.name);
        let mut path = Vec::from_iter(shared);
        if let Some(toffee) = &hop.toffee {
            path.extend(self.loss(link, name("drop"), toffee.loss));
        }
        if let Some(rate) = &own.rate {
            let name = name("rate");
            let service = match rate.fluctuation {
                None => Service::Rate(rate.rate, rate.framing),
                Some(how) => {
                    let draws = Draws::new(link.seed, link.link, &name);
                    Service::Fluctuating(Fluctuating::new(rate.rate, how, draws), rate.framing)
                }
            };
            path.push(self.add(name, Stage::Server(Server::new(service, rate.queue))));
        }
        path.extend(self.loss(link, name("loss"), own.loss));
        if own.delay.0 != 0 || own.size_delay.is_some() {
            let delay = Delay::new(own.delay, own.size_delay);
            path.push(self.add(name("delay"), Stage::Delay(delay)));
        }
        path
    }

    fn loss(&mut self, link: &LinkConfig, name: String, loss: Probability) -> Option<usize> {
        (loss != Probability::ZERO).then(|| {
            let draws = Draws::new(link.seed, link.link, &name);
            self.add(name, Stage::Loss(Loss::new(loss, draws)))
        })
    }

    fn add(&mut self, name: String, stage: Stage) -> usize {
        self.stages.push(NamedStage::new(name, stage));
        self.stages.len() - 1
    }

    /// Makes every delay before a path's last server hold its packets: what a server decides depends
    /// on when they reach it. After the last server the due time is known at once.
    fn hold_before_servers(&mut self) {
        for path in &self.paths {
            let is_server = |&index: &usize| matches!(self.stages[index].stage, Stage::Server(_));
            let last = path.iter().rposition(is_server).unwrap_or(0);
            for &index in &path[..last] {
                self.stages[index].hold();
            }
        }
    }
}
