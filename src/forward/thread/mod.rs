//! Runs the forwarder on its own thread, for one link or many.

mod commands;
mod handle;
mod options;
mod reading;
mod run;

use std::any::Any;
use std::iter;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow};
use conditions::EmulatedLink;
use model::{Link, LinkConfig, Nanos};
use netio::cpu::{self, ThreadClock};
use netio::{AfPacket, Alarm, PortSet, Waiter, Wakes, clock};
use record::summary::Summary;

use super::capture::CaptureHandle;
use super::packet_log::PacketLog;
use super::{Forwarder, PortId};
use commands::{ForwarderCommand, Wakeup};
pub(crate) use handle::{ChangeError, ForwarderEnded, ForwarderHandle};
pub(crate) use options::{ForwarderOptions, HELD_MEMORY, RING_SLOTS};
pub(crate) use reading::LinkReading;
use run::ForwarderLoop;

/// The reason for stopping work that depends on a forwarder that has died.
pub(crate) const EMULATOR_DIED: &str = "the emulator has died";

/// A forwarder that runs until it is stopped.
#[derive(Debug)]
pub(crate) struct ForwarderThread {
    thread: JoinHandle<()>,
    /// Receives the summary of each link when the forwarder has stopped, before its ports are closed.
    summaries: Mutex<Receiver<Vec<Summary>>>,
    handle: ForwarderHandle,
    /// The captures that run from the start to the end, in the order of the links.
    captures: Vec<CaptureHandle>,
}

/// A forwarder whose thread has begun to prepare itself, which takes about 10 ms.
#[derive(Debug)]
pub(crate) struct StartingForwarder {
    forwarder: ForwarderThread,
    is_ready: Receiver<()>,
}

/// A link and the ports that it connects.
pub(crate) struct PlacedLink {
    /// The ports A and B.
    pub(crate) ports: [PortId; 2],
    pub(crate) link: EmulatedLink,
}

/// Sets a flag if its thread panics.
struct PanicFlag(Arc<AtomicBool>);

impl StartingForwarder {
    /// Begins to forward between `ports` A and B, each of which is a separate set.
    ///
    /// # Errors
    /// Fails if the conditions are invalid, or if the machine has no descriptor or thread left.
    pub(crate) fn begin(
        ports: [AfPacket; 2],
        link: EmulatedLink,
        options: ForwarderOptions,
    ) -> Result<Self> {
        let ring_bytes = ports.iter().map(AfPacket::ring_bytes).sum();
        let joined = PlacedLink {
            ports: PortId::SEPARATE_SETS,
            link,
        };
        Self::spawn(ports.into(), ring_bytes, vec![joined], options)
    }

