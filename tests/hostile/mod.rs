//! Strangers, hostile files and sudden ends: what the program does with the worst of its world.

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
