//! Bulk traffic through the emulator, on test beds: everything arrives intact, in order, on time, and adds up.
//!
//! `FARWIRE_SOAK=1` uses the full volumes: 10 GB of TCP, 1 GB of UDP, rates for 10 s after the warm-up.

mod order;
mod rate;
mod tcp;
mod udp;
