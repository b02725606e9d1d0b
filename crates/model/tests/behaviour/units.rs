//! The printed form of a unit is read back as the same value.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use farwire_model::{BitsPerSec, Bytes, Factor, Nanos, Probability, QueueLimit};
use proptest::prelude::*;

fn assert_round_trip<T>(value: T) -> Result<(), TestCaseError>
where
    T: Display + Debug + PartialEq + FromStr<Err: Debug>,
{
    let text = value.to_string();
    prop_assert_eq!(text.parse::<T>().unwrap(), value, "{}", text);
    Ok(())
}

/// Generates round and odd numbers of every magnitude.
fn any_number() -> impl Strategy<Value = u64> {
    let scaled = |base: u64| (1..2_000_u64, 0..6_u32).prop_map(move |(n, e)| n * base.pow(e));
    prop_oneof![any::<u64>(), scaled(1_000), scaled(1_024)]
}

proptest! {
    #[test]
    fn times_round_trip(nanos in any_number()) {
        assert_round_trip(Nanos(nanos))?;
    }

    #[test]
    fn sizes_round_trip(bytes in any_number()) {
        assert_round_trip(Bytes(bytes))?;
    }

    #[test]
    fn rates_round_trip(bits in any_number().prop_filter("a rate is above 0", |&bits| bits > 0)) {
        assert_round_trip(BitsPerSec::new(bits).unwrap())?;
    }

    #[test]
    fn probabilities_round_trip(percent in prop_oneof![0.0..=100.0, 0.0..=1e-9]) {
        assert_round_trip(Probability::from_percent(percent).unwrap())?;
    }

    #[test]
    fn factors_round_trip(value in prop_oneof![1e-300..1e300, 0.1..10.0]) {
        assert_round_trip(Factor::new(value).unwrap())?;
    }

    #[test]
    fn queue_limits_round_trip(packets in any::<u32>(), number in any_number()) {
        assert_round_trip(QueueLimit::Packets(packets))?;
        assert_round_trip(QueueLimit::Bytes(Bytes(number)))?;
        assert_round_trip(QueueLimit::Time(Nanos(number)))?;
    }

    #[test]
    fn no_text_makes_a_parser_panic(text in "[0-9.]{0,30}[a-zA-Z%µ -]{0,5}") {
        let _ = text.parse::<Nanos>();
        let _ = text.parse::<BitsPerSec>();
        let _ = text.parse::<Probability>();
        let _ = text.parse::<QueueLimit>();
        let _ = text.parse::<Factor>();
    }
}
