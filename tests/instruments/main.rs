//! Every instrument against farwire's own far end and against the programs whose protocols it speaks.

#[path = "../common/mod.rs"]
mod common;

mod cable_cut;
mod capacity;
mod connect;
mod external;
mod http;
mod messages;
mod probe;
mod serve;
mod tcp;
mod tls;
mod udp;

use std::process::ExitCode;

use common::suite::{Suite, gain_privilege};

fn main() -> ExitCode {
    gain_privilege();
    let mut suite = Suite::new();
    external::add(&mut suite);
    http::add(&mut suite);
    connect::add(&mut suite);
    tls::add(&mut suite);
    messages::add(&mut suite);
    capacity::add(&mut suite);
    cable_cut::add(&mut suite);
    serve::add(&mut suite);
    tcp::add(&mut suite);
    udp::add(&mut suite);
    probe::add(&mut suite);
    suite.run()
}
