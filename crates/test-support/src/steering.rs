//! Receive packet steering: without it the kernel itself reorders packets between two CPUs.

use std::fs;

use anyhow::{Context, Result};
use netio::netns::NetNs;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

/// Makes one CPU process all packets that the `interfaces` of `ns` receive.
pub fn to_one_cpu(ns: &NetNs, interfaces: &[&str]) -> Result<()> {
    let none = None::<&str>;
    // A sysfs shows the namespace of the thread that mounted it.
    let place = tempfile::tempdir()?;
    ns.run(|| -> Result<()> {
        unshare(CloneFlags::CLONE_NEWNS).context("making a mount namespace")?;
        mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
            .context("keeping mounts private")?;
        mount(
            Some("sysfs"),
            place.path(),
            Some("sysfs"),
            MsFlags::empty(),
            none,
        )
        .context("mounting sysfs")?;
        for interface in interfaces {
            let file = format!("class/net/{interface}/queues/rx-0/rps_cpus");
            fs::write(place.path().join(&file), "1").with_context(|| format!("/sys/{file}"))?;
        }
        Ok(())
    })?
}
