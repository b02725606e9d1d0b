//! Arguments that several commands share, with what these commands do with them.

pub(crate) mod api_client;
pub(crate) mod api_server;
pub(crate) mod capture;
pub(crate) mod experiment_run;
pub(crate) mod forwarder;
pub(crate) mod headings;
pub(crate) mod host_network;
pub(crate) mod link_conditions;
pub(crate) mod links_file;
pub(crate) mod screen;
pub(crate) mod target;
pub(crate) mod threads;
