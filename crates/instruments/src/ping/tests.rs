use super::*;
use netio::stop::Stop;

const PLAN: PingPlan = PingPlan {
    size: 1200,
    count: 5,
    interval: Nanos::from_millis(2),
    timeout: Some(Nanos::from_secs(5)),
    tos: None,
    dscp: None,
    ttl: None,
};

#[test]
fn an_interrupted_ping_keeps_its_samples_and_states_the_cause() {
    let stop = Stop::default().within(Duration::ZERO);
    let measurement = measure(
        "127.0.0.1".parse().unwrap(),
        &PLAN,
        None,
        &Session::quiet(stop),
    );
    assert!(measurement.failure.is_some());
}

#[test]
fn sequence_numbers_wrap_after_65535() {
    assert_eq!(sequence(65_537), 1);
    assert_eq!(number(1, 65_540), 65_537);
    assert_eq!(number(65_535, 65_540), 65_535);
    assert_eq!(number(7, 7), 7);
}

#[test]
fn the_checksum_is_that_of_rfc_1071() {
    let data = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(!ones_complement_sum(&data), !0xddf2);
}

#[test]
fn the_packet_size_of_a_round_trip_time_is_stated() {
    let text = PLAN.describe("10.77.0.2".parse().unwrap());
    assert!(
        text.contains("1200 payload bytes, 1242 bytes at L2"),
        "{text}"
    );
}
