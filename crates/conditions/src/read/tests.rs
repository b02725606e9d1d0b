use super::*;
use crate::error::Problem;
use crate::{LinkSpec, PathStep};

fn refused(text: &str) -> Error {
    toml_text::<LinkSpec>(text).unwrap_err()
}

#[test]
fn an_error_has_the_path_and_the_position_of_the_fault() {
    for case in [
        "delay = '1ms'\nloss = '101%' => loss => '101%'",
        "[up]\ndealy = '1ms' => up.dealy => dealy",
        "rules = [{ name = 'a', loss = 1 }] => rules[0].loss => 1",
        "jitter = { spread = 2 } => jitter.spread => 2",
        "loss = '1%,bursts=2' => loss => '1%,bursts=2'",
        "stages = [{ kind = 'gate', n = 3 }] => stages[0].n => n",
        "stages = [{ kind = 'goat' }] => stages[0].kind => 'goat'",
        "seed = 'x' => seed => 'x'",
        "schedule = [{ at = '1s', without = ['a'] }] => schedule[0].without[0] => 'a'",
        "profile = 'moble' => profile => 'moble'",
        "aqm = 'codel,flows=2' => aqm => 'codel,flows=2'",
    ] {
        let [text, field, wrong] = case.split(" => ").collect::<Vec<_>>()[..] else {
            panic!("{case}")
        };
        let error = refused(text);
        assert_eq!(error.field().as_deref(), Some(field), "{text}: {error}");
        let span = error.span.clone().unwrap();
        assert_eq!(&text[span], wrong, "{text}: {error}");
    }
}

#[test]
fn a_problem_is_structured_data() {
    let Problem::UnknownKey { key, known, .. } = *refused("dealy = '1ms'").problem else {
        panic!("another problem");
    };
    assert_eq!(key, "dealy");
    assert!(known.contains(&"delay".to_owned()));
    let Problem::Missing { key, .. } = *refused("fluctuation = { spread = '1%' }").problem else {
        panic!("another problem");
    };
    assert_eq!(key, "hold");
    let Problem::InText { error: inner, .. } = *refused("loss = '1%,burst=2,burst=3'").problem
    else {
        panic!("another problem");
    };
    assert_eq!(
        *inner.problem,
        Problem::Twice {
            key: "burst".to_owned()
        }
    );
    let Problem::OutOfRange { value, right, .. } = *toml_text::<LinkSpec>("delay = '7200s'")
        .unwrap()
        .check()
        .unwrap_err()
        .problem
    else {
        panic!("another problem");
    };
    assert_eq!(value.as_str(), "7200s");
    assert_eq!(right.as_str(), "a delay must be at most 3600s");
}

#[test]
fn other_formats_are_read_in_any_order_of_keys() {
    let json = r#"{ "stages": [{ "open": false, "place": "last", "schedule": [{ "open": true, "at": "1s" }],
                    "kind": "gate" }], "loss": "1%,burst=8", "aqm": "codel,ecn", "rate": "1mbit" }"#;
    let from_json: LinkSpec = serde_json::from_str(json).unwrap();
    let toml = "loss = '1%,burst=8'\naqm = 'codel,ecn'\nrate = '1mbit'\n\
                stages = [{ kind = 'gate', open = false, place = 'last', schedule = [{ at = '1s', open = true }] }]";
    assert_eq!(from_json, toml_text(toml).unwrap());
    assert_eq!(from_json, toml::from_str(toml).unwrap());
    let error = serde_json::from_str::<LinkSpec>(r#"{ "loss": "x" }"#).unwrap_err();
    assert!(error.to_string().starts_with("loss: `x` is not"), "{error}");
}

#[test]
fn a_path_is_located_at_its_last_existing_key() {
    let text = "delay = '1ms'\n[[rules]]\nname = 'a'\nup.loss = '1%'\n";
    let table = DeTable::parse(text).unwrap();
    let key = |key: &str| PathStep::Key(key.to_owned());
    let item = PathStep::Item {
        index: 0,
        name: None,
    };
    let line = |path: &[PathStep]| {
        let found = locate(table.get_ref(), path)?;
        Some(text[..found.start].matches('\n').count() + 1)
    };
    assert_eq!(line(&[key("delay")]), Some(1));
    assert_eq!(
        line(&[key("rules"), item.clone(), key("up"), key("loss")]),
        Some(4)
    );
    assert_eq!(line(&[key("rules"), item, key("port")]), Some(2));
    assert_eq!(line(&[key("seed")]), None);
}
