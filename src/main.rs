//! farwire: a wide-area network between two interfaces, measured through, with the trust of every number stated.
#![forbid(unsafe_code)]

mod cli;
mod link_spec;
mod toml_file;

fn main() {}
