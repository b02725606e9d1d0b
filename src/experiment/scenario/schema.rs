//! The JSON Schema of scenario files, for editors and checkers. It is generated from the types that
//! read the files.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

use super::comparisons::CompareTable;
use super::expectations::{AmountText, TrendTable};
use super::tables::{CaseTable, InstrumentTable, QuickTable, RepeatsTable, TcpTable};
use instruments::measure::{Kind, OptionText};
use record::bed::Bed;
use record::lateness::LateBudget;
use record::plan::Order;

// `super::parse` reads the parts of a file in several steps.
/// A complete scenario file.
#[derive(JsonSchema)]
#[schemars(deny_unknown_fields, title = "A farwire scenario")]
#[expect(dead_code, reason = "only its schema is used")]
struct Document {
    name: String,
    title: Option<String>,
    seed: Option<u64>,
    order: Option<Order>,
    late_budget: Option<LateBudget>,
    reference: Option<String>,
    quick: Option<QuickTable>,
    bed: Option<Bed>,
    tcp: Option<TcpTable>,
    repeats: Option<RepeatsTable>,
    instruments: Vec<InstrumentTable>,
    bases: Option<BTreeMap<String, CaseTable>>,
    cases: Vec<CaseTable>,
    trends: Option<Vec<TrendTable>>,
    compare: Option<CompareTable>,
}

/// The values of a swept field.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum Values {
    List(Vec<Value>),
    Range {
        from: AmountText,
        to: AmountText,
        times: Option<f64>,
        plus: Option<AmountText>,
    },
}

/// Returns the schema as indented text that ends with a newline.
pub(crate) fn schema() -> String {
    let mut generator = SchemaSettings::draft2020_12().into_generator();
    let values = generator.subschema_for::<Values>().to_value();
    let mut schema = generator.into_root_schema_for::<Document>().to_value();
    let definitions = &mut schema["$defs"];
    let case = &mut definitions["CaseTable"];
    // A case inherits the fields that it lacks from its base or from the file.
    case["required"] = json!([]);
    case["properties"]["base"] = json!({ "type": "string", "description": "A table of `bases`." });
    let sweep = json!({ "type": "object", "additionalProperties": values, "minProperties": 1 });
    case["properties"]["sweep"] = json!({
        "description": "Paths within the case and their values; several tables multiply.",
        "anyOf": [sweep, { "type": "array", "items": sweep, "minItems": 1 }]
    });
    definitions["InstrumentTable"]["allOf"] = Kind::all().map(options_rule).collect();
    let text = serde_json::to_string_pretty(&schema).expect("a schema is JSON");
    text + "\n"
}

/// Returns the rule for the options of one kind of instrument.
fn options_rule(kind: Kind) -> Value {
    let mut options = serde_json::Map::new();
    for option in kind.options() {
        let text = describe(&option);
        // Options may also be written with underscores.
        options.insert(option.name.replace('-', "_"), text.clone());
        options.insert(option.name, text);
    }
    let parameters = json!({ "properties": options, "additionalProperties": false });
    json!({
        "if": { "properties": { "kind": { "const": kind.name() } } },
        "then": { "properties": { "parameters": parameters, "quick": parameters } }
    })
}

