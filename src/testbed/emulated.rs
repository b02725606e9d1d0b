//! Namespaces with the emulator running on their links.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};
use netio::bed::{Bed, BedConfig, BedError, CLIENT_PORT, SERVER_PORT};
use netio::iface::DefaultRoutes;
use netio::netns::NetNs;
use netio::{AfPacket, clock};

use crate::forward::thread::{
    ForwarderHandle, ForwarderOptions, ForwarderThread, RING_SLOTS, StartingForwarder,
};
use conditions::EmulatedLink;
use record::lateness::LinkDepartures;
use record::summary::Summary;

/// A chain of namespaces whose links are emulated.
pub(crate) struct EmulatedBed {
    bed: Bed,
    /// The forwarders, in the order of the bed's segments.
    running: Vec<ForwarderThread>,
    died: Arc<AtomicBool>,
}

impl EmulatedBed {
    /// Builds the namespaces, with a segment for each of `links`, and starts to forward. The time of all
    /// links begins at the same instant.
    pub(crate) fn up(
        bed: &BedConfig,
        links: Vec<(EmulatedLink, ForwarderOptions)>,
    ) -> Result<Self> {
        let bed = Bed::build(&BedConfig {
            segments: u8::try_from(links.len()).context("more links than a bed can have")?,
            ..bed.clone()
        })?;
        let open = || AfPacket::open_pair([CLIENT_PORT, SERVER_PORT], RING_SLOTS);
        let opened = bed.emulators().iter();
        let opened = opened.map(|of| -> Result<_> { Ok(of.run(open)??) });
        let ports = opened.collect::<Result<Vec<_>>>()?;
        let (died, start) = (Arc::default(), Some(clock::now()));
        let forwarders = links.len();
        let begin = |(ports, (link, options)): (_, (EmulatedLink, ForwarderOptions))| {
            let options = ForwarderOptions {
                died: Arc::clone(&died),
                start,
                forwarders,
                ..options
            };
            StartingForwarder::begin(ports, link, options)
        };
        let begun = ports.into_iter().zip(links).map(begin);
        let begun = begun.collect::<Result<Vec<_>>>()?;
        let running = begun.into_iter().map(StartingForwarder::wait);
        let running = running.collect::<Result<_>>()?;
        Ok(Self { bed, running, died })
    }

    /// Returns the client's namespace.
    pub(crate) fn client(&self) -> &NetNs {
        self.bed.client()
    }

    /// Returns the server's namespace.
    pub(crate) fn server(&self) -> &NetNs {
        self.bed.server()
    }

    /// Returns the namespaces of all nodes, from the client to the server.
    pub(crate) fn nodes(&self) -> &[NetNs] {
        self.bed.nodes()
    }

    /// Connects the far end with the host's network; see [`Bed::open_to_host`]. `has_ended` says whether the process that
    /// makes the tap has ended.
    ///
    /// # Errors
    /// Those of [`Bed::open_to_host`].
    pub(crate) fn open_to_host(
        &self,
        config: &BedConfig,
        families: DefaultRoutes,
        has_ended: &AtomicBool,
    ) -> Result<(), BedError> {
        let has_ended = || has_ended.load(Ordering::Acquire);
        self.bed.open_to_host(config, families, has_ended)
    }

    /// Returns the forwarders of the links, in the order of the segments.
    pub(crate) fn forwarders(&self) -> impl Iterator<Item = &ForwarderHandle> {
        self.running.iter().map(ForwarderThread::handle)
    }

    /// Returns a flag that is set when one of the forwarders dies and nothing passes there any
    /// more.
    pub(crate) fn died(&self) -> &Arc<AtomicBool> {
        &self.died
    }

    /// Returns the departures from each link up to now. `names` are the links' names in the order
    /// of the segments. A link whose forwarder has died has no departures.
    pub(crate) fn departures(&self, names: &[String]) -> Vec<LinkDepartures> {
        let links = self.running.iter().zip(names);
        links
            .map(|(link, name)| LinkDepartures {
                link: name.clone(),
                budget_ns: link.handle().late_budget().time().0,
                flows: link.handle().departures().unwrap_or_default().concat(),
            })
            .collect()
    }

    /// Stops forwarding. Returns the summary of each link, in the order of the segments.
    ///
    /// # Errors
    /// Fails if a forwarder has died.
    pub(crate) fn down(self) -> Result<Vec<Summary>> {
        self.end(ForwarderThread::stop)
    }

    /// Stops forwarding as [`Self::down`] does, but does not wait until the receive rings are closed. A
    /// process that ends immediately afterwards takes longer than with [`Self::down`], because the
    /// kernel then closes one ring after the other.
    ///
    /// # Errors
    /// Those of [`Self::down`].
    pub(crate) fn down_soon(self) -> Result<Vec<Summary>> {
        self.end(ForwarderThread::stop_soon)
    }

    fn end(self, stop: impl Fn(ForwarderThread) -> Result<Vec<Summary>>) -> Result<Vec<Summary>> {
        // Stop all of them, even if one has died.
        let stopped: Vec<_> = self.running.into_iter().map(stop).collect();
        let each = stopped.into_iter().collect::<Result<Vec<_>>>()?;
        Ok(each.into_iter().flatten().collect())
    }
}
