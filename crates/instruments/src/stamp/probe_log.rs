//! A sender's record of each probe. All functions are pure.

use std::collections::HashMap;
use std::time::Duration;

use model::Nanos;

use netio::FullDrops;

use super::kernel::KernelIdentity;
use super::tlv::{self, FollowUp, SameClock, TlvKind};
use super::wire::{ErrorEstimate, ProbeReply, ProbeRequest, SHORTEST_ANSWER, ntp};
use crate::echo_stats::max_answers;
use crate::round_trip::LossTimeout;

/// All probes and answers of a session in the order of their events.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProbeLog {
    /// The probes in the order of sending.
    pub(crate) probes: Vec<Probe>,
    /// The answers in the order of arrival.
    pub(crate) answers: Vec<ProbeAnswer>,
    /// The departure times of answers in the reflector's kernel, by the reflector's number of the answer.
    pub(crate) follow_ups: HashMap<u32, Nanos>,
    /// Facts about the reflector.
    pub(crate) far_end: ReflectorFacts,
    /// Packets from the far end that do not answer a probe of this session.
    pub(crate) garbage: u64,
    /// Answers for which this host's socket had no room.
    pub(crate) overflowed: FullDrops,
    /// The last ICMP error, except "port unreachable".
    pub(crate) unreachable: Option<String>,
    ssid: u16,
    /// The response that a reflector on this kernel gives to the challenge.
    expected: Option<u64>,
    /// The proof to the reflector that this sender is on its kernel, or 0 if the kernel's boot id is unknown.
    proof: u64,
    timeout: LossTimeout,
    answered: usize,
}

/// A probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    /// Time before sending, on the monotonic clock of this program.
    pub(crate) sent: Nanos,
    /// `CLOCK_REALTIME` at the same moment.
    pub(crate) wall: Nanos,
    /// `CLOCK_REALTIME` when the kernel passed the probe to the driver.
    pub(crate) departed: Option<Nanos>,
    /// The index of the first answer in [`ProbeLog::answers`].
    pub(crate) answer: Option<usize>,
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProbeAnswer {
    /// The number of the answered probe, from 0.
    pub(crate) probe: usize,
    /// The reflector's number of the answer.
    pub(crate) number: u32,
    /// The number of probes that the reflector had received before this one, by its counter (Direct Measurement).
    pub(crate) counted: Option<u32>,
    /// Time after receiving, on the monotonic clock of this program.
    pub(crate) read: Nanos,
    /// `CLOCK_REALTIME` when this machine's kernel received the answer.
    pub(crate) arrived: Option<Nanos>,
    /// Arrival time of the probe at the reflector, by its clock.
    pub(crate) far_received: Option<Nanos>,
    /// Time when the reflector's program sent the answer, by its clock.
    pub(crate) far_sent: Option<Nanos>,
    /// TTL or hop limit of the probe on arrival at the reflector.
    pub(crate) ttl: u8,
    /// Whether the probe had an answer already.
    pub(crate) duplicate: bool,
    /// Whether the answer arrived after the time-out.
    pub(crate) late: bool,
}

/// Facts about the reflector.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ReflectorFacts {
    /// Whether it answered farwire's own extension.
    pub(crate) is_farwire: bool,
    /// Whether it runs on the same kernel, so that both ends read the same clock.
    pub(crate) same_kernel: bool,
    /// Whether it numbers its answers itself, which means that at least one number differed from its probe's.
    pub(crate) numbers: bool,
    /// Whether it reported the departure of at least one answer.
    pub(crate) follows_up: bool,
    /// Whether it understands trains, which means that it answers the probes of a train together.
    pub(crate) knows_trains: bool,
    /// The bytes of an answer that is shorter than RFC 5357 allows.
    pub(crate) truncated: Option<usize>,
    /// The error of its clock that the latest answer states.
    pub(crate) error: Option<ErrorEstimate>,
    /// The number of requests of all senders for which its socket had no room, at its first and at its latest answer.
    pub(crate) overflowed: Option<(u32, u32)>,
}

/// The arrival times of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerTimes {
    /// Time on the monotonic clock of this program.
    pub(crate) read: Nanos,
    /// `CLOCK_REALTIME` in the timestamp of this machine's kernel.
    pub(crate) kernel: Option<Nanos>,
}

impl ProbeLog {
    /// Returns the empty log of a session whose answers are late after `timeout`.
    pub(crate) fn new(ssid: u16, challenge: u64, timeout: impl Into<LossTimeout>) -> Self {
        let kernel = KernelIdentity::current();
        Self {
            ssid,
            expected: kernel.map(|kernel| kernel.response(challenge)),
            proof: kernel.map_or(0, |kernel| kernel.proof(challenge)),
            timeout: timeout.into(),
            ..Self::default()
        }
    }

