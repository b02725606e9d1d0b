//! A running test without sockets and clocks. It takes datagrams and times, and returns what to send and the time of
//! the next call.
//!
//! One end sends load, and the other returns feedback on it. Either end can be the server, which decides the rate and
//! the end of the test, and limits what it sends to an address that is not proven (see [`proof`](super::proof)).

use std::time::Duration;

use model::Nanos;

use super::outcome::{
    SILENCE, TestAgreement, TestEnd, TestOutcome, TrialInterval, WholeSubInterval,
};
use super::pacer::{Pacer, Train};
use super::proof::{AddressProof, UnprovenBudget};
use super::receiver::{ArrivalTime, Receiver};
use super::search::RateControl;
use super::wire::{
    Activation, FeedbackMessage, LOAD_HEADER, LoadHeader, NO_DELAY, SendingRate, TestAction,
};
use crate::round_trip::several;
use crate::service::{DirectionTraffic, PacketLoss, TestTraffic};

/// The server adds this time to the requested duration, so that the last sub-interval is fed back too.
const STOP_AFTER: Duration = Duration::from_millis(500);
/// The factor above the agreed number of feedback messages beyond which a peer's feedback is not kept.
const TOLERATED: u64 = 4;
/// The time without feedback after which the sender pauses the load until feedback returns. A client reports a silence
/// of this length.
pub(super) const PAUSE: Nanos = Nanos(1_000_000_000);
/// The time of the first feedback if trial intervals are longer, because the server's proof waits for it.
const FIRST_FEEDBACK: Nanos = Nanos(50_000_000);

/// Something to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Transmit {
    /// A complete message.
    Message(Vec<u8>),
    /// The complete first load PDU. The load begins with number 2.
    Probe([u8; LOAD_HEADER]),
    /// Load PDUs, whose numbers and sending times are set when they leave.
    Load(Train, LoadHeader),
}

/// One end of a running test.
#[derive(Debug)]
pub(crate) struct TestSession {
    common: CommonState,
    role: Role,
}

#[derive(Debug)]
enum Role {
    Sender(Box<LoadSender>),
    Receiver(Box<LoadReceiver>),
}

/// The state that both roles have.
#[derive(Debug)]
struct CommonState {
    agreed: TestAgreement,
    /// The control that decides the rate. At a client it only traces the server's decisions.
    control: RateControl,
    /// The server's answer to the activation, which is empty at a client.
    answer: Vec<u8>,
    /// The answer is to be sent, because the activation arrived for the first time or again.
    answer_is_due: bool,
    /// The bytes that a server may still send, or `None` once the address is proven.
    budget: Option<UnprovenBudget>,
    began: Nanos,
    last_message: Nanos,
    /// Load and feedback flow in both directions. Before that, a round trip passes without a message.
    flowing: bool,
    /// Nothing arrived for [`PAUSE`].
    silent: bool,
    /// The stop was sent or received.
    stopping: bool,
    /// The end of the test, if a message ended it.
    ended: Option<TestEnd>,
    sub_intervals_seen: u32,
    /// The outcome so far.
    outcome: TestOutcome,
}

/// The end that sends load on schedule, at the rate that follows from the last feedback.
#[derive(Debug)]
struct LoadSender {
    /// The proof, at a server until the client has proven its address.
    proof: Option<AddressProof>,
    pacer: Pacer,
    header: LoadHeader,
    feedback_sequence: u32,
    feedback_at: Nanos,
    /// The losses of the load and the latest round-trip time, according to the feedback.
    loss: PacketLoss,
    rtt_ms: Option<u32>,
    /// The peer reported that the test is over.
    peer_stopped: bool,
}

/// The end that receives load, counts it, and returns feedback on each trial interval.
#[derive(Debug)]
struct LoadReceiver {
    receiver: Receiver,
    each: Nanos,
    trial_ends: Nanos,
    began_to_feed_back: bool,
}

impl TestSession {
    /// Returns the client's end of an agreement made at `now`. If it sends, it begins with `rate`.
    pub(crate) fn client(
        agreed: TestAgreement,
        control: RateControl,
        rate: &SendingRate,
        now: ArrivalTime,
    ) -> Self {
        let mut role = Role::of(&agreed, None, now.mono);
        if let Role::Sender(sender) = &mut role {
            sender.pacer.set(rate, now.mono);
        }
        let common = CommonState::new(agreed, control, now.mono);
        Self { common, role }
    }

