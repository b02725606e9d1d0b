//! `farwire emulate`: a transparent box between two interfaces that leaves them as they were.

mod attach;
mod capture;
mod container;
mod docker;
mod engines;
mod frames;
mod host;
mod lifecycle;
mod links;
mod listen;
mod nics;
mod on_exit;
mod overload;
mod page;
mod recovery;
mod refusals;
mod rootless_podman;
mod service;
mod soak;
mod transparent;
mod tunnels;
