//! STAMP's stateful session reflector (RFC 8762 section 4.3, RFC 8972).

mod held;
mod sessions;

use crate::error::{Error, Result};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use model::Nanos;
use netio::clock::{self, WallClock};
use netio::{Arrival, SendReport, TimestampedUdp};

use self::held::{HeldRequest, HeldRequests};
use self::sessions::{ClockReading, EndedSession, SessionKey, Sessions};
use crate::endpoint::{self, Local};
use crate::measured::total;
use crate::service::{BoundService, Shared, TestTime, await_input};
use crate::stamp::wire::{self, ErrorEstimate};
use record::{Direction, Measurement, Metric};

/// The name of the test that users know.
const TEST: &str = "probe";

/// The port of a reflector that may not use STAMP's own port.
pub(crate) const UNPRIVILEGED_PORT: u16 = 8620;
/// The largest possible UDP packet in bytes.
const LONGEST: usize = 65_535;
/// The most answers whose departure the kernel has not reported yet, which it does within microseconds.
const MOST_DEPARTING: usize = 1024;
/// The least time between two readings of why the socket dropped packets, since anybody can send wrong checksums
/// without end.
const DROPS_CHECK_INTERVAL: Nanos = Nanos(1_000_000);
/// The interval of the search for silent sessions, and of reading the error of the kernel's clock.
const MAINTENANCE_INTERVAL: Nanos = Nanos(1_000_000_000);

/// Binds the service to `port` of `bind`, or to 8620 instead of 862 if that requires a privilege.
///
/// # Errors
/// Returns an error if the port cannot be bound, or the kernel does not stamp packets.
pub(crate) fn bind(bind: Option<&Local>, port: u16, shared: Arc<Shared>) -> Result<BoundService> {
    let not_allowed = |error: &Error| {
        let system = error.system();
        port == wire::PORT && system.is_some_and(|io| io.kind() == io::ErrorKind::PermissionDenied)
    };
    let socket = match endpoint::listen_udp(bind, port) {
        Err(error) if not_allowed(&error) => endpoint::listen_udp(bind, UNPRIVILEGED_PORT),
        other => other,
    }?;
    let socket = TimestampedUdp::new(socket)?;
    let address = socket.local_addr()?;
    let limits = shared.limits();
    let mut reflector = Reflector {
        socket,
        sessions: Sessions::new(&limits, address.port()),
        held: HeldRequests::new(),
        departing: VecDeque::new(),
        error: ErrorEstimate::of(WallClock::now()),
        maintained: clock::now(),
        dropped: 0,
        drops_checked: Nanos::ZERO,
        shared,
    };
    Ok(BoundService::new("stamp", address, move || {
        reflector.serve()
    }))
}

struct Reflector {
    socket: TimestampedUdp,
    sessions: Sessions,
    /// The requests of trains whose last probe is to come.
    held: HeldRequests,
    /// The kernel's identifiers of answers whose departure is not known yet.
    departing: VecDeque<(u32, SessionKey, u32)>,
    error: ErrorEstimate,
    maintained: Nanos,
    /// The requests that the socket dropped for any reason.
    dropped: u32,
    /// The time when the causes of drops were last read.
    drops_checked: Nanos,
    shared: Arc<Shared>,
}

impl Reflector {
    fn serve(&mut self) {
        // A delay in this thread becomes part of the senders' rtt, although not of the network's part.
        netio::ask_for_short_slices();
        let mut buffer = vec![0; LONGEST];
        while !self.shared.stopping() {
            // The wait of poll(2) is cut to whole milliseconds.
            let held = self.held.wait(clock::now()) + Nanos::from_millis(1);
            let longest = MAINTENANCE_INTERVAL.min(held);
            await_input(&self.socket, &self.shared, Some(longest.into()));
            self.read_departures();
            // An error concerns an earlier answer whose receiver is gone, and can be ignored.
            while let Ok(Some(arrival)) = self.socket.receive(&mut buffer) {
                self.receive(&mut buffer, &arrival);
                if self.shared.stopping() {
                    break;
                }
            }
            let overdue = self.held.overdue(clock::now());
            self.answer_held(overdue);
            self.maintain();
        }
        let rest = self.held.overdue(Nanos::MAX);
        self.answer_held(rest);
        let ended = self.sessions.end();
        self.report(clock::now(), &ended);
    }

