//! Gives up capabilities permanently.
//!
//! Capabilities belong to a thread, and to the threads that it starts afterwards (capabilities(7)).

use caps::errors::CapsError;
use caps::{CapSet, Capability};

/// Keeps those of the `kept` capabilities that the calling thread has, and gives up all others, in all five sets.
///
/// The bounding set can be lowered only with CAP_SETPCAP. Without it the set remains unchanged, which has no effect
/// after no_new_privs is set: no executed program gains a capability that the thread does not have.
///
/// # Errors
/// The kernel refuses, for which no cause is known.
pub fn keep(kept: &[Capability]) -> Result<(), CapsError> {
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP)? {
        for capability in caps::all() {
            // A kernel that does not know the capability has no bit for it, either.
            let bound = caps::has_cap(None, CapSet::Bounding, capability).unwrap_or(false);
            if bound && !kept.contains(&capability) {
                caps::drop(None, CapSet::Bounding, capability)?;
            }
        }
    }
    let permitted = caps::read(None, CapSet::Permitted)?;
    let kept = kept
        .iter()
        .copied()
        .filter(|c| permitted.contains(c))
        .collect();
    caps::clear(None, CapSet::Ambient)?;
    // An effective capability must be permitted, so the effective set is lowered first.
    for set in [CapSet::Effective, CapSet::Permitted] {
        caps::set(None, set, &kept)?;
    }
    caps::clear(None, CapSet::Inheritable)
}
