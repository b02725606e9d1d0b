//! What a sender records of each probe; pure.

use std::collections::HashMap;
use std::time::Duration;

use model::Nanos;

use netio::FullDrops;

use super::kernel::Kernel;
use super::tlv::{self, FollowUp, SameClock, TlvKind};
use super::wire::{ErrorEstimate, ProbeReply, ProbeRequest, ntp};
use crate::echo_stats::most_answers;

/// Everything that was sent and everything that came back, in the order in which it happened.
#[derive(Clone, Debug, Default)]
pub(crate) struct ProbeLog {
    /// In the order of sending.
    pub(crate) probes: Vec<Probe>,
    /// In the order of arrival.
    pub(crate) answers: Vec<ProbeAnswer>,
    /// By the reflector's number of an answer: when it left, by the reflector's kernel.
    pub(crate) follow_ups: HashMap<u32, Nanos>,
    /// What is known of the reflector.
    pub(crate) far_end: ReflectorFacts,
    /// Packets from the far end that are no answers to this session's probes.
    pub(crate) garbage: u64,
    /// Answers that this host's own socket had no room for.
    pub(crate) overflowed: FullDrops,
    /// What ICMP said last, but for "port unreachable".
    pub(crate) unreachable: Option<String>,
    ssid: u16,
    /// What a reflector on this kernel says to the challenge.
    expected: Option<u64>,
    /// What shows the reflector that it may say so; 0 where this kernel does not tell its boot id.
    proof: u64,
    timeout: Nanos,
    answered: usize,
}

/// One probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    /// Monotonic, as the program read it before it sent.
    pub(crate) sent: Nanos,
    /// `CLOCK_REALTIME` at the same moment.
    pub(crate) wall: Nanos,
    /// `CLOCK_REALTIME` when the kernel's driver got it.
    pub(crate) departed: Option<Nanos>,
    /// Where among the answers its first one is.
    pub(crate) answer: Option<usize>,
}

/// One answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProbeAnswer {
    /// Which probe it answers, from 0.
    pub(crate) probe: usize,
    /// The reflector's own number of it.
    pub(crate) number: u32,
    /// How many probes the reflector had received before this one, by its counter (Direct Measurement).
    pub(crate) counted: Option<u32>,
    /// Monotonic, as this program read it.
    pub(crate) read: Nanos,
    /// `CLOCK_REALTIME` when this machine's kernel got it.
    pub(crate) arrived: Option<Nanos>,
    /// When the probe came to the reflector, by its clock.
    pub(crate) far_received: Option<Nanos>,
    /// When the reflector's program sent the answer, by its clock.
    pub(crate) far_sent: Option<Nanos>,
    /// TTL or hop limit with which the probe arrived.
    pub(crate) ttl: u8,
    /// It is the probe's second or further one.
    pub(crate) duplicate: bool,
    /// It came after the time-out.
    pub(crate) late: bool,
}

/// What is known of the reflector.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct ReflectorFacts {
    /// It answered to farwire's own extension.
    pub(crate) is_farwire: bool,
    /// It runs on the same kernel, so that both ends read one clock.
    pub(crate) same_kernel: bool,
    /// It numbers its answers itself: at least one number was not its probe's.
    pub(crate) numbers: bool,
    /// It said when at least one answer left.
    pub(crate) follows_up: bool,
    /// How good it says its clock is; of the latest answer.
    pub(crate) error: Option<ErrorEstimate>,
    /// Requests of any sender that its socket had no room for, at its first and at its latest answer.
    pub(crate) overflowed: Option<(u32, u32)>,
}

/// How an answer came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerTimes {
    /// Monotonic, as this program read it.
    pub(crate) read: Nanos,
    /// `CLOCK_REALTIME`, as this machine's kernel stamped it.
    pub(crate) kernel: Option<Nanos>,
}

