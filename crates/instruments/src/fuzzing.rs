//! Entry points for fuzzers, one per parser of untrusted input.
//!
//! A parser must never panic. Input that it accepts is written and parsed again, and the result must be equal:
//! otherwise two ends could read the same message differently.

pub(crate) mod tools;

use std::fmt::{Debug, Display};
use std::str::FromStr;

use crate::capacity::wire::{Activation, FeedbackMessage, LoadHeader, Setup, Version};
use crate::iperf3::messages::{Params, Results};
use crate::iperf3::wire::{ControlState, Cookie, ErrorCode};
use crate::messages::wire::{EchoResult, MessageGrant, MessageRequest, TransferResult};
use crate::stamp::tlv::{self, FollowUp, SameClock, TlvKind, TrainPlace};
use crate::stamp::wire;

/// Fuzzes iperf3's messages: parameters, results, states, cookies and errors.
pub fn iperf3(bytes: &[u8]) {
    if let Ok(params) = Params::parse(bytes) {
        let written = params.to_json().to_string();
        Params::parse(written.as_bytes()).expect("what was written is right");
    }
    if let Ok(results) = Results::parse(bytes) {
        let written = results.to_json().to_string();
        Results::parse(written.as_bytes()).expect("what was written is right");
    }
    for byte in bytes {
        if let Some(state) = ControlState::parse(*byte) {
            assert_eq!(state.byte(), *byte);
        }
    }
    if let Some(cookie) = bytes.first_chunk().and_then(|bytes| Cookie::parse(*bytes)) {
        assert_eq!(Some(cookie.as_bytes()), bytes.first_chunk());
    }
    if let Some(error) = bytes.first_chunk() {
        assert_eq!(ErrorCode::parse(*error).to_bytes(), *error);
    }
}

/// Fuzzes STAMP's packets with their extensions, at both ends.
pub fn stamp(bytes: &[u8]) {
    if let Some(request) = wire::ProbeRequest::parse(bytes) {
        assert_eq!(wire::ProbeRequest::parse(&request.emit()), Some(request));
    }
    if let Some(answer) = wire::ProbeReply::parse(bytes) {
        assert_eq!(wire::ProbeReply::parse(&answer.emit()), Some(answer));
    }
    TrainPlace::of(bytes);
    let mut packet = bytes.to_vec();
    tlv::reflect(&mut packet, |extension| {
        if extension.kind().is_some() {
            extension.recognise();
        }
    });
    // A reflector answers with as many bytes as it received.
    assert_eq!(packet.len(), bytes.len());
    tlv::read(&mut packet, |kind, value| {
        let known = match kind {
            TlvKind::FollowUpTelemetry => FollowUp::parse(value).is_some(),
            TlvKind::SameClock => SameClock::parse(value).is_some(),
            TlvKind::Train => TrainPlace::parse(value).is_some(),
            _ => false,
        };
        assert!(!known || kind.length() == Some(value.len()));
    });
}

/// Fuzzes the PDUs of the UDP Speed Test Protocol, in its oldest and its newest version.
pub fn capacity(bytes: &[u8]) {
    if let Ok(setup) = Setup::decode(bytes) {
        assert_eq!(Setup::decode(&setup.encode()), Ok(setup));
    }
    if let Ok(load) = LoadHeader::decode(bytes) {
        assert_eq!(LoadHeader::decode(&load.encode()), Ok(load));
    }
    for version in [Version::OLDEST, Version::NEWEST] {
        if let Ok(activation) = Activation::decode(bytes, version) {
            let written = activation.encode(version);
            assert_eq!(Activation::decode(&written, version), Ok(activation));
        }
        if let Ok(status) = FeedbackMessage::decode(bytes, version) {
            let written = status.encode(version);
            assert_eq!(FeedbackMessage::decode(&written, version), Ok(status));
        }
    }
}

/// Fuzzes the lines of pingpong, blast and transfer.
pub fn messages(bytes: &[u8]) {
    let line = String::from_utf8_lossy(bytes);
    assert_round_trip::<MessageRequest>(&line);
    assert_round_trip::<TransferResult>(&line);
    assert_round_trip::<EchoResult>(&line);
    if let Ok(grant) = MessageGrant::parse(&line) {
        let written = MessageGrant::parse(&grant.to_string());
        assert_eq!(written.expect("what was written is right"), grant);
    }
}

/// Fuzzes the output of external tools.
pub fn tools(bytes: &[u8]) {
    tools::parse_all(&String::from_utf8_lossy(bytes));
}

/// Fuzzes netem's distribution files.
pub fn dist(bytes: &[u8]) {
    if let Ok(table) = conditions::dist::parse(&String::from_utf8_lossy(bytes)) {
        assert_eq!(
            conditions::dist::parse(&conditions::dist::print(&table)),
            Ok(table)
        );
    }
}

