//! `farwire exec`: the command behind the link, its exit code, and what it leaves behind: nothing.

mod capture;
mod command;
mod delays;
mod effects;
mod faults;
mod link;
mod packet_log;
mod shell;
