//! What packets meet between client and server, read from the stages that they pass.

use model::{BitsPerSec, Delay, Effect, Nanos, Queue, Rate, StageSpec, Toffee};

use crate::Direction;

/// All that is emulated between client and server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Route {
    /// From client to server.
    pub up: Way,
    /// From server to client.
    pub down: Way,
    /// Whether all packets meet the same at all times: nothing is scheduled, and there are no classes.
    pub is_steady: bool,
}

/// The stages that packets of class 0 meet one way, in this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Way(pub Vec<StageSpec>);

impl Route {
    /// One of its two ways.
    pub fn way(&self, direction: Direction) -> &Way {
        match direction {
            Direction::Up => &self.up,
            Direction::Down => &self.down,
        }
    }
}

impl Way {
    /// What each stage does at first.
    pub fn effects(&self) -> impl Iterator<Item = &Effect> {
        self.0.iter().map(|stage| &stage.effect)
    }

    /// The slowest rate and its queue.
    pub fn slowest(&self) -> Option<(BitsPerSec, Queue)> {
        let rates = self.effects().filter_map(|effect| match effect {
            Effect::Rate(Rate { rate, queue, .. }) => Some(((*rate)?, *queue)),
            _ => None,
        });
        rates.min_by_key(|(rate, _)| *rate)
    }

    /// Propagation.
    pub fn delays(&self) -> impl Iterator<Item = &Delay> {
        self.effects().filter_map(|effect| match effect {
            Effect::Delay(delay) => Some(delay),
            _ => None,
        })
    }

    /// Of a packet without a length, over all hops.
    pub fn propagation(&self) -> Nanos {
        self.delays()
            .fold(Nanos::ZERO, |sum, delay| sum + delay.time)
    }

    /// Servers that this way shares with the other one.
    pub fn toffees(&self) -> impl Iterator<Item = &Toffee> {
        self.effects().filter_map(|effect| match effect {
            Effect::Toffee(toffee) => Some(toffee),
            _ => None,
        })
    }

    /// How much is lost at random in the long run, bits that are flipped included: no receiver takes such a packet.
    pub fn loss_percent(&self) -> f64 {
        let losses = self.effects().map(|effect| match effect {
            Effect::Loss(loss) | Effect::Corrupt(loss) => loss.percent(),
            Effect::GilbertElliott(law) => law.stationary_loss() * 100.0,
            _ => 0.0,
        });
        // Of two independent losses one is enough.
        losses.fold(0.0, |sum, loss| sum + loss - sum * loss / 100.0)
    }
}
