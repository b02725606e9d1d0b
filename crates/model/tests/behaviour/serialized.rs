//! Units in files: serde and the JSON Schema follow the text form.

use farwire_model::{BitsPerSec, Bytes, Factor, Nanos, Probability, QueueLimit};

#[cfg(feature = "serde")]
mod values {
    use std::fmt::{Debug, Display};

    use serde::Serialize;
    use serde::de::DeserializeOwned;

    use super::*;

    fn assert_text<T>(json: &str, value: T)
    where
        T: Display + Debug + PartialEq + Serialize + DeserializeOwned,
    {
        assert_eq!(serde_json::from_str::<T>(json).unwrap(), value);
        let written = serde_json::to_string(&value).unwrap();
        assert_eq!(written, format!("\"{value}\""));
        assert_eq!(serde_json::from_str::<T>(&written).unwrap(), value);
    }

    fn refusal<T: Debug + DeserializeOwned>(json: &str) -> String {
        let error = serde_json::from_str::<T>(json).unwrap_err().to_string();
        let (message, _place) = error.rsplit_once(" at line").unwrap();
        message.to_owned()
    }

    #[test]
    fn every_unit_is_written_as_text_and_read_back() {
        assert_text("\"1.5s\"", Nanos::from_millis(1_500));
        assert_text("\"64KiB\"", Bytes(65_536));
        assert_text("\"60.9mbit\"", BitsPerSec::new(60_900_000).unwrap());
        assert_text("\"0.1%\"", Probability::from_percent(0.1).unwrap());
        assert_text("\"1.5\"", Factor::new(1.5).unwrap());
        assert_text("\"100pkt\"", QueueLimit::Packets(100));
        assert_text("\"50ms\"", QueueLimit::Time(Nanos::from_millis(50)));
    }

    #[test]
    fn a_number_is_read_as_if_it_were_text() {
        assert_text("2", Factor::new(2.0).unwrap());
        assert_text("1.5", Factor::new(1.5).unwrap());
        assert_eq!(
            refusal::<Nanos>("20"),
            "`20` has no unit: write a time with ns, us, ms, s, min or h, as in 20ms"
        );
        assert_eq!(
            refusal::<Probability>("0.1"),
            "`0.1` has no unit: write a probability from 0% to 100%, as in 0.1%"
        );
        assert_eq!(
            refusal::<Factor>("-1"),
            "`-1` is out of range: write a factor as a number above 0, as in 1.5"
        );
    }

    #[test]
    fn a_refusal_has_the_parsers_error_or_an_example() {
        assert_eq!(
            refusal::<BitsPerSec>("\"20ms\""),
            "20ms".parse::<BitsPerSec>().unwrap_err().to_string()
        );
        assert_eq!(
            refusal::<Bytes>("\"5mbit\""),
            "5mbit".parse::<Bytes>().unwrap_err().to_string()
        );
        assert_eq!(
            refusal::<QueueLimit>("true"),
            "invalid type: boolean `true`, expected a value with its unit, such as \"20ms\", \"1%\", \
             \"10mbit\" or \"100pkt\""
        );
    }
}

#[cfg(feature = "schema")]
#[test]
fn the_schema_of_every_unit_is_text_with_a_pattern() {
    let mut schemas = schemars::SchemaGenerator::default();
    let references = [
        schemas.subschema_for::<Nanos>(),
        schemas.subschema_for::<Bytes>(),
        schemas.subschema_for::<BitsPerSec>(),
        schemas.subschema_for::<Probability>(),
        schemas.subschema_for::<QueueLimit>(),
    ];
    for reference in references {
        let name = reference.get("$ref").unwrap().as_str().unwrap();
        let schema = &schemas.definitions()[name.strip_prefix("#/$defs/").unwrap()];
        assert_eq!(schema["type"], "string", "{name}");
        let pattern = schema["pattern"].as_str().unwrap();
        assert!(pattern.starts_with('^') && pattern.ends_with('$'), "{name}");
    }
    // A factor has no unit.
    let factor = schemas.subschema_for::<Factor>();
    assert_eq!(factor.get("$ref").unwrap(), "#/$defs/Factor");
}
