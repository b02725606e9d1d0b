//! Links of a running `farwire exec`, watched and changed over HTTP and on a terminal.

mod beyond;
mod changes;
mod conformance;
mod floods;
mod instant;
mod leases;
mod limits;
mod metrics;
mod openapi;
mod origins;
mod packets;
mod profiles;
mod refusals;
mod replay;
mod round_trips;
mod run;
mod schedule;
mod screen;
mod soak;
mod view;