/// Fuzzes netem's options and scripts of tc's commands.
pub fn netem(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    assert_round_trip::<conditions::NetemSpec>(&text);
    if let Ok(converted) = conditions::FromTc::read(&text) {
        let file = converted.to_file().expect("what was read can be written");
        let link = conditions::read::toml_text(&file);
        assert_eq!(link, Ok(converted.link));
    }
}

/// Asserts that an accepted line has the same value after it was written and parsed again.
fn assert_round_trip<T: FromStr<Err: Debug> + Display + PartialEq + Debug>(line: &str) {
    if let Ok(value) = line.parse::<T>() {
        let written = value.to_string().parse::<T>();
        assert_eq!(written.expect("what was written is right"), value);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    type Parsers = fn(&[u8]);

    const ALL: [Parsers; 7] = [iperf3, stamp, capacity, messages, tools, dist, netem];

    const PARAMS: &str = r#"{"tcp":true,"omit":0,"time":10,"num":0,"blockcount":0,"parallel":4,"len":131072,"bandwidth":0,"pacing_timer":1000,"client_version":"3.12","reverse":true,"congestion":"cubic","TOS":184}"#;
    const RESULTS: &str = r#"{"cpu_util_total":12.5,"cpu_util_user":1.5,"cpu_util_system":11,"sender_has_retransmits":1,"congestion_used":"cubic","streams":[{"id":1,"bytes":12345678,"retransmits":18446744073709551615,"jitter":0.013,"errors":0,"packets":10,"start_time":0,"end_time":10.01}]}"#;
    const DIST: &str = "# three values\n-8192 0\n 32767\n";
    const NETEM: &str = "limit 9 delay 1ms 2ms 3% distribution normal loss state 1% 2% reorder 5% rate 1mbit 1 2 3 slot 1ms bytes 9k";
    const LINES: [&str; 4] = [
        "farwire-messages/1 pingpong size=64 count=100 nagle=no wait=block",
        "ok wait=spin mss=1448 rcvbuf=1 udp=5204",
        "result reads=10 bytes=1048576 total_ns=12345678 network_ns=1234567",
        "result received=99 duplicates=1",
    ];

    /// Returns a STAMP request of a train with a Follow-Up Telemetry extension.
    fn stamp_packet() -> Vec<u8> {
        let mut packet = vec![0; wire::BASE];
        packet[12] = 1;
        tlv::append(&mut packet, TlvKind::FollowUpTelemetry, 16);
        tlv::append(&mut packet, TlvKind::Train, 4)[3] = 10;
        packet
    }

    /// Returns valid messages, and beginnings of binary messages whose remaining bytes are mostly arbitrary.
    fn proper() -> Vec<Vec<u8>> {
        let texts = [PARAMS, RESULTS, DIST, NETEM].into_iter().chain(LINES);
        let mut all: Vec<Vec<u8>> = texts.map(|text| text.as_bytes().to_vec()).collect();
        all.push(stamp_packet());
        all.push(crate::capacity::wire::null_request(Version::NEWEST).to_vec());
        all
    }

    fn mutated() -> impl Strategy<Value = Vec<u8>> {
        let all = proper();
        let change = (any::<prop::sample::Index>(), any::<u8>());
        let changes = prop::collection::vec(change, 0..6);
        let cut = any::<prop::sample::Index>();
        (0..all.len(), changes, cut, any::<bool>()).prop_map(move |(which, changes, cut, whole)| {
            let mut bytes = all[which].clone();
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if !whole {
                bytes.truncate(cut.index(bytes.len()));
            }
            bytes
        })
    }

    #[test]
    fn valid_messages_are_accepted() {
        assert!(Params::parse(PARAMS.as_bytes()).is_ok());
        assert!(Results::parse(RESULTS.as_bytes()).is_ok());
        assert!(wire::ProbeRequest::parse(&stamp_packet()).is_some());
        assert!(TrainPlace::of(&stamp_packet()).is_some());
        assert!(MessageGrant::parse(LINES[1]).is_ok());
        assert!(LINES[2].parse::<TransferResult>().is_ok());
        assert!(LINES[3].parse::<EchoResult>().is_ok());
        assert!(conditions::dist::parse(DIST).is_ok());
        assert!(NETEM.parse::<conditions::NetemSpec>().is_ok());
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 10 } else { 500 },
            rng_seed: RngSeed::Fixed(1),
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn no_bytes_make_a_parser_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            ALL.iter().for_each(|parse| parse(&bytes));
        }

        #[test]
        fn no_mutated_message_makes_a_parser_panic(bytes in mutated()) {
            ALL.iter().for_each(|parse| parse(&bytes));
        }
    }
}