    /// Returns the server's end, which begins with `answer` to the activation, within `budget`. `draw` is a number that
    /// nobody can predict.
    pub(crate) fn server(
        agreed: TestAgreement,
        control: RateControl,
        answer: Vec<u8>,
        budget: UnprovenBudget,
        draw: u64,
        now: ArrivalTime,
    ) -> Self {
        let proof = AddressProof::new(now, draw);
        Self {
            role: Role::of(&agreed, Some(proof), now.mono),
            common: CommonState {
                answer,
                answer_is_due: true,
                budget: Some(budget),
                ..CommonState::new(agreed, control, now.mono)
            },
        }
    }

    /// Processes a datagram of the peer that arrived at `at`.
    pub(crate) fn take(&mut self, at: ArrivalTime, datagram: &[u8]) {
        if let Some(budget) = &mut self.common.budget {
            budget.add_received(datagram.len());
        }
        match &mut self.role {
            Role::Sender(sender) => sender.take(&mut self.common, at.mono, datagram),
            Role::Receiver(receiver) => receiver.take(&mut self.common, at, datagram),
        }
    }

    /// Returns the next thing to send by `now`. The caller repeats the call until there is nothing.
    pub(crate) fn transmit(&mut self, now: ArrivalTime) -> Option<Transmit> {
        let transmit = match self.common.due_answer() {
            Some(answer) => Some(Transmit::Message(answer)),
            None => match &mut self.role {
                Role::Sender(sender) => sender.transmit(&self.common, now.mono),
                Role::Receiver(receiver) => receiver.transmit(&mut self.common, now),
            },
        };
        self.common.charge_budget(transmit.as_ref());
        transmit
    }

    /// Returns when there is something to send next, unless a datagram arrives earlier.
    pub(crate) fn next_at(&self) -> Option<Nanos> {
        match &self.role {
            Role::Sender(sender) => sender.next_at(&self.common),
            Role::Receiver(receiver) => Some(receiver.trial_ends),
        }
    }

    /// Returns the end of the test if it is over at `now`. It also starts the server's stop when its time has come.
    pub(crate) fn check_end(&mut self, now: Nanos) -> Option<TestEnd> {
        let unproven = matches!(&self.role, Role::Sender(sender) if sender.proof.is_some());
        self.common.check_end(now, unproven)
    }

    /// Returns the last message to the peer: that the test is over, if the peer does not know or waits for the
    /// confirmation.
    pub(crate) fn closing_message(&mut self, now: ArrivalTime, end: &TestEnd) -> Option<Transmit> {
        let stopped = matches!(end, TestEnd::Stopped(_));
        let transmit = match &mut self.role {
            Role::Sender(sender) => sender.closing_message(stopped),
            Role::Receiver(receiver) => receiver.closing_message(&mut self.common, now, stopped),
        };
        self.common.charge_budget(transmit.as_ref());
        transmit
    }

    /// Returns the agreement of both ends.
    pub(crate) fn agreed(&self) -> &TestAgreement {
        &self.common.agreed
    }

    /// Returns whether messages tell the peer that the test is over.
    pub(crate) fn is_stopping(&self) -> bool {
        self.common.stopping
    }

    /// Returns the outcome so far.
    pub(crate) fn outcome(&self) -> &TestOutcome {
        &self.common.outcome
    }

    /// Returns the traffic so far as a server sees it. `sent` is the load that it sent.
    pub(crate) fn traffic(&self, sent: DirectionTraffic) -> TestTraffic {
        let (up, loss, rtt_ms) = match &self.role {
            Role::Sender(sender) => (DirectionTraffic::default(), sender.loss, sender.rtt_ms),
            Role::Receiver(receiver) => {
                let totals = receiver.receiver.totals;
                let up = DirectionTraffic {
                    packets: totals.distinct,
                    bytes: totals.bytes,
                };
                let sent = u64::from(totals.highest);
                let lost = sent.saturating_sub(totals.distinct);
                (up, PacketLoss { lost, sent }, totals.rtt_ms)
            }
        };
        TestTraffic {
            up,
            down: sent,
            round_trip: rtt_ms.map(|ms| Duration::from_millis(ms.into())),
            loss: Some(loss),
        }
    }

    /// Returns the outcome at the end.
    pub(crate) fn into_outcome(mut self) -> TestOutcome {
        match self.role {
            Role::Sender(sender) => self.common.outcome.skipped = sender.pacer.skipped().into(),
            Role::Receiver(receiver) => {
                let totals = receiver.receiver.totals;
                self.common.outcome.totals = Some(totals);
                self.common.outcome.feedback_missed = totals.feedback_missed;
            }
        }
        self.common.outcome
    }
}

