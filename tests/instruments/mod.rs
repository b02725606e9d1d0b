//! Every instrument against farwire's own far end and against the programs whose protocols it speaks.

mod cable_cut;
mod capacity;
mod connect;
mod external;
mod fit;
mod http;
mod long_paths;
mod messages;
mod probe;
mod quality;
mod serve;
mod tcp;
mod tls;
mod udp;
