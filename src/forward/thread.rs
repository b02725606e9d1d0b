//! Runs the forwarder on its own thread, for one link or many.

use std::any::Any;
use std::io;
use std::iter;
use std::ops::Range;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow};
use conditions::EmulatedLink;
use model::{ConfigError, Link, LinkConfig, Nanos, Side, Waiting};
use netio::cpu::{self, ThreadClock};
use netio::{AfPacket, Alarm, CpuUse, PortSet, RingSlots, Waiter, Wakes, clock};
use record::lateness::{FlowDepartures, LateBudget};
use record::summary::Summary;

use super::capture::{Capture, CaptureHandle, Tap};
use super::overload::LateLimit;
use super::packet_log::PacketLog;
use super::round_trips::RoundTripTimes;
use super::stats::{LatenessBuckets, QueueState, summary};
use super::{Forwarder, NewConditions, NextStep, Pace, PortId};

/// The slots of the receive rings of a set of ports, which take 32 and 64 MiB. They hold the frames
/// that arrive while all cores are busy elsewhere, for 50 ms at 300,000 packets per second or 30 ms
/// at 16 Gb/s in trains.
pub(crate) const RING_SLOTS: RingSlots = RingSlots {
    small: 16 << 10,
    large: 960,
};

/// The default limit of bytes of frames held.
pub(crate) const HELD_MEMORY: usize = 1 << 30;

/// A single departure is prepared this long before it is due.
const LEAD: Nanos = Nanos(10_000);

/// The reason for stopping work that depends on a forwarder that has died.
pub(crate) const EMULATOR_DIED: &str = "the emulator has died";

/// The settings of a forwarder.
#[derive(Debug)]
pub(crate) struct ForwarderOptions {
    /// Says whether the forwarder may spin.
    pub(crate) cpu: CpuUse,
    /// The time after the due time beyond which a departure is late.
    pub(crate) late_budget: LateBudget,
    /// The lateness at which packets are dropped if the forwarder cannot keep up.
    pub(crate) late_limit: LateLimit,
    /// The limit of bytes of frames held.
    pub(crate) memory: usize,
    /// The bytes that the conditions of each link need of this, in the order of the links, or none.
    pub(crate) needs: Vec<usize>,
    /// The number of this forwarder among those of the process.
    pub(crate) number: usize,
    /// The processors on which the forwarders run, each on the next one; without any, on all.
    pub(crate) cpus: Vec<usize>,
    /// The log of the first link's packets.
    pub(crate) packet_log: Option<PacketLog>,
    /// The captures in the order of the links, one per link, or none.
    pub(crate) captures: Vec<Capture>,
    /// A flag that is set when the forwarder dies and nothing passes any more.
    pub(crate) died: Arc<AtomicBool>,
}