impl Role {
    /// Returns the role of this end. If it sends, it waits for `proof`, if there is one.
    fn of(agreed: &TestAgreement, proof: Option<AddressProof>, now: Nanos) -> Self {
        if agreed.receives_here() {
            Self::Receiver(Box::new(LoadReceiver::new(agreed, now)))
        } else {
            Self::Sender(Box::new(LoadSender::new(proof, now)))
        }
    }
}

impl CommonState {
    fn new(agreed: TestAgreement, control: RateControl, now: Nanos) -> Self {
        Self {
            agreed,
            control,
            answer: Vec::new(),
            answer_is_due: false,
            budget: None,
            began: now,
            last_message: now,
            flowing: false,
            silent: false,
            stopping: false,
            ended: None,
            sub_intervals_seen: 0,
            outcome: TestOutcome::default(),
        }
    }

    /// Returns the answer to the activation, if it is due and may be sent.
    fn due_answer(&mut self) -> Option<Vec<u8>> {
        let is_due = std::mem::take(&mut self.answer_is_due) && self.may_send(self.answer.len());
        is_due.then(|| self.answer.clone())
    }

    /// Returns whether a datagram of `payload` bytes may be sent to the peer.
    fn may_send(&self, payload: usize) -> bool {
        self.budget.is_none_or(|budget| budget.allows(payload))
    }

    fn charge_budget(&mut self, transmit: Option<&Transmit>) {
        let payload = match transmit {
            Some(Transmit::Message(message)) => message.len(),
            Some(Transmit::Probe(probe)) => probe.len(),
            // Load is sent only to proven addresses.
            Some(Transmit::Load(..)) | None => return,
        };
        if let Some(budget) = &mut self.budget {
            budget.sent(payload);
        }
    }

    /// Processes a datagram that is neither load nor feedback. It may be a repeated activation, whose answer was lost.
    fn receive_other(&mut self, datagram: &[u8]) {
        let asked_again = Activation::decode(datagram, self.agreed.version).is_ok();
        self.answer_is_due |= asked_again && !self.answer.is_empty();
        self.outcome.unreadable += 1;
    }

    /// Returns the state of the test to put into messages.
    fn action(&self) -> TestAction {
        if self.stopping {
            TestAction::Stop
        } else {
            TestAction::Testing
        }
    }

    fn check_end(&mut self, now: Nanos, unproven: bool) -> Option<TestEnd> {
        if let Some(end) = self.ended.take() {
            return Some(end);
        }
        let is_server = self.agreed.is_server;
        let since_start = Duration::from(now - self.began);
        let last = self.duration() + STOP_AFTER;
        self.stopping |= is_server && !unproven && since_start >= last;
        let (silence, awaited) = (Duration::from(now - self.last_message), self.awaited());
        let is_silent = silence > Duration::from(PAUSE) + awaited;
        let was_silent = std::mem::replace(&mut self.silent, is_silent);
        if self.silent && !was_silent && !self.stopping {
            self.outcome.silences += 1;
        }
        let longest = last + 2 * SILENCE + several(2, self.agreed.round_trip);
        match (silence > SILENCE + awaited, self.stopping, is_server) {
            // The client's confirmation was lost, but the test itself is complete.
            (true, true, true) => Some(TestEnd::Complete),
            (true, _, _) => Some(TestEnd::Silent),
            // A server's time begins when the address is proven, or when the client's load arrives.
            (false, _, false) if since_start > longest => Some(TestEnd::Overdue),
            _ => None,
        }
    }

    /// Returns the duration of the test on this path.
    fn duration(&self) -> Duration {
        let asked = Duration::from_secs(self.agreed.parameters.duration_s.into());
        asked + self.agreed.extension()
    }

    /// Returns the time by which a silence may be longer than usual, because a message can be on its way for as long.
    fn awaited(&self) -> Duration {
        if self.flowing && !self.stopping {
            Duration::ZERO
        } else {
            several(2, self.agreed.round_trip)
        }
    }

    /// Notes that load with this number arrived. The first one at a client may be the server's probe, after which load
    /// takes another round trip.
    fn note_load(&mut self, now: Nanos, number: u32) {
        if self.agreed.is_server && !self.flowing {
            self.began = now;
        }
        self.flowing |= self.agreed.is_server || number > 1;
    }

    /// Notes a message of the peer, which proves that the peer is alive unless the test is being stopped.
    fn note_message(&mut self, now: Nanos) {
        if !self.stopping {
            self.last_message = now;
        }
    }

