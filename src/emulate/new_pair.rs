//! The veth pair by which a link is inserted at a container's end on the host: its names, and its removal.

use netio::iface::{Interface, InterfaceError};
use netio::lease::InterfaceLeases;
use netio::veth;

/// Returns the names of the near and the far end of the pair for the host's end with the number `index`.
pub(super) fn names(index: u32) -> [String; 2] {
    // A name has at most 15 characters.
    ["a", "b"].map(|letter| format!("farw{index}{letter}"))
}

/// Removes the pair, if there is one, that a killed process made for the host's end with the number `index`.
pub(super) fn remove_of(index: u32, leases: &InterfaceLeases) -> Result<(), InterfaceError> {
    let [near, _] = names(index);
    if let Ok(earlier) = Interface::find(&near) {
        // This removes the pair's journal and, if the pair was noted there, the pair.
        let _ = leases.take(&earlier);
    }
    veth::remove_pair(&near)
}
