//! The limit of open descriptors of this process (`RLIMIT_NOFILE` in getrlimit(2)).

use std::fs;
use std::io;

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The reason why there is no room for more descriptors.
#[derive(Debug, thiserror::Error)]
pub enum DescriptorError {
    /// The limit is too low, and this process may not raise it.
    #[error(
        "{needed} open files are needed, but this process may have only {most} (RLIMIT_NOFILE): raise the limit, by \
         `ulimit -Hn {needed}` in a shell of root, by LimitNOFILE={needed} in a systemd unit, or by \
         `--ulimit nofile={needed}` for a container"
    )]
    Limit {
        /// The number of descriptors that are needed.
        needed: u64,
        /// The hard limit.
        most: u64,
    },
    /// The limit or the number of open descriptors cannot be read.
    #[error("cannot read the limit of open files: {0}")]
    Unknown(#[source] io::Error),
}

/// Makes sure that `more` descriptors can be opened beside those that are open now. If the limit of this process is too
/// low, it is raised to the hard limit, and above that if a privilege allows it (CAP_SYS_RESOURCE).
///
/// Child processes inherit the limit; those that call select(2) cannot handle descriptors above 1023.
///
/// # Errors
/// The limit is too low and cannot be raised, or `/proc` is not mounted.
pub fn make_room(more: u64) -> Result<(), DescriptorError> {
    let open = fs::read_dir("/proc/self/fd").map_err(DescriptorError::Unknown)?;
    let needed = open.count() as u64 + more;
    let unknown = |errno: Errno| DescriptorError::Unknown(errno.into());
    let (soft, most) = getrlimit(Resource::RLIMIT_NOFILE).map_err(unknown)?;
    if needed <= soft {
        return Ok(());
    }
    let raised = most.max(needed);
    setrlimit(Resource::RLIMIT_NOFILE, raised, raised)
        .map_err(|_| DescriptorError::Limit { needed, most })
}