    /// Keeps the feedback of a trial interval. Keeps its sub-interval too, if it is new; `ended` is that one's end.
    fn record_feedback(
        &mut self,
        at: Nanos,
        status: FeedbackMessage,
        row: Option<usize>,
        rate: &SendingRate,
        ended: Option<u64>,
    ) {
        let at = Duration::from(at - self.began);
        let parameters = &self.agreed.parameters;
        // Feedback begins before the load and ends after it.
        let longest = self.duration() + several(4, self.agreed.round_trip);
        let milliseconds = longest.as_secs() * 1000;
        let most = |each: u16| milliseconds * TOLERATED / u64::from(each.max(1)) + TOLERATED;
        let room = (self.outcome.trials.len() as u64) < most(parameters.feedback_ms);
        if room && !self.agreed.is_server {
            self.outcome.trials.push(TrialInterval {
                at,
                status,
                row,
                l3_bit_per_s: rate.l3_bit_per_s(),
            });
        }
        let room = (self.outcome.sub_intervals.len() as u64) < most(parameters.sub_interval_ms);
        if status.sub_interval_number > self.sub_intervals_seen && room {
            self.sub_intervals_seen = status.sub_interval_number;
            self.outcome.sub_intervals.push(WholeSubInterval {
                at,
                counted: status.sub_interval,
                least_rtt_ms: status.rtt_min_ms,
                ended,
            });
        }
    }
}

impl LoadSender {
    fn new(proof: Option<AddressProof>, now: Nanos) -> Self {
        Self {
            proof,
            pacer: Pacer::default(),
            header: LoadHeader::default(),
            feedback_sequence: 0,
            feedback_at: now,
            loss: PacketLoss::default(),
            rtt_ms: None,
            peer_stopped: false,
        }
    }

    fn take(&mut self, common: &mut CommonState, at: Nanos, datagram: &[u8]) {
        match FeedbackMessage::decode(datagram, common.agreed.version) {
            // A message after the end changes nothing.
            Ok(_) if common.ended.is_some() => {}
            Ok(status) if self.is_proven_by(common, &status, at) => {
                self.process_feedback(common, at, &status)
            }
            Ok(_) => common.ended = Some(TestEnd::Unproven),
            Err(_) => common.receive_other(datagram),
        }
    }

    /// Returns whether the client has proven its address. Its test begins at the first proof.
    fn is_proven_by(
        &mut self,
        common: &mut CommonState,
        status: &FeedbackMessage,
        at: Nanos,
    ) -> bool {
        let Some(proof) = &self.proof else {
            return true;
        };
        if !proof.matches(status, at) {
            return false;
        }
        self.proof = None;
        common.budget = None;
        common.began = at;
        true
    }

    fn process_feedback(&mut self, common: &mut CommonState, at: Nanos, status: &FeedbackMessage) {
        common.note_message(at);
        common.flowing = true;
        if status.action == TestAction::Stop {
            self.peer_stopped = true;
            common.stopping = true;
            common.ended = Some(TestEnd::Complete);
        }
        let expected = self.feedback_sequence.wrapping_add(1);
        self.header.feedback_missed = match status.sequence.checked_sub(expected) {
            Some(missed) => u16::try_from(missed).unwrap_or(u16::MAX - 1),
            None => u16::MAX,
        };
        if status.sequence > self.feedback_sequence {
            common.outcome.feedback_missed += u64::from(self.header.feedback_missed);
            self.feedback_sequence = status.sequence;
        }
        self.header.feedback_stamp = status.sent;
        self.feedback_at = at;
        self.note_report(status);
        let (row, rate) = if common.agreed.is_server {
            common.control.decide(status);
            (Some(common.control.row()), common.control.rate())
        } else {
            (common.control.row_of(&status.rate), status.rate)
        };
        // A client's last feedback contains a rate too, but the test is over.
        if status.action == TestAction::Testing {
            self.pacer.set(&rate, at);
        }
        common.record_feedback(at, *status, row, &rate, None);
    }

    /// Notes the losses and the round-trip time that the load's receiver reports.
    fn note_report(&mut self, status: &FeedbackMessage) {
        let lost = u64::from(status.counts.lost);
        self.loss.lost += lost;
        self.loss.sent += lost + u64::from(status.trial_datagrams);
        let parts = [status.rtt_min_ms, status.rtt_variation_ms];
        if !parts.contains(&NO_DELAY) {
            self.rtt_ms = Some(parts[0].saturating_add(parts[1]));
        }
    }