fn describe(option: &OptionText) -> Value {
    let types = if option.flag {
        json!(["boolean"])
    } else {
        json!(["string", "number", "boolean", "array"])
    };
    json!({ "type": types, "description": option.help })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::scenario::tests::shipped;
    use crate::named_files::NamedFiles;
    use crate::toml_file::SourceFile;
    use std::fs;
    use std::path::Path;

    fn root() -> &'static Path {
        Path::new(env!("CARGO_MANIFEST_DIR"))
    }

    #[test]
    fn the_committed_schema_matches_the_types() {
        let committed = fs::read_to_string(root().join("schema/scenario.json"));
        assert!(
            committed.is_ok_and(|committed| committed == schema()),
            "run `farwire schema > schema/scenario.json`"
        );
    }

    #[test]
    fn the_scenarios_that_ship_are_valid_by_the_schema_and_mistakes_are_not() {
        let schema: Value = serde_json::from_str(&schema()).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        for path in shipped() {
            let text = fs::read_to_string(&path).unwrap();
            let sound: Value = toml::from_str(&text).unwrap();
            let errors: Vec<String> = validator
                .iter_errors(&sound)
                .map(|error| error.to_string())
                .collect();
            assert!(errors.is_empty(), "{}: {errors:?}", path.display());
            for (pointer, wrong) in [
                ("/name", json!(1)),
                ("/bed/kind", json!("attic")),
                ("/instruments/0/kind", json!("pong")),
                ("/instruments/0/parameters", json!({ "nothing": 1 })),
                ("/cases/0", json!({ "name": "a", "lnik": {} })),
            ] {
                let mut value = sound.clone();
                *value.pointer_mut(pointer).unwrap() = wrong;
                assert!(!validator.is_valid(&value), "{pointer}");
            }
        }
    }

    #[test]
    fn the_schema_and_farwire_accept_the_same_values_and_refuse_those_without_units() {
        let schema: Value = serde_json::from_str(&schema()).unwrap();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let text = |link: &str, more: &str| {
            format!(
                "name = 'x'\n[[instruments]]\nkind = 'ping'\n{more}\n[[cases]]\nname = 'a'\n\
                 link = {{ {link} }}\n"
            )
        };
        let agree = |text: &str, right: bool| {
            let value: Value = toml::from_str(text).unwrap();
            assert_eq!(validator.is_valid(&value), right, "schema: {text}");
            let read = super::super::parse(
                SourceFile {
                    file: "x.toml",
                    text,
                    also: NamedFiles::OWN,
                },
                false,
            );
            assert_eq!(read.is_ok(), right, "farwire: {text}: {read:?}");
        };
        for link in [
            "delay = '10ms'",
            "delay = '1.5S'",
            "rate = '10Mbit'",
            "rate = '8kibit', queue = '100pkt'",
            "rate = '1gbit', queue = '64KiB', aqm = 'fq_codel,target=5ms'",
            "rate = '1gbit', queue = '50ms'",
            "loss = '0.1%'",
            "loss = '1%,burst=8'",
            "jitter = '2ms,normal,free'",
            "jitter = '2ms, half-life=50ms, paretonormal, per-flow'",
            "jitter = { spread = '2ms' }",
            "jitter = { spread = '2ms', law = 'table', values = '-8192 8192', half_life = '1s' }",
            "size_delay = 2",
            "size_delay = '1.5'",
            "path_mtu = 1400",
            "path_mtu = '1400'",
            "pps = 20000",
            "pps = '20000, queue=100pkt'",
            "pps = { packets = 20000, queue = '50ms' }",
        ] {
            agree(&text(link, ""), true);
        }
        for link in [
            "delay = '10'",
            "delay = 10",
            "delay = '10 ms'",
            "delay = '10parsec'",
            "rate = '10'",
            "rate = '10mbps'",
            "rate = '1gbit', queue = '100'",
            "rate = '1gbit', aqm = 'sfq'",
            "loss = '1'",
            "loss = 0.01",
            "loss = '1%,8'",
            "jitter = '2'",
            "jitter = '2ms,zipf'",
            "jitter = '2ms,half-life=50'",
            "jitter = { spread = '2ms', law = 'zipf' }",
            "duplicate = 'often'",
            "size_delay = 0",
            "path_mtu = 67",
            "path_mtu = '1400b'",
            "pps = 0",
            "pps = '1mbit'",
        ] {
            agree(&text(link, ""), false);
        }
        agree(&text("", "timeout = '30s'"), true);
        agree(&text("", "timeout = '30'"), false);
    }
}