    /// Processes the request at the start of `buffer`: answers it, or lets it wait for the last probe of its train.
    fn receive(&mut self, buffer: &mut [u8], arrival: &Arrival) {
        if !self.shared.check_allowed("stamp", arrival.source) {
            return;
        }
        self.update_drops(arrival.dropped);
        let request = &buffer[..arrival.length];
        let order = self.held.receive(request, arrival, clock::now());
        self.answer_held(order.earlier);
        if !order.waits {
            self.answer(buffer, arrival);
        }
    }

    /// Answers requests that have waited, back to back.
    fn answer_held(&mut self, requests: Vec<HeldRequest>) {
        for mut request in requests {
            self.answer(&mut request.packet, &request.arrival);
        }
    }

    /// Answers the request at the start of `buffer`.
    fn answer(&mut self, buffer: &mut [u8], arrival: &Arrival) {
        let wall = clock::wall();
        let clock = ClockReading {
            now: clock::now(),
            wall,
            error: self.error,
        };
        let Some(reply) = self.sessions.reflect(buffer, arrival, clock) else {
            return;
        };
        let answer = &buffer[..reply.length];
        match self.socket.reply(answer, arrival, reply.tos) {
            Ok(id) => {
                if self.departing.len() >= MOST_DEPARTING {
                    self.departing.pop_front();
                }
                self.departing.push_back((id, reply.key, reply.sequence));
            }
            // The kernel's identifiers start again. The sender sees a loss on the way back.
            Err(_) => self.departing.clear(),
        }
        // The session's next answer states this departure. The check for emptiness saves a system call per answer.
        while !self.departing.is_empty() && self.read_departure() {}
    }

    /// Reads why the socket dropped requests, if it dropped more of them.
    fn update_drops(&mut self, dropped: u32) {
        if dropped <= self.dropped {
            return;
        }
        let now = clock::now();
        if now >= self.drops_checked + DROPS_CHECK_INTERVAL {
            (self.dropped, self.drops_checked) = (dropped, now);
            let full = self.socket.full_drops(dropped).most;
            self.sessions.overflowed = u32::try_from(full).unwrap_or(u32::MAX);
        }
    }

    /// Asks the kernel when answers left. They leave in the order of sending.
    fn read_departures(&mut self) {
        while self.read_departure() {}
    }

    /// Processes one report of the kernel, and returns whether there was one.
    fn read_departure(&mut self) -> bool {
        let Ok(Some(report)) = self.socket.report() else {
            return false;
        };
        if let SendReport::Departed { id, at } = report
            && let Some(place) = self.departing.iter().position(|(of, ..)| *of == id)
            && let Some((_, key, sequence)) = self.departing.drain(..=place).next_back()
        {
            self.sessions.departed(key, sequence, at);
        }
        true
    }

    fn maintain(&mut self) {
        let now = clock::now();
        if now < self.maintained + MAINTENANCE_INTERVAL {
            return;
        }
        self.maintained = now;
        self.error = ErrorEstimate::of(WallClock::now());
        let ended = self.sessions.expire(now);
        self.report(now, &ended);
    }

    /// States the sessions to people who watch, and logs those that have ended.
    fn report(&self, now: Nanos, ended: &[EndedSession]) {
        let rows = self.sessions.rows(now);
        for row in &rows {
            self.shared.prepare_name(row.peer);
        }
        let traffic: Vec<_> = ended.iter().map(|ended| ended.traffic).collect();
        self.shared.running().set_sessions(rows, &traffic);
        for ended in ended {
            self.log(now, ended);
        }
    }

    fn log(&self, now: Nanos, ended: &EndedSession) {
        let figures = vec![
            total(Metric::SentPackets, ended.sent).toward(Direction::Up),
            total(Metric::ReceivedPackets, ended.received.into()).toward(Direction::Up),
        ];
        let measurement = Measurement {
            figures,
            ..Measurement::default()
        }
        .with_fact("ssid", ended.key.ssid);
        let time = TestTime {
            lasted: ended.lasted,
            ended_ago: Duration::from_nanos(now.0.saturating_sub(ended.last.0)),
        };
        self.shared.log(TEST, ended.key.source, time, &measurement);
    }
}
