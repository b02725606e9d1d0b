//! Hostile clients, servers and files, and sudden ends of the program.

mod api_soak;
mod capacity;
mod closed_output;
mod files;
mod iperf3_cves;
mod kills;
mod limits;
mod log;
mod loops;
mod places;
mod privilege;
mod records;
mod soak;
mod wan_box;
