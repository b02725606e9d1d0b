//! The weights by which classes share a server.

use core::num::NonZeroU8;

/// The weights of classes that share a server: while packets of several classes wait, each class gets a part of the
/// rate in proportion to its weight, 1 to 255.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights([NonZeroU8; Self::CLASSES]);

impl Weights {
    /// The number of classes that can have a weight: those from 0 to 31. All others have the weight 1.
    pub const CLASSES: usize = 32;

    /// Gives a class a weight. A class above 31 keeps the weight 1.
    pub fn set(&mut self, class: u16, weight: NonZeroU8) {
        if let Some(own) = self.0.get_mut(usize::from(class)) {
            *own = weight;
        }
    }

    /// Returns the weight of a class.
    pub(crate) fn of(&self, class: u16) -> u64 {
        let own = self.0.get(usize::from(class));
        own.map_or(1, |weight| u64::from(weight.get()))
    }
}

impl Default for Weights {
    /// Every class has the weight 1.
    fn default() -> Self {
        Self([NonZeroU8::MIN; Self::CLASSES])
    }
}
