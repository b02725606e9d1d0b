//! The packet path beside its peers.

pub(crate) mod isolation;
pub(crate) mod lateness;
pub(crate) mod links;
pub(crate) mod many_links;
pub(crate) mod packets;
pub(crate) mod page;
pub(crate) mod paired;
pub(crate) mod paths;
pub(crate) mod rates;
pub(crate) mod rivals;
pub(crate) mod start;
pub(crate) mod throughput;
pub(crate) mod view;
