//! Gives up capabilities permanently.
//!
//! Capabilities belong to a thread, and to the threads that it starts from then on (capabilities(7)).

use caps::errors::CapsError;
use caps::{CapSet, Capability};

/// Has the calling thread keep those of `kept` that it has, and give up all others, in all five sets.
///
/// The bounding set can only be lowered with CAP_SETPCAP. Without that it stays, which means nothing once no_new_privs is
/// set: no program that is executed gains what the thread does not have.
///
/// # Errors
/// The kernel refuses; nothing is known to make it.
pub fn keep(kept: &[Capability]) -> Result<(), CapsError> {
    if caps::has_cap(None, CapSet::Effective, Capability::CAP_SETPCAP)? {
        for capability in caps::all() {
            // A kernel that does not know it has no bit of it either.
            let bound = caps::has_cap(None, CapSet::Bounding, capability).unwrap_or(false);
            if bound && !kept.contains(&capability) {
                caps::drop(None, CapSet::Bounding, capability)?;
            }
        }
    }
    let permitted = caps::read(None, CapSet::Permitted)?;
    let kept = kept.iter().copied().filter(|c| permitted.contains(c));
    let kept = kept.collect();
    caps::clear(None, CapSet::Ambient)?;
    // What is effective has to be permitted, so that it goes first.
    for set in [CapSet::Effective, CapSet::Permitted] {
        caps::set(None, set, &kept)?;
    }
    caps::clear(None, CapSet::Inheritable)
}