impl Default for ForwarderOptions {
    fn default() -> Self {
        Self {
            cpu: CpuUse::Spin,
            late_budget: LateBudget::DEFAULT,
            late_limit: LateLimit::DEFAULT,
            memory: HELD_MEMORY,
            needs: Vec::new(),
            number: 0,
            cpus: Vec::new(),
            packet_log: None,
            captures: Vec::new(),
            died: Arc::default(),
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

impl ForwarderOptions {
    /// Divides these options among forwarders with these links each. The packet log belongs to the
    /// first link. Each forwarder gets the memory that the conditions of its links need, and an equal
    /// part of the rest.
    pub(super) fn divide(self, links: &[Range<usize>]) -> Vec<Self> {
        let Self {
            cpu,
            late_budget,
            late_limit,
            memory,
            needs,
            number: _,
            cpus,
            packet_log,
            captures,
            died,
        } = self;
        let need = |of: &[usize]| {
            of.iter()
                .fold(0_usize, |sum, need| sum.saturating_add(*need))
        };
        let rest = memory.saturating_sub(need(&needs)) / links.len().max(1);
        let (mut captures, mut packet_log) = (captures.into_iter(), packet_log);
        let part = |(number, links): (usize, &Range<usize>)| {
            let needs = needs.get(links.clone()).unwrap_or_default().to_vec();
            Self {
                cpu,
                late_budget,
                late_limit,
                memory: need(&needs) + rest,
                needs,
                number,
                cpus: cpus.clone(),
                packet_log: packet_log.take(),
                captures: captures.by_ref().take(links.len()).collect(),
                died: Arc::clone(&died),
            }
        };
        links.iter().enumerate().map(part).collect()
    }
}

/// A forwarder that runs until it is stopped.
#[derive(Debug)]
pub(crate) struct ForwarderThread {
    thread: JoinHandle<Vec<Summary>>,
    handle: ForwarderHandle,
    /// The captures that run from the start to the end, in the order of the links.
    captures: Vec<CaptureHandle>,
}

/// A handle that sends commands to a forwarder, from any thread. The forwarder may have ended.
#[derive(Clone, Debug)]
pub(crate) struct ForwarderHandle {
    commands: Sender<ForwarderCommand>,
    wakeup: Arc<Wakeup>,
    start: Nanos,
    /// The times at which the links began, or [`Nanos::MAX`] while they wait for their first packet.
    begins: Arc<[Arc<AtomicU64>]>,
    late_budget: LateBudget,
    memory: usize,
}

/// The state of a link at one instant.
#[derive(Clone, Debug)]
pub(crate) struct LinkReading {
    /// The time of the reading, on the clock of [`netio::clock::now`].
    pub(crate) at: Nanos,
    /// The counters up to then, without the packet log. Packets counted as held at the end are on
    /// their way now.
    pub(crate) summary: Summary,
    /// The departure errors in buckets.
    pub(crate) lateness: LatenessBuckets,
    /// The round trips since their measurement began, by side.
    pub(crate) round_trips: [RoundTripTimes; 2],
    /// The backlog at the bottleneck of each direction, by ingress side.
    pub(crate) backlogs: [Option<Waiting>; 2],
    /// The bytes of frames that all links of the forwarder hold, bookkeeping included.
    pub(crate) held_bytes: usize,
}

/// The forwarder was stopped or has died.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the emulator has ended")]
pub(crate) struct ForwarderEnded;

/// The reason why new conditions were not put into force.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ChangeError {
    /// The link refuses the conditions.
    #[error(transparent)]
    Refused(#[from] ConfigError),
    /// The link has ended.
    #[error(transparent)]
    Ended(#[from] ForwarderEnded),
}

/// A link and the ports that it connects.
pub(crate) struct PlacedLink {
    /// The ports A and B.
    pub(crate) ports: [PortId; 2],
    pub(crate) link: EmulatedLink,
}

/// A command to a running forwarder. Links are identified by number.
enum ForwarderCommand {
    /// Put new conditions into force.
    Change {
        link: usize,
        new: NewConditions,
        done: Sender<Result<LinkReading, ConfigError>>,
    },
    /// Copy packets from now on.
    Capture(usize, Box<Tap>),
    /// Measure round trips from now on.
    MeasureRoundTrips(usize),
    /// Report the counters.
    Read(usize, Sender<LinkReading>),
    /// Report the queue and the drops.
    ReadQueue(usize, Sender<QueueState>),
    /// Report the departures of every link up to now.
    Departures(Sender<Vec<Vec<FlowDepartures>>>),
    /// Use the interface with this index in place of one that is gone.
    Rejoin {
        link: usize,
        side: Side,
        interface: u32,
        done: Sender<io::Result<()>>,
    },
    /// Answer, which shows that the forwarder is alive.
    Answer(Sender<()>),
    /// Answer together with other forwarders.
    AnswerWithAll(Arc<AtomicUsize>, Sender<()>),
    /// End the forwarder.
    Stop,
}

/// Tells a forwarder that there are commands: by a flag if it is awake, by an alarm if it sleeps.
/// The packet path reads one flag and takes no lock.
#[derive(Debug)]
struct Wakeup {
    called: AtomicBool,
    alarm: Alarm,
}

/// Sets a flag if its thread panics.
struct PanicFlag(Arc<AtomicBool>);

impl ForwarderThread {
    /// Starts to forward between `ports` A and B, each of which is a separate set. The link's time
    /// begins now.
    pub(crate) fn start(
        ports: [AfPacket; 2],
        link: EmulatedLink,
        options: ForwarderOptions,
    ) -> Result<Self> {
        let ports_of_link = PortId::SEPARATE_SETS;
        let joined = PlacedLink {
            ports: ports_of_link,
            link,
        };
        Self::start_all(ports.into(), vec![joined], options)
    }

    /// Starts to forward on all links between ports of these sets. The links' time begins now.
    pub(crate) fn start_all(
        sets: Vec<AfPacket>,
        links: Vec<PlacedLink>,
        options: ForwarderOptions,
    ) -> Result<Self> {
        let ring_bytes = sets.iter().map(AfPacket::ring_bytes).sum();
        Self::spawn(sets, ring_bytes, links, options)
    }

    /// Starts a forwarder between ports of any kind, whose rings take `ring_bytes`; see [`ForwarderThread::start_all`].
    pub(super) fn spawn<P: PortSet + Wakes + Send + 'static>(
        sets: Vec<P>,
        ring_bytes: usize,
        joined: Vec<PlacedLink>,
        options: ForwarderOptions,
    ) -> Result<Self> {
        let start = clock::now();
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
        let log = options.packet_log.map(PacketLog::begin).transpose()?;
        let captures = options
            .captures
            .into_iter()
            .map(|of| of.begin(Nanos::ZERO))
            .collect::<Result<Vec<_>>>()?;
        let (taps, captures): (Vec<_>, Vec<_>) = captures.into_iter().unzip();
        let (commands, to_do) = mpsc::channel();
        let (ready, is_ready) = mpsc::channel();
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
                let waiter = Waiter::measure(options.cpu);
                let mut forwarder = Forwarder::new(sets, options.memory);
                let own = ThreadClock::of_this_thread();
                let cpu_clock = move || own.elapsed().map_or(Nanos::ZERO, Nanos::from);
                forwarder.bound_lateness(options.late_limit, Box::new(cpu_clock));
                let logs = iter::once(log).chain(iter::repeat_with(|| None));
                for ((ports, link, rules), log) in links.into_iter().zip(logs) {
                    forwarder.add_link(ports, link, rules, options.late_budget, log);
                }
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
                running.forward(&waker, &to_do)
            })
            .context("cannot start the emulator's thread")?;
        is_ready.recv().context("the emulator ended at its start")?;
        let handle = ForwarderHandle {
            commands,
            wakeup,
            start,
            begins,
            late_budget,
            memory: options.memory,
        };
        Ok(Self {
            thread,
            handle,
            captures,
        })
    }

    /// Returns the handle for other threads.
    pub(crate) fn handle(&self) -> &ForwarderHandle {
        &self.handle
    }

    /// Asks the forwarder to stop, so that several can stop side by side.
    pub(super) fn ask_to_stop(&self) {
        self.handle.send(ForwarderCommand::Stop);
    }

    /// Stops forwarding. Packets on their way are lost. Returns the summary of each link.
    ///
    /// # Errors
    /// Fails if the forwarder has died; the error gives the cause.
    pub(crate) fn stop(self) -> Result<Vec<Summary>> {
        self.ask_to_stop();
        let ended = self.thread.join();
        let mut summaries =
            ended.map_err(|panic| anyhow!("the emulator died: {}", message(&*panic)))?;
        for (summary, capture) in summaries.iter_mut().zip(self.captures) {
            summary.capture = Some(capture.finish());
        }
        Ok(summaries)
    }
}

impl ForwarderHandle {
    /// Puts new conditions into force on a link immediately, for both directions at the same
    /// instant. Returns the state of the link at that instant.
    ///
    /// # Errors
    /// Fails if [`Link::change`] refuses the conditions, which then stay unchanged, or if the
    /// forwarder has ended.
    pub(crate) fn change(
        &self,
        link: usize,
        new: NewConditions,
    ) -> Result<LinkReading, ChangeError> {
        let changed = self.ask(|done| ForwarderCommand::Change { link, new, done })?;
        Ok(changed?)
    }

