//! `farwire exec`: the command behind the link and its exit code; nothing is left behind.

mod capture;
mod command;
mod delays;
mod effects;
mod faults;
mod link;
mod packet_log;
mod profiles;
mod rules;
mod shell;
mod slow_lines;
mod traces;
mod user;
