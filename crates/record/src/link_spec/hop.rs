//! The stages that conditions ask for, in the order in which packets meet them.

use anyhow::{Context, Result};
use model::{
    ConfigError, Delay, Effect, Framing, LinkConfig, PathSpec, Probability, QueueLimit, Rate, Side,
    StageSpec, Toffee,
};

use super::rules::{EmulatedLink, Rules};
use super::{DEFAULT_QUEUE, DEFAULT_TOFFEE_QUEUE, DirectionSpec, LinkSpec, ToffeeSpec, loss_of};
use crate::way::{Route, Way};

/// One hop's stages in either direction. A hop is what its name stands for in those of its stages: "wire", "box".
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Hop {
    /// From client to server.
    pub up: Vec<StageSpec>,
    /// From server to client.
    pub down: Vec<StageSpec>,
}

impl Hop {
    /// Its two directions the other way round.
    pub(crate) fn reversed(self) -> Self {
        Self {
            up: self.down,
            down: self.up,
        }
    }
}

/// The model's link number `link` of hops in the order in which a packet going up meets them; one going down meets them
/// in reverse.
pub(crate) fn emulated_link(hops: Vec<Hop>, seed: u64, link: u64) -> EmulatedLink {
    let Route { up, down, .. } = route(hops);
    let path = |side, way: Way| PathSpec {
        side,
        class: 0,
        stages: way.0,
    };
    let config = LinkConfig {
        seed,
        link,
        paths: vec![path(Side::A, up), path(Side::B, down)],
        ..LinkConfig::default()
    };
    EmulatedLink {
        config,
        rules: Rules::default(),
    }
}

/// What packets meet on such hops.
pub(crate) fn route(hops: Vec<Hop>) -> Route {
    let mut route = Route {
        is_steady: true,
        ..Route::default()
    };
    let mut down = Vec::new();
    for hop in hops {
        route.up.0.extend(hop.up);
        down.push(hop.down);
    }
    route.down.0.extend(down.into_iter().rev().flatten());
    route
}

impl LinkSpec {
    /// The stages that these conditions ask for in a hop of this name.
    ///
    /// # Errors
    /// A queue where there is no rate; a drop factor below 1.
    pub fn hop(&self, name: &str) -> Result<Hop> {
        let up = self.up.or(self.both);
        let down = self.down.or(self.both);
        if up.rate.is_none() {
            self.up.refuse_rateless().context("up")?;
        }
        if down.rate.is_none() {
            self.down.refuse_rateless().context("down")?;
        }
        if up.rate.is_none() && down.rate.is_none() {
            self.both.refuse_rateless()?;
        }
        let toffee = self.toffee.clone().unwrap_or_default();
        let (server, drop) = (toffee.server(), toffee.loss(name)?);
        let direction = |way: &str, all: DirectionSpec| {
            let shared = StageSpec::new(format!("{name}.toffee"), server.clone());
            let drop = ("drop", or_nothing(drop, Probability::ZERO, Effect::Loss));
            let own = [drop].into_iter().chain(all.effects());
            let own =
                own.map(|(kind, effect)| StageSpec::new(format!("{name}.{way}.{kind}"), effect));
            let all = [shared].into_iter().chain(own);
            all.filter(|stage| stage.effect != Effect::Nothing)
                .collect()
        };
        Ok(Hop {
            up: direction("up", up),
            down: direction("down", down),
        })
    }
}

impl DirectionSpec {
    /// What every stage of a direction does under these conditions, and what its name ends in, in order.
    fn effects(self) -> [(&'static str, Effect); 3] {
        let rate = self.rate.map(|rate| Rate {
            rate: Some(rate),
            fluctuation: self.fluctuation.map(super::FluctuationSpec::to_model),
            framing: Framing::L2,
            queue: self.queue.unwrap_or(DEFAULT_QUEUE).into(),
        });
        let loss = self.loss.unwrap_or_default();
        let delay = Delay {
            time: self.delay.unwrap_or_default(),
            by_size: self.size_delay,
            ..Delay::default()
        };
        [
            ("rate", rate.map_or(Effect::Nothing, Effect::Rate)),
            ("loss", or_nothing(loss, Probability::ZERO, Effect::Loss)),
            ("delay", or_nothing(delay, Delay::default(), Effect::Delay)),
        ]
    }
}

/// Conditions that do nothing get no stage.
fn or_nothing<T: PartialEq>(value: T, nothing: T, effect: impl Fn(T) -> Effect) -> Effect {
    if value == nothing {
        Effect::Nothing
    } else {
        effect(value)
    }
}

impl ToffeeSpec {
    fn server(&self) -> Effect {
        if self.delay.unwrap_or_default().0 == 0 && self.dynamic.is_none() {
            return Effect::Nothing;
        }
        let queue: QueueLimit = self.queue.unwrap_or(DEFAULT_TOFFEE_QUEUE);
        Effect::Toffee(Toffee {
            delay: self.delay.unwrap_or_default(),
            dynamic: self.dynamic,
            queue: queue.into(),
        })
    }

    fn loss(&self, hop: &str) -> Result<Probability, ConfigError> {
        let Some(k) = self.drop else {
            return Ok(Probability::ZERO);
        };
        loss_of(k).ok_or_else(|| ConfigError::OutOfRange {
            stage: format!("{hop}.toffee"),
            field: "drop",
            value: k.to_string(),
            right: "a drop factor is at least 1",
        })
    }
}
