//! farwire: a wide-area network between two interfaces, measured through, with the trust of every number stated.
#![forbid(unsafe_code)]

mod cli;
mod instrument;
mod link_spec;
mod serve;
mod toml_file;

fn main() {}