    /// Copies packets of a link from now on, until the handle is dropped or a limit is reached.
    ///
    /// # Errors
    /// Fails if the forwarder has died or a thread cannot be started.
    pub(crate) fn capture(&self, link: usize, capture: Capture) -> Result<CaptureHandle> {
        // The answer shows that the forwarder is alive. Its time is also after that of every packet
        // which has arrived, so the capture begins after them.
        self.ask(ForwarderCommand::Answer)?;
        let (tap, handle) = capture.begin(clock::now())?;
        self.send(ForwarderCommand::Capture(link, Box::new(tap)));
        Ok(handle)
    }

    /// Measures round trips on a link from now on.
    pub(crate) fn measure_round_trips(&self, link: usize) {
        self.send(ForwarderCommand::MeasureRoundTrips(link));
    }

    /// Returns the current state of a link.
    ///
    /// # Errors
    /// Fails if the forwarder has ended.
    pub(crate) fn read(&self, link: usize) -> Result<LinkReading, ForwarderEnded> {
        self.ask(|done| ForwarderCommand::Read(link, done))
    }

    /// Returns the current queue and the drops of a link.
    ///
    /// # Errors
    /// Fails if the forwarder has ended.
    pub(crate) fn read_queue(&self, link: usize) -> Result<QueueState, ForwarderEnded> {
        self.ask(|done| ForwarderCommand::ReadQueue(link, done))
    }

