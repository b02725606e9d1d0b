//! What happens to packets beside queueing: one effect a file.

pub(crate) mod corrupt;
pub(crate) mod delay;
pub(crate) mod duplicate;
pub(crate) mod gate;
pub(crate) mod gilbert_elliott;
pub(crate) mod jitter;
pub(crate) mod loss;
pub(crate) mod mtu;