    /// Begins to forward on all links between ports of these sets, which are of any kind and whose
    /// rings take `ring_bytes`.
    ///
    /// # Errors
    /// Those of [`StartingForwarder::begin`].
    pub(super) fn spawn<P: PortSet + Wakes + Send + 'static>(
        sets: Vec<P>,
        ring_bytes: usize,
        joined: Vec<PlacedLink>,
        options: ForwarderOptions,
    ) -> Result<Self> {
        let start = options.start.unwrap_or_else(clock::now);
        let begin = |placed: &PlacedLink| match placed.link.config.waits {
            true => Nanos::MAX,
            false => start,
        };
        let begins = joined
            .iter()
            .map(|placed| Arc::new(AtomicU64::new(begin(placed).0)));
        let begins: Arc<[Arc<AtomicU64>]> = begins.collect();
        let announced = Arc::clone(&begins);
        let build = |PlacedLink { ports, link }| -> Result<_> {
            let EmulatedLink { config, rules } = link;
            let link = Link::new(&LinkConfig { start, ..config })?;
            Ok((ports, link, rules))
        };
        let links = joined.into_iter().map(build).collect::<Result<Vec<_>>>()?;
        let late_budget = options.late_budget;
        let wakeup = Arc::new(Wakeup {
            called: AtomicBool::new(false),
            alarm: Alarm::new().context("cannot create the emulator's timer")?,
        });
        let logs = options.packet_logs.into_iter().map(PacketLog::begin);
        let logs = logs.collect::<Result<Vec<_>>>()?;
        let captures = options
            .captures
            .into_iter()
            .map(|of| of.begin(Nanos::ZERO))
            .collect::<Result<Vec<_>>>()?;
        let (taps, captures): (Vec<_>, Vec<_>) = captures.into_iter().unzip();
        let (commands, to_do) = mpsc::channel();
        let (ready, is_ready) = mpsc::channel();
        let (stopped, summaries) = mpsc::channel();
        let waker = Arc::clone(&wakeup);
        let name = match options.number {
            0 => "forwarder".to_owned(),
            number => format!("forwarder-{number}"),
        };
        let mut cpus = options.cpus.into_iter().cycle();
        let own_cpu = cpus.nth(options.number);
        let thread = std::thread::Builder::new()
            .name(name)
            .spawn(move || {
                let _panic_flag = PanicFlag(options.died);
                if let Some(cpu) = own_cpu {
                    // The processors were checked when they were read.
                    let _ = cpu::run_on(cpu);
                }
                let waiter = Waiter::measure(options.cpu, options.forwarders);
                let mut forwarder = Forwarder::new(sets, options.memory);
                let own = ThreadClock::of_this_thread();
                let cpu_clock = move || own.elapsed().map_or(Nanos::ZERO, Nanos::from);
                forwarder.bound_lateness(options.late_limit, Box::new(cpu_clock));
                let logs = logs.into_iter().map(Some);
                let logs = logs.chain(iter::repeat_with(|| None));
                for ((ports, link, rules), log) in links.into_iter().zip(logs) {
                    forwarder.add_link(ports, link, rules, options.late_budget, log);
                }
                forwarder.prepare_statistics();
                for (link, begins) in announced.iter().enumerate() {
                    if begins.load(Ordering::Relaxed) == Nanos::MAX.0 {
                        forwarder.announce_start(link, Arc::clone(begins));
                    }
                }
                for (link, tap) in taps.into_iter().enumerate() {
                    forwarder.capture(link, tap);
                }
                let mut running = ForwarderLoop {
                    forwarder,
                    waiter,
                    cpu: options.cpu,
                    memory: options.memory,
                    ring_bytes,
                };
                // The receiver is gone if the start was abandoned.
                let _ = ready.send(());
                // The receiver is gone if nobody wants the summaries.
                let _ = stopped.send(running.forward(&waker, &to_do));
            })
            .context("cannot start the emulator's thread")?;
        let handle = ForwarderHandle {
            commands,
            wakeup,
            start,
            begins,
            late_budget,
            memory: options.memory,
        };
        let forwarder = ForwarderThread {
            thread,
            summaries: Mutex::new(summaries),
            handle,
            captures,
        };
        Ok(Self {
            forwarder,
            is_ready,
        })
    }

    /// Waits until the forwarder passes packets.
    ///
    /// # Errors
    /// Fails if it has died.
    pub(crate) fn wait(self) -> Result<ForwarderThread> {
        let ready = self.is_ready.recv();
        ready.context("the emulator ended at its start")?;
        Ok(self.forwarder)
    }
}

impl ForwarderThread {
    /// Returns the handle for other threads.
    pub(crate) fn handle(&self) -> &ForwarderHandle {
        &self.handle
    }

    /// Asks the forwarder to stop, so that several can stop side by side.
    pub(super) fn ask_to_stop(&self) {
        self.handle.send(ForwarderCommand::Stop);
    }

    /// Stops forwarding and closes the ports. Packets on their way are lost. Returns the summary of each
    /// link.
    ///
    /// # Errors
    /// Fails if the forwarder has died; the error gives the cause.
    pub(crate) fn stop(mut self) -> Result<Vec<Summary>> {
        let summaries = self.await_summaries();
        let ended = self.thread.join();
        ended.map_err(|panic| anyhow!("the emulator died: {}", message(&*panic)))?;
        summaries.context("the emulator ended without a summary")
    }

