//! What may befall a packet on its way, one effect a file.

pub(crate) mod delay;
pub(crate) mod loss;