impl ProbeLog {
    /// Of a session whose answers are late after `timeout`.
    pub(crate) fn new(ssid: u16, challenge: u64, timeout: Duration) -> Self {
        let kernel = Kernel::here();
        Self {
            ssid,
            expected: kernel.map(|kernel| kernel.response(challenge)),
            proof: kernel.map_or(0, |kernel| kernel.proof(challenge)),
            timeout: timeout.into(),
            ..Self::default()
        }
    }

    /// What shows a reflector on this kernel that this sender is on it too.
    pub(crate) fn proof(&self) -> u64 {
        self.proof
    }

    /// Records a probe that is sent now, and gives what is to be sent, without extensions.
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

    /// The kernel says when probe `index` (from 0) left.
    pub(crate) fn departed(&mut self, index: usize, at: Nanos) {
        if let Some(probe) = self.probes.get_mut(index) {
            // What left before it was sent is another packet, or the clock was set back.
            probe.departed = (at >= probe.wall).then_some(at);
        }
    }

    /// Records a packet that came from the far end.
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
        let time = |stamp| answer.error.time(stamp, near);
        let received = ProbeAnswer {
            probe,
            counted: self.learn(packet, &answer, near),
            number: answer.sequence,
            read: arrived.read,
            arrived: arrived.kernel,
            far_received: time(answer.received),
            far_sent: time(answer.sent),
            ttl: answer.ttl,
            duplicate,
            late: arrived.read > sent + self.timeout,
        };
        self.far_end.error = Some(answer.error);
        self.far_end.numbers |= answer.sequence != answer.request.sequence;
        if !duplicate {
            self.probes[probe].answer = Some(self.answers.len());
            self.answered += 1;
        }
        self.answers.push(received);
    }

    /// Whether every probe has an answer.
    pub(crate) fn complete(&self) -> bool {
        self.answered == self.probes.len()
    }

    /// How many probes have an answer.
    pub(crate) fn answered(&self) -> usize {
        self.answered
    }

    /// Whether the far end sends more than any network makes of answers.
    pub(crate) fn flooded(&self) -> bool {
        let most = most_answers(self.probes.len());
        self.answers.len() > most || self.garbage > most as u64
    }

    /// The answer to probe `index` that came first, if it came in time.
    pub(crate) fn answer(&self, index: usize) -> Option<&ProbeAnswer> {
        let answer = self.answers.get(self.probes.get(index)?.answer?)?;
        (!answer.late).then_some(answer)
    }

    /// When the answer left, by the reflector's kernel; nothing where it did not say, or said what cannot be.
    pub(crate) fn far_departed(&self, answer: &ProbeAnswer) -> Option<Nanos> {
        let departed = self.follow_ups.get(&answer.number)?;
        (*departed >= answer.far_sent?).then_some(*departed)
    }

    /// A number that was sent, with the time that was sent with it: nobody who did not see the probe has both.
    fn is_ours(&self, answer: &ProbeReply) -> bool {
        let ProbeRequest { sequence, sent, .. } = answer.request;
        let index = usize::try_from(sequence).unwrap_or(usize::MAX);
        let probe = self.probes.get(index);
        let known = probe.is_some_and(|probe| ntp(probe.wall) == sent);
        // A reflector that knows of no sessions has a zero there.
        known && (answer.ssid == self.ssid || answer.ssid == 0)
    }

    /// Takes what the extensions say, and gives the number of probes that came before this one by the reflector's counter.
    fn learn(&mut self, packet: &mut [u8], answer: &ProbeReply, near: Nanos) -> Option<u32> {
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
                if let Some(said) = SameClock::parse(value) {
                    let (first, _) = far_end.overflowed.unwrap_or((said.overflowed, 0));
                    far_end.is_farwire = true;
                    far_end.overflowed = Some((first, said.overflowed));
                    far_end.same_kernel = self.expected == Some(said.response);
                }
            }
            TlvKind::ExtraPadding | TlvKind::ClassOfService => {}
        });
        counted
    }
}