    /// Stops forwarding as [`Self::stop`] does, but does not wait until the ports are closed, for which
    /// the kernel takes tens of milliseconds.
    ///
    /// # Errors
    /// Those of [`Self::stop`].
    pub(crate) fn stop_soon(mut self) -> Result<Vec<Summary>> {
        match self.await_summaries() {
            Some(summaries) => Ok(summaries),
            None => self.stop(),
        }
    }

    /// Stops forwarding. Returns the summary of each link, or `None` if the forwarder has died.
    fn await_summaries(&mut self) -> Option<Vec<Summary>> {
        self.ask_to_stop();
        let summaries = self.summaries.get_mut();
        let summaries = summaries.unwrap_or_else(PoisonError::into_inner).recv();
        let mut summaries = summaries.ok()?;
        for (summary, capture) in summaries.iter_mut().zip(self.captures.drain(..)) {
            summary.capture = Some(capture.finish());
        }
        Some(summaries)
    }
}

impl Drop for PanicFlag {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// Returns the message of a panic.
fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("no cause is known")
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{self, Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use conditions::Rules;
    use model::{
        BitsPerSec, CheckedPaths, Delay, Effect, Framing, PathSpec, QueueLimit, Rate, StageSpec,
    };
    use netio::CpuUse;
    use netio::bed::{Bed, BedConfig, CLIENT_PORT, SERVER, SERVER_PORT};
    use netio::userns::Privilege;
    use record::summary::CaptureSummary;

    use super::super::NewConditions;
    use super::super::capture::{Capture, CaptureSpec};
    use super::super::fuzzing::SilentPort;
    use super::*;

    fn start(panics: bool, died: &Arc<AtomicBool>) -> ForwarderThread {
        let ports = [false, panics].map(|panics| SilentPort::new(panics).unwrap());
        let link = EmulatedLink {
            config: LinkConfig::new(1, delayed(1), Vec::new()),
            rules: Rules::default(),
        };
        let options = ForwarderOptions {
            died: Arc::clone(died),
            ..CpuUse::Gentle.into()
        };
        let joined = PlacedLink {
            ports: PortId::SEPARATE_SETS,
            link,
        };
        let starting = StartingForwarder::spawn(ports.into(), 5, vec![joined], options);
        starting.unwrap().wait().unwrap()
    }

    /// Starts a forwarder of one link at which nothing arrives.
    pub(crate) fn idle() -> ForwarderThread {
        start(false, &Arc::default())
    }

    fn delayed(millis: u64) -> Vec<StageSpec> {
        let delay = Delay {
            time: Nanos::from_millis(millis),
            ..Delay::default()
        };
        vec![StageSpec::new("box.up.delay", Effect::Delay(delay))]
    }

    fn paths(up: Vec<StageSpec>) -> Vec<PathSpec> {
        LinkConfig::new(1, up, Vec::new()).paths
    }

    fn under(up: Vec<StageSpec>) -> NewConditions {
        NewConditions {
            paths: CheckedPaths::new(paths(up)).unwrap(),
            ..NewConditions::default()
        }
    }

    #[test]
    fn forwarders_divide_the_memory_by_what_their_links_need() {
        let options = ForwarderOptions {
            memory: 1_000,
            needs: vec![100, 0, 500],
            cpus: vec![3],
            ..CpuUse::Gentle.into()
        };
        let parts = options.divide(&[0..2, 2..3]);
        let each: Vec<_> = parts
            .iter()
            .map(|part| (part.number, part.memory, part.needs.clone()))
            .collect();
        assert_eq!(each, [(0, 300, vec![100, 0]), (1, 700, vec![500])]);
        let are_alike = |part: &ForwarderOptions| part.cpus == [3] && part.forwarders == 2;
        assert!(parts.iter().all(are_alike), "{parts:?}");
        let halves = ForwarderOptions::default().divide(&[0..9, 9..18]);
        assert_eq!(halves[0].memory, HELD_MEMORY / 2);
    }

    #[test]
    fn forwarders_get_the_packet_logs_of_their_links() {
        let options = ForwarderOptions {
            packet_logs: vec![PacketLog::ByFlow, PacketLog::Stdout, PacketLog::ByFlow],
            ..ForwarderOptions::default()
        };
        let parts = options.divide(&[0..1, 1..3, 3..4]);
        let each: Vec<_> = parts.iter().map(|part| &part.packet_logs[..]).collect();
        assert!(
            matches!(
                each[..],
                [
                    [PacketLog::ByFlow],
                    [PacketLog::Stdout, PacketLog::ByFlow],
                    []
                ]
            ),
            "{each:?}"
        );
    }

    #[test]
    fn a_sleeping_forwarder_answers_every_command() {
        let died = Arc::default();
        let forwarder = start(false, &died);
        let before = clock::now();
        let mut last = before;
        for millis in 2..10 {
            let change = forwarder.handle().change(0, under(delayed(millis)));
            let at = change.unwrap().at;
            assert!(at >= last && at <= clock::now());
            last = at;
            assert_eq!(forwarder.handle().read(0).unwrap().summary.ring_bytes, 5);
        }
        let other = vec![StageSpec::new("box.up.delay", Effect::Mtu(1_500))];
        let refused = forwarder.handle().change(0, under(other));
        assert!(matches!(refused, Err(ChangeError::Refused(_))));
        assert_eq!(forwarder.stop().unwrap()[0].up.packets, 0);
        assert!(!died.load(Ordering::Relaxed));
    }

    #[test]
    fn a_forwarder_that_need_not_close_its_ports_gives_its_summaries_or_the_cause_of_its_death() {
        let forwarder = start(false, &Arc::default());
        assert_eq!(forwarder.stop_soon().unwrap()[0].ring_bytes, 5);
        let forwarder = start(true, &Arc::default());
        while forwarder.handle().read(0).is_ok() {}
        let cause = forwarder.stop_soon().unwrap_err().to_string();
        assert!(cause.contains("an arrival that kills"), "{cause}");
    }

    #[test]
    fn a_capture_is_started_and_ended_while_the_forwarder_runs() {
        let forwarder = start(false, &Arc::default());
        let file = tempfile::NamedTempFile::new().unwrap();
        let capture = Capture {
            spec: CaptureSpec::default(),
            sink: Box::new(file.reopen().unwrap()),
        };
        let capture = forwarder.handle().capture(0, capture).unwrap();
        let limited = Capture {
            spec: CaptureSpec {
                most_time: Some(Nanos(1)),
                ..CaptureSpec::default()
            },
            sink: Box::new(io::sink()),
        };
        forwarder.handle().capture(0, limited).unwrap().wait();
        assert_eq!(capture.finish(), CaptureSummary::default());
        let mut file = pcap_file::pcapng::PcapNgReader::new(file).unwrap();
        let blocks: Vec<String> = iter::from_fn(|| {
            let block = file.next_block()?;
            Some(format!("{:?}", block.unwrap()))
        })
        .collect();
        assert_eq!(blocks.len(), 4, "{blocks:?}");
        forwarder.stop().unwrap();
    }

    #[test]
    fn commands_from_several_threads_are_all_answered() {
        let died = Arc::default();
        let forwarder = start(false, &died);
        let handle = forwarder.handle().clone();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..200).for_each(|_| drop(handle.read(0).unwrap())));
            }
        });
        forwarder.stop().unwrap();
        assert!(handle.read(0).is_err());
    }

    #[test]
    fn several_links_are_read_in_one_round_trip_and_at_one_instant() {
        let forwarder = start(false, &Arc::default());
        let handle = forwarder.handle().clone();
        let read = |links: &[usize]| {
            let mut times: Vec<_> = handle.read_each(links).map(|link| link.at).collect();
            let count = times.len();
            times.dedup();
            (count, times.len())
        };
        assert_eq!(read(&[0; 8]), (8, 1));
        // Packets may pass between the groups.
        let (count, times) = read(&[0; 20]);
        assert!(count == 20 && times <= 3, "{count} {times}");
        forwarder.stop().unwrap();
        assert_eq!(read(&[0; 20]), (0, 0));
    }

    #[test]
    fn a_forwarder_that_dies_sets_its_flag_and_reports_the_cause() {
        let died = Arc::default();
        let forwarder = start(true, &died);
        // The forwarder may answer before it reads the arrival, but not after.
        while forwarder.handle().read(0).is_ok() {}
        assert!(forwarder.handle().change(0, under(delayed(1))).is_err());
        let cause = forwarder.stop().unwrap_err().to_string();
        assert!(cause.contains("an arrival that kills"), "{cause}");
        assert!(died.load(Ordering::Relaxed));
    }

    /// Changes rate and delay ten or more times per second during a transfer that fills the link.
    /// The queue has room for the whole transfer, so only the changes could cause a loss.
    #[test]
    fn changes_under_tcp_lose_nothing_and_the_counters_add_up() {
        const BYTES: usize = 24 << 20;
        const BETWEEN: usize = 512 << 10;
        if Privilege::detect() != Privilege::Root {
            eprintln!("skipped: a bed in a test of many threads needs root");
            return;
        }
        let step_of = |step: u64| {
            let rate = Effect::Rate(Rate {
                rate: BitsPerSec::new(60_000_000 + step % 3 * 60_000_000).ok(),
                fluctuation: None,
                burst: None,
                framing: Framing::L2,
                queue: QueueLimit::Packets(1_000_000).into(),
            });
            [
                vec![StageSpec::new("box.up.rate", rate)],
                delayed(1 + step % 5),
            ]
            .concat()
        };
        let bed = Bed::build(&BedConfig::default()).unwrap();
        let ports = bed.emulators()[0].run(|| {
            [CLIENT_PORT, SERVER_PORT].map(|name| AfPacket::open(name, RING_SLOTS).unwrap())
        });
        let link = EmulatedLink {
            config: LinkConfig {
                paths: paths(step_of(0)),
                ..LinkConfig::default()
            },
            rules: Rules::default(),
        };
        let options = ForwarderOptions::from(CpuUse::Gentle);
        let starting = StartingForwarder::begin(ports.unwrap(), link, options).unwrap();
        let forwarder = starting.wait().unwrap();
        let address = (SERVER.v4, 5201);
        let listener = bed
            .server()
            .run(move || TcpListener::bind(address).unwrap());
        let mut sender = bed
            .client()
            .run(move || TcpStream::connect(address).unwrap())
            .unwrap();
        let mut receiver = listener.unwrap().accept().unwrap().0;
        let sending = std::thread::spawn(move || sender.write_all(&vec![7; BYTES]).unwrap());
        let mut chunk = vec![0; BETWEEN];
        let mut changed = Nanos::ZERO;
        for step in 0..(BYTES / BETWEEN) as u64 {
            receiver.read_exact(&mut chunk).unwrap();
            let change = forwarder.handle().change(0, under(step_of(step)));
            let at = change.unwrap().at;
            assert!(at > changed);
            changed = at;
            let up = forwarder.handle().read(0).unwrap().summary.up;
            let gone = up.delivered + up.dropped_all() + up.held_at_end;
            assert_eq!(up.packets, gone);
        }
        sending.join().unwrap();
        assert_eq!(receiver.read(&mut chunk).unwrap(), 0);
        let summary = forwarder.stop().unwrap().remove(0);
        for way in [&summary.up, &summary.down] {
            assert_eq!(way.dropped_all(), 0, "{summary}");
            assert!(way.emulator_lost.is_empty(), "{summary}");
            assert_eq!(way.packets, way.delivered + way.held_at_end, "{summary}");
        }
        assert!(summary.up.delivered_bytes > BYTES as u64, "{summary}");
    }
}