    /// Returns the time after which an answer is late.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout.time()
    }

    /// Returns until when answers are awaited if there is no further probe, on the monotonic clock.
    pub(crate) fn deadline(&self) -> Nanos {
        let left =
            |probe: Option<&Probe>| Duration::from(probe.map_or(Nanos::ZERO, |probe| probe.sent));
        let (first, last) = (self.probes.first(), self.probes.last());
        self.timeout.deadline(left(first), left(last)).into()
    }

    /// Returns the proof to a reflector on this kernel that this sender is on the same kernel.
    pub(crate) fn proof(&self) -> u64 {
        self.proof
    }

    /// Records a probe that is sent now, and returns its packet without extensions.
    pub(crate) fn send(&mut self, sent: Nanos, wall: Nanos, error: ErrorEstimate) -> ProbeRequest {
        let sequence = u32::try_from(self.probes.len()).unwrap_or(u32::MAX);
        self.probes.push(Probe {
            sent,
            wall,
            departed: None,
            answer: None,
        });
        ProbeRequest {
            sequence,
            sent: ntp(wall),
            error,
            ssid: self.ssid,
        }
    }

    /// Records the kernel's report of when probe `index` (from 0) left.
    pub(crate) fn departed(&mut self, index: usize, at: Nanos) {
        if let Some(probe) = self.probes.get_mut(index) {
            // A departure before the sending belongs to another packet, or the clock was set back.
            probe.departed = (at >= probe.wall).then_some(at);
        }
    }

    /// Records a packet from the far end.
    pub(crate) fn receive(&mut self, packet: &mut [u8], arrived: AnswerTimes) {
        let Some(answer) = ProbeReply::parse(packet).filter(|answer| self.is_ours(answer)) else {
            self.garbage += 1;
            return;
        };
        let Ok(probe) = usize::try_from(answer.request.sequence) else {
            return;
        };
        let Probe {
            sent, wall: near, ..
        } = self.probes[probe];
        let duplicate = self.probes[probe].answer.is_some();
        let round_trip = Duration::from(arrived.read - sent);
        self.timeout.add(round_trip);
        let time = |stamp| answer.error.time(stamp, near);
        let received = ProbeAnswer {
            probe,
            counted: self.read_extensions(packet, &answer, near),
            number: answer.sequence,
            read: arrived.read,
            arrived: arrived.kernel,
            far_received: time(answer.received),
            far_sent: time(answer.sent),
            ttl: answer.ttl,
            duplicate,
            late: round_trip > self.timeout.time(),
        };
        self.far_end.error = Some(answer.error);
        if packet.len() < SHORTEST_ANSWER {
            self.far_end.truncated = Some(packet.len());
        }
        self.far_end.numbers |= answer.sequence != answer.request.sequence;
        if !duplicate {
            self.probes[probe].answer = Some(self.answers.len());
            self.answered += 1;
        }
        self.answers.push(received);
    }

    /// Returns whether every probe has an answer.
    pub(crate) fn complete(&self) -> bool {
        self.answered == self.probes.len()
    }

    /// Returns the number of probes that have an answer.
    pub(crate) fn answered(&self) -> usize {
        self.answered
    }

    /// Returns whether more packets arrived than a network can make of the answers.
    pub(crate) fn flooded(&self) -> bool {
        let most = max_answers(self.probes.len());
        self.answers.len() > most || self.garbage > most as u64
    }

    /// Returns the first answer to probe `index`, if it arrived in time.
    pub(crate) fn answer(&self, index: usize) -> Option<&ProbeAnswer> {
        let answer = self.answers.get(self.probes.get(index)?.answer?)?;
        (!answer.late).then_some(answer)
    }

    /// Returns when the answer left the reflector's kernel. `None` means that the reflector did not report it, or
    /// reported an impossible time.
    pub(crate) fn far_departed(&self, answer: &ProbeAnswer) -> Option<Nanos> {
        let departed = self.follow_ups.get(&answer.number)?;
        (*departed >= answer.far_sent?).then_some(*departed)
    }

    /// Returns whether the answer contains a number together with the time that was sent with it, which requires having
    /// seen the probe.
    fn is_ours(&self, answer: &ProbeReply) -> bool {
        let ProbeRequest { sequence, sent, .. } = answer.request;
        let index = usize::try_from(sequence).unwrap_or(usize::MAX);
        let probe = self.probes.get(index);
        let known = probe.is_some_and(|probe| ntp(probe.wall) == sent);
        // A reflector that does not know sessions sends zero.
        known && (answer.ssid == self.ssid || answer.ssid == 0)
    }

    /// Reads the extensions, and returns the number of probes that arrived before this one by the reflector's counter.
    fn read_extensions(
        &mut self,
        packet: &mut [u8],
        answer: &ProbeReply,
        near: Nanos,
    ) -> Option<u32> {
        let (far_end, follow_ups) = (&mut self.far_end, &mut self.follow_ups);
        let mut counted = None;
        tlv::read(packet, |kind, value| match kind {
            TlvKind::FollowUpTelemetry => {
                if let Some(follow_up) = FollowUp::parse(value)
                    && let Some(departed) = answer.error.time(follow_up.departed, near)
                {
                    follow_ups.entry(follow_up.sequence).or_insert(departed);
                    far_end.follows_up = true;
                }
            }
            TlvKind::DirectMeasurement => {
                let received = value[4..8].try_into().map(u32::from_be_bytes);
                counted = received.ok().and_then(|count| count.checked_sub(1));
            }
            TlvKind::SameClock => {
                if let Some(same_clock) = SameClock::parse(value) {
                    let (first, _) = far_end.overflowed.unwrap_or((same_clock.overflowed, 0));
                    far_end.is_farwire = true;
                    far_end.overflowed = Some((first, same_clock.overflowed));
                    far_end.same_kernel = self.expected == Some(same_clock.response);
                }
            }
            TlvKind::Train => far_end.knows_trains = true,
            TlvKind::ExtraPadding | TlvKind::ClassOfService => {}
        });
        counted
    }
}
