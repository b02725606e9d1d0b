//! Continues as another user.

use std::fs;
use std::io;

use caps::{CapSet, Capability};
use nix::unistd::{Gid, Uid, User, geteuid, setgroups, setresgid, setresuid};

use super::SandboxError;
use crate::userns::outside;

/// The user that owns nothing, if the system has none of that name: the kernel's overflow user (user_namespaces(7)).
const NOBODY: u32 = 65534;

/// A user as whom the process can continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OtherUser {
    /// Name in the system's user database.
    pub name: String,
    uid: Uid,
    gid: Gid,
}

impl OtherUser {
    /// Looks up the user `name`; `None` if this process already runs as that user.
    ///
    /// # Errors
    /// There is no such user, or this process may not change to another user.
    pub fn named(name: &str) -> Result<Option<Self>, SandboxError> {
        let found =
            User::from_name(name).map_err(|errno| SandboxError::user(name, errno.into()))?;
        let Some(user) = found else {
            let none = io::Error::new(io::ErrorKind::NotFound, "there is no such user");
            return Err(SandboxError::user(name, none));
        };
        if user.uid == geteuid() {
            return Ok(None);
        }
        let other = Self {
            name: user.name,
            uid: user.uid,
            gid: user.gid,
        };
        match other.obstacle() {
            None => Ok(Some(other)),
            Some(why) => {
                let why = io::Error::new(io::ErrorKind::PermissionDenied, why);
                Err(SandboxError::user(name, why))
            }
        }
    }

    /// Returns the user nobody if this process is root's; `None` if it belongs to another user or may not change to
    /// another user.
    pub fn nobody() -> Option<Self> {
        let found = User::from_name("nobody").ok().flatten();
        let (uid, gid) = match found {
            Some(user) => (user.uid, user.gid),
            None => (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY)),
        };
        let nobody = Self {
            name: "nobody".to_owned(),
            uid,
            gid,
        };
        (geteuid().is_root() && nobody.obstacle().is_none()).then_some(nobody)
    }

    /// Changes to this user permanently, with no group other than the user's primary one. The calling thread keeps its
    /// capabilities.
    ///
    /// Call it before any thread is started, because other threads would lose their capabilities.
    ///
    /// # Errors
    /// The kernel refuses in the cases in which [`OtherUser::named`] fails.
    pub fn become_it(&self) -> Result<(), SandboxError> {
        let failed = |error: io::Error| SandboxError::user(&self.name, error);
        let caps_failed = |error: caps::errors::CapsError| failed(io::Error::other(error));
        caps::securebits::set_keepcaps(true).map_err(caps_failed)?;
        let Self { uid, gid, .. } = *self;
        setgroups(&[])
            .and_then(|()| setresgid(gid, gid, gid))
            .and_then(|()| setresuid(uid, uid, uid))
            .map_err(|errno| failed(errno.into()))?;
        // Effective capabilities are lost with the change of the user, but remain permitted (capabilities(7)).
        let permitted = caps::read(None, CapSet::Permitted).map_err(caps_failed)?;
        caps::set(None, CapSet::Effective, &permitted).map_err(caps_failed)?;
        caps::securebits::set_keepcaps(false).map_err(caps_failed)
    }

    /// Returns the reason why this process cannot change to the user, if there is one.
    fn obstacle(&self) -> Option<&'static str> {
        let has = |capability| caps::has_cap(None, CapSet::Effective, capability).unwrap_or(false);
        if !has(Capability::CAP_SETUID) || !has(Capability::CAP_SETGID) {
            return Some("this process lacks CAP_SETUID or CAP_SETGID: run as root");
        }
        let maps = |file: &str, id: u32| {
            let map = fs::read_to_string(format!("/proc/self/{file}"));
            // Without /proc the maps are unknown, and the kernel will decide.
            map.map_or(true, |map| outside(&map, id).is_some())
        };
        let mapped = maps("uid_map", self.uid.as_raw()) && maps("gid_map", self.gid.as_raw());
        (!mapped).then_some(
            "the user namespace does not contain this user (/proc/self/uid_map, gid_map)",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_user_is_named_in_the_error() {
        let error = OtherUser::named("no-such-user").unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot change to the user `no-such-user`: there is no such user"
        );
    }
}