    /// Returns a number that handles of the same forwarder share, and those of another one do not.
    pub(crate) fn id(&self) -> usize {
        Arc::as_ptr(&self.wakeup).addr()
    }

    /// Returns the time at which the links' time began, on the clock of [`netio::clock::now`].
    pub(crate) fn start(&self) -> Nanos {
        self.start
    }

    /// Returns the time from which the schedules of a link count, on the same clock; [`Nanos::MAX`] while the link waits for its first
    /// packet.
    pub(crate) fn begin(&self, link: usize) -> Nanos {
        let begins = self.begins.get(link);
        begins.map_or(self.start, |begins| Nanos(begins.load(Ordering::Acquire)))
    }

    /// Returns the time beyond which departures are late.
    pub(crate) fn late_budget(&self) -> LateBudget {
        self.late_budget
    }

    /// Returns the limit of bytes of frames that all links together may hold.
    pub(crate) fn held_memory(&self) -> u64 {
        self.memory as u64
    }

    /// Returns the departures from each link up to now, by kind.
    ///
    /// # Errors
    /// Fails if the forwarder has ended.
    pub(crate) fn departures(&self) -> Result<Vec<Vec<FlowDepartures>>, ForwarderEnded> {
        self.ask(ForwarderCommand::Departures)
    }

    /// Uses the interface with this index in place of one that is gone, at this end of a link.
    ///
    /// # Errors
    /// Fails if the new interface has gone too, or if the forwarder has died.
    pub(crate) fn rejoin(&self, link: usize, side: Side, interface: u32) -> Result<()> {
        let done = self.ask(|done| ForwarderCommand::Rejoin {
            link,
            side,
            interface,
            done,
        })?;
        Ok(done?)
    }