    fn transmit(&mut self, common: &CommonState, now: Nanos) -> Option<Transmit> {
        if self.next_at(common)? > now {
            return None;
        }
        if let Some(proof) = &mut self.proof {
            return Some(Transmit::Probe(proof.send(now)));
        }
        if now > self.feedback_at + PAUSE + common.awaited().into() {
            self.pacer.set(&SendingRate::default(), now);
        }
        let mut train = self.pacer.due(now)?;
        if common.stopping {
            train.count = train.count.min(1);
        }
        // As in the reference, the time is rounded, so that the far end's difference of two times is not biased.
        let response_ms = ((now - self.feedback_at).0 + 500_000) / 1_000_000;
        self.header.action = common.action();
        self.header.response_delay_ms = u16::try_from(response_ms).unwrap_or(u16::MAX);
        Some(Transmit::Load(train, self.header))
    }

    fn next_at(&self, common: &CommonState) -> Option<Nanos> {
        match &self.proof {
            Some(proof) if common.may_send(LOAD_HEADER) => proof.next_at(),
            Some(_) => None,
            None => self.pacer.next_at(),
        }
    }

    fn closing_message(&self, stopped: bool) -> Option<Transmit> {
        let one = Train {
            payload: 0,
            count: 1,
            addon: 0,
        };
        let header = LoadHeader {
            action: TestAction::Stop,
            ..self.header
        };
        let is_owed = (stopped || self.peer_stopped) && self.proof.is_none();
        is_owed.then_some(Transmit::Load(one, header))
    }
}

impl LoadReceiver {
    fn new(agreed: &TestAgreement, now: Nanos) -> Self {
        let parameters = &agreed.parameters;
        let each = Nanos(u64::from(parameters.feedback_ms) * 1_000_000);
        Self {
            receiver: Receiver::new(now, parameters.feedback_ms, parameters.sub_interval_ms),
            each,
            trial_ends: now + each.min(FIRST_FEEDBACK),
            began_to_feed_back: false,
        }
    }

    fn take(&mut self, common: &mut CommonState, at: ArrivalTime, datagram: &[u8]) {
        let Ok(header) = LoadHeader::decode(datagram) else {
            common.receive_other(datagram);
            return;
        };
        common.note_message(at.mono);
        match header.action {
            TestAction::Testing => {
                common.note_load(at.mono, header.sequence);
                self.receiver.load(at, &header, datagram.len());
            }
            // The PDUs of the end are not part of the load.
            TestAction::Stop => {
                common.stopping = true;
                common.ended = Some(TestEnd::Complete);
            }
        }
    }

    fn transmit(&mut self, common: &mut CommonState, now: ArrivalTime) -> Option<Transmit> {
        let late = now.mono.0.checked_sub(self.trial_ends.0)?;
        let feedback = self.feed_back(common, now, common.agreed.is_server);
        let each = if self.began_to_feed_back {
            self.each
        } else {
            self.each.min(FIRST_FEEDBACK)
        };
        // Trial intervals that were missed are not made up for.
        let missed = late / each.0.max(1);
        self.trial_ends = Nanos(self.trial_ends.0 + each.0 * (missed + 1));
        feedback
    }

    /// Returns the feedback on the trial interval, with the rate if this end decides it. If the feedback is more than
    /// may be sent, the trial interval continues.
    fn feed_back(
        &mut self,
        common: &mut CommonState,
        now: ArrivalTime,
        with_rate: bool,
    ) -> Option<Transmit> {
        let version = common.agreed.version;
        if !common.may_send(FeedbackMessage::length(version)) {
            return None;
        }
        let action = common.action();
        let trial = self.receiver.peek(now);
        let mut status = self.receiver.feedback(now, action)?;
        self.began_to_feed_back = true;
        if action == TestAction::Testing {
            common.control.decide(&trial);
        }
        let (row, rate) = (common.control.row(), common.control.rate());
        if with_rate {
            status.rate = rate;
        }
        let bytes = status.encode(version);
        let (number, sub_interval, ended) = self.receiver.last_sub_interval();
        (status.sub_interval_number, status.sub_interval) = (number, sub_interval);
        common.record_feedback(now.mono, status, Some(row), &rate, ended);
        Some(Transmit::Message(bytes))
    }

    fn closing_message(
        &mut self,
        common: &mut CommonState,
        now: ArrivalTime,
        stopped: bool,
    ) -> Option<Transmit> {
        if common.agreed.is_server && !stopped {
            return None;
        }
        common.stopping = true;
        self.feed_back(common, now, false)
    }
}

#[cfg(test)]
mod tests;
