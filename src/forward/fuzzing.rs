//! A forwarder at whose ports nothing arrives, for fuzzers and tests.

use std::convert::Infallible;
use std::io;
use std::iter;
use std::os::fd::{AsFd as _, BorrowedFd};

use anyhow::Result;
use conditions::EmulatedLink;
use model::Nanos;
use netio::{
    Alarm, Capabilities, CpuUse, Missed, PortSet, ReceivedFrame, SendTimes, TxFrame, Wakes,
};

use super::PortId;
use super::thread::{ForwarderThread, PlacedLink, StartingForwarder};

/// A port at which nothing arrives, or for a test an arrival that causes a panic. The alarm never rings.
pub(super) struct SilentPort {
    alarm: Alarm,
    panics: bool,
}

/// Starts a forwarder with one link between two silent ports.
///
/// # Errors
/// The machine has no descriptor or thread left.
pub(crate) fn silent(link: EmulatedLink) -> Result<ForwarderThread> {
    let ports = [SilentPort::new(false)?, SilentPort::new(false)?];
    let joined = PlacedLink {
        ports: PortId::SEPARATE_SETS,
        link,
    };
    let options = CpuUse::Gentle.into();
    StartingForwarder::spawn(ports.into(), 0, vec![joined], options)?.wait()
}

impl SilentPort {
    pub(super) fn new(panics: bool) -> io::Result<Self> {
        let alarm = Alarm::new()?;
        Ok(Self { alarm, panics })
    }
}

impl Wakes for SilentPort {
    fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        iter::once(self.alarm.as_fd())
    }
}

impl PortSet for SilentPort {
    type Lent = Infallible;

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            gso: false,
            tunnel_gso: false,
            checksum: false,
            vlan: false,
            arrival_stamp: true,
            largest_frame: 0,
        }
    }

    fn refresh(&mut self, _: Nanos) {}

    fn has_arrivals(&self) -> bool {
        self.panics
    }

    fn arrival(&self) -> Option<Nanos> {
        self.panics.then_some(Nanos::ZERO)
    }

    fn take(&mut self) -> Option<(usize, ReceivedFrame<Infallible>)> {
        assert!(!self.panics, "an arrival that kills");
        None
    }

    fn send(
        &mut self,
        _: usize,
        _: Nanos,
        _: &[TxFrame<'_>],
        _: &mut dyn FnMut(usize, io::Result<SendTimes>),
    ) {
    }

    fn missed(&mut self) -> Missed {
        Missed::default()
    }

    fn rejoin(&mut self, _: usize, _: u32) -> io::Result<()> {
        Ok(())
    }
}