    /// Asks whether all these forwarders are alive. The answer arrives when the last of them handles
    /// its commands, and never if one has died.
    pub(crate) fn ask_whether_all_alive<'h>(
        forwarders: impl Iterator<Item = &'h Self>,
    ) -> Receiver<()> {
        let (answer, answered) = mpsc::channel();
        let all: Vec<_> = forwarders.collect();
        let missing = Arc::new(AtomicUsize::new(all.len()));
        for forwarder in all {
            let missing = Arc::clone(&missing);
            forwarder.send(ForwarderCommand::AnswerWithAll(missing, answer.clone()));
        }
        answered
    }

    fn ask<T>(
        &self,
        command: impl FnOnce(Sender<T>) -> ForwarderCommand,
    ) -> Result<T, ForwarderEnded> {
        let (answer, answered) = mpsc::channel();
        self.send(command(answer));
        answered.recv().map_err(|_| ForwarderEnded)
    }

    fn send(&self, command: ForwarderCommand) {
        // A forwarder that has died takes no commands; a caller that waits for an answer notices
        // that.
        let _ = self.commands.send(command);
        self.wakeup.ring();
    }
}

/// A forwarder and the way in which it waits.
struct ForwarderLoop<P: PortSet> {
    forwarder: Forwarder<P>,
    waiter: Waiter,
    cpu: CpuUse,
    memory: usize,
    ring_bytes: usize,
}

impl<P: PortSet + Wakes> ForwarderLoop<P> {
    /// Forwards until it is told to stop. Returns the summary of each link.
    fn forward(&mut self, wakeup: &Wakeup, commands: &Receiver<ForwarderCommand>) -> Vec<Summary> {
        let lead = match self.cpu {
            CpuUse::Spin => LEAD,
            CpuUse::Gentle => Nanos::ZERO,
        };
        loop {
            let now = self.waiter.now();
            if wakeup.was_called() && self.handle_commands(now, commands) {
                return (0..self.forwarder.links())
                    .map(|link| self.end(link))
                    .collect();
            }
            match self.forwarder.step(now, lead) {
                NextStep::Now => {}
                NextStep::At(at) => {
                    self.wait(wakeup, now, Some(Nanos(at.0.saturating_sub(lead.0))))
                }
                NextStep::Arrival => self.wait(wakeup, now, None),
            }
        }
    }

    /// Waits until `until`, until an arrival that cannot wait that long, or until a wakeup; under
    /// high load, until the next turn.
    fn wait(&mut self, wakeup: &Wakeup, now: Nanos, until: Option<Nanos>) {
        match self.forwarder.pace(now) {
            Pace::Exact => {}
            Pace::Turn(turn) => return self.waiter.coarse_sleep(turn),
            Pace::TurnOrDue(turn) => match until.filter(|until| *until < turn) {
                None => return self.waiter.coarse_sleep(turn),
                Some(until) => return self.wait_exactly(wakeup, now, until),
            },
        }
        if self.waiter.sleeps(now, until) {
            let alarm = iter::once(wakeup.alarm.as_fd());
            if until.is_some_and(|until| self.forwarder.can_wait(now, until)) {
                return self.waiter.sleep(alarm, now, until);
            }
            self.forwarder.prepare_to_sleep();
            let ports = self.forwarder.sets().iter().flat_map(Wakes::fds);
            self.waiter.sleep(ports.chain(alarm), now, until);
        } else if let Some(until) = until {
            let stall = self.waiter.spin(until, || self.forwarder.has_arrivals());
            if let Some(stall) = stall {
                self.forwarder.stalled(stall);
            }
        }
    }

    /// Waits until `until` or a wakeup, regardless of arrivals.
    fn wait_exactly(&mut self, wakeup: &Wakeup, now: Nanos, until: Nanos) {
        if self.waiter.sleeps(now, Some(until)) {
            let alarm = iter::once(wakeup.alarm.as_fd());
            return self.waiter.sleep(alarm, now, Some(until));
        }
        if let Some(stall) = self.waiter.spin(until, || false) {
            self.forwarder.stalled(stall);
        }
    }

