//! The forwarder on its own thread.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use model::Link;
use netio::{AfPacket, Alarm, CpuUse, Waiter};

use super::packet_log::PacketLogWriter;
use super::stats::summary;
use super::{Forwarder, Next};
use record::summary::Summary;

/// Slots of each port's receive ring: 64 MiB, which hold what arrives while both cores are busy elsewhere for 20 ms.
pub(crate) const RING_SLOTS: usize = 960;

/// How a forwarder is run.
#[derive(Debug)]
pub(crate) struct ForwarderOptions {
    /// Whether it may spin.
    pub(crate) cpu: CpuUse,
    /// Bytes of frames that may be held.
    pub(crate) memory: usize,
    /// Takes a line a packet.
    pub(crate) packet_log: Option<PacketLogWriter>,
}

impl Default for ForwarderOptions {
    fn default() -> Self {
        Self {
            cpu: CpuUse::Spin,
            memory: 512 << 20,
            packet_log: None,
        }
    }
}

impl From<CpuUse> for ForwarderOptions {
    fn from(cpu: CpuUse) -> Self {
        Self {
            cpu,
            ..Self::default()
        }
    }
}

/// A forwarder that runs until it is stopped.
pub(crate) struct ForwarderThread {
    thread: JoinHandle<Summary>,
    stop: Arc<AtomicBool>,
    alarm: Arc<Alarm>,
}

impl ForwarderThread {
    /// Starts to forward between `ports` A and B; on return it does.
    pub(crate) fn start(
        ports: [AfPacket; 2],
        link: Link,
        options: ForwarderOptions,
    ) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let alarm = Arc::new(Alarm::new().context("making the forwarder's alarm")?);
        let (stopped, rung) = (Arc::clone(&stop), Arc::clone(&alarm));
        let (ready, is_ready) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("forwarder".to_owned())
            .spawn(move || forward(ports, link, options, &stopped, &rung, &ready))
            .context("starting the forwarder's thread")?;
        is_ready
            .recv()
            .context("the forwarder ended at its start")?;
        Ok(Self {
            thread,
            stop,
            alarm,
        })
    }

    /// Stops forwarding and says what was done; packets on their way are gone.
    pub(crate) fn stop(self) -> Summary {
        self.stop.store(true, Ordering::Relaxed);
        self.alarm.ring();
        match self.thread.join() {
            Ok(summary) => summary,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}

fn forward(
    ports: [AfPacket; 2],
    link: Link,
    options: ForwarderOptions,
    stop: &AtomicBool,
    alarm: &Alarm,
    ready: &mpsc::Sender<()>,
) -> Summary {
    let mut waiter = Waiter::measure(options.cpu);
    let ring_bytes = ports.iter().map(AfPacket::ring_bytes).sum();
    let memory = options.memory;
    let mut forwarder = Forwarder::new(ports, link, memory, options.packet_log);
    // Nobody listens any more if the start was given up.
    let _ = ready.send(());
    while !stop.load(Ordering::Relaxed) {
        let now = waiter.now();
        let until = match forwarder.step(now) {
            Next::Now => continue,
            Next::At(at) => Some(at),
            Next::Arrival => None,
        };
        if !waiter.sleeps(now, until) {
            std::hint::spin_loop();
            continue;
        }
        forwarder.prepare_to_sleep();
        let [a, b] = forwarder.ports();
        waiter.sleep(&[a.as_fd(), b.as_fd(), alarm.as_fd()], now, until);
    }
    summary(
        &forwarder.stats(),
        &waiter,
        memory,
        ring_bytes,
        forwarder.finish_log(),
    )
}