    /// Handles the pending commands. Returns true if one of them was to stop.
    #[cold]
    fn handle_commands(&mut self, now: Nanos, commands: &Receiver<ForwarderCommand>) -> bool {
        for command in commands.try_iter() {
            // A caller that has gone meanwhile needs no answer.
            match command {
                ForwarderCommand::Change { link, new, done } => {
                    let changed = self.forwarder.change(link, now, new);
                    let _ = done.send(changed.map(|at| self.read(link, at)));
                }
                ForwarderCommand::Capture(link, tap) => self.forwarder.capture(link, *tap),
                ForwarderCommand::MeasureRoundTrips(link) => {
                    self.forwarder.measure_round_trips(link)
                }
                ForwarderCommand::Read(link, done) => {
                    let _ = done.send(self.read(link, now));
                }
                ForwarderCommand::ReadQueue(link, done) => {
                    let _ = done.send(self.forwarder.queue_state(link, now));
                }
                ForwarderCommand::Departures(done) => {
                    let links = 0..self.forwarder.links();
                    let left = links.map(|link| self.forwarder.departures(link));
                    let _ = done.send(left.collect());
                }
                ForwarderCommand::Rejoin {
                    link,
                    side,
                    interface,
                    done,
                } => {
                    let _ = done.send(self.forwarder.rejoin(link, side, interface));
                }
                ForwarderCommand::Answer(done) => drop(done.send(())),
                ForwarderCommand::AnswerWithAll(missing, done) => {
                    if missing.fetch_sub(1, Ordering::AcqRel) == 1 {
                        let _ = done.send(());
                    }
                }
                ForwarderCommand::Stop => return true,
            }
        }
        false
    }

    /// Ends a link and returns its summary.
    fn end(&mut self, link: usize) -> Summary {
        let packet_log = self.forwarder.finish(link);
        Summary {
            packet_log,
            ..self.summary(link)
        }
    }

    fn read(&mut self, link: usize, at: Nanos) -> LinkReading {
        LinkReading {
            at,
            summary: self.summary(link),
            lateness: self.forwarder.stats(link).lateness(),
            round_trips: self.forwarder.round_trips(link),
            backlogs: self.forwarder.backlogs(link, at),
            held_bytes: self.forwarder.held_bytes(),
        }
    }

    fn summary(&mut self, link: usize) -> Summary {
        let rules = self.forwarder.rules(link).clone();
        let stats = self.forwarder.stats(link);
        summary(stats, &self.waiter, self.memory, self.ring_bytes, &rules)
    }
}

impl Wakeup {
    fn ring(&self) {
        self.called.store(true, Ordering::Release);
        self.alarm.ring();
    }

    /// Returns true if there was a wakeup since the last call.
    fn was_called(&self) -> bool {
        self.called.load(Ordering::Relaxed) && {
            // The alarm is reset first, so that a command sent from here on causes another wakeup.
            self.alarm.acknowledge();
            self.called.swap(false, Ordering::AcqRel)
        }
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
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use conditions::Rules;
    use model::{
        BitsPerSec, CheckedPaths, Delay, Effect, Framing, PathSpec, QueueLimit, Rate, StageSpec,
    };
    use netio::bed::{Bed, BedConfig, CLIENT_PORT, SERVER, SERVER_PORT};
    use netio::userns::Privilege;
    use record::summary::CaptureSummary;

    use super::super::capture::CaptureSpec;
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
        ForwarderThread::spawn(ports.into(), 5, vec![joined], options).unwrap()
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
        assert!(parts.iter().all(|part| part.cpus == [3]));
        let halves = ForwarderOptions::default().divide(&[0..9, 9..18]);
        assert_eq!(halves[0].memory, HELD_MEMORY / 2);
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
        let forwarder = ForwarderThread::start(ports.unwrap(), link, options).unwrap();
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
