//! Sets every key of the schema to a wrong value and adds an unknown key to every table. Each error
//! must name the place, the key and the correct form.

use serde_json::Value;

use super::super::schema::schema;
use super::parse;

/// The tables of a correct scenario. A test adds one line to the file, to the instrument or to the
/// case.
const TABLES: [(&str, &str); 3] = [
    ("Document", ""),
    ("InstrumentTable", "[[instruments]]\nkind = 'ping'\n"),
    ("CaseTable", "[[cases]]\nname = 'a'\n"),
];

/// The keys that the test's tables already have, and those that are read before their tables have a
/// type.
const SKIPPED_KEYS: [&str; 7] = [
    "Document.instruments",
    "Document.cases",
    "Document.bases",
    "InstrumentTable.kind",
    "CaseTable.name",
    "CaseTable.base",
    "CaseTable.sweep",
];

/// The phrases that introduce the correct form.
const CORRECTION_PHRASES: [&str; 9] = [
    "expected ",
    "as in ",
    "such as ",
    "did you mean ",
    "use one of: ",
    "there are none",
    "write ",
    "must be ",
    "at least ",
];

/// A text with a wrong value, and the key of that value.
type WrongValue = (String, String);

fn resolved<'s>(schema: &'s Value, root: &'s Value) -> &'s Value {
    match schema["$ref"].as_str() {
        Some(name) => resolved(&root["$defs"][name.trim_start_matches("#/$defs/")], root),
        None => schema,
    }
}

/// Returns the forms that a value may have.
fn forms<'s>(schema: &'s Value, root: &'s Value) -> Vec<&'s Value> {
    let schema = resolved(schema, root);
    let inner = ["oneOf", "anyOf"]
        .into_iter()
        .flat_map(|key| schema[key].as_array().into_iter().flatten())
        .flat_map(|form| forms(form, root));
    [schema].into_iter().chain(inner).collect()
}

/// Returns a value that the schema does not accept.
fn wrong_for(schema: &Value, root: &Value) -> &'static str {
    let takes_lists = forms(schema, root).into_iter().any(|form| {
        let kinds = &form["type"];
        kinds == "array"
            || kinds
                .as_array()
                .is_some_and(|all| all.iter().any(|one| one == "array"))
    });
    if takes_lists {
        "{ wrong = true }"
    } else {
        "[[1]]"
    }
}

/// Returns tables and lists of this schema, each with one wrong value.
fn wrong_within(schema: &Value, root: &Value, depth: usize) -> Vec<WrongValue> {
    let mut all = Vec::new();
    if depth == 0 {
        return all;
    }
    for form in forms(schema, root) {
        if let Some(items) = form.get("items") {
            let within = wrong_within(items, root, depth - 1);
            all.extend(
                within
                    .into_iter()
                    .map(|(text, key)| (format!("[{text}]"), key)),
            );
        }
        for (text, key) in wrong_keys(form, root, depth) {
            let kind = form["properties"]["kind"]["const"]
                .as_str()
                .filter(|_| !text.starts_with("kind "))
                .map_or(String::new(), |kind| format!("kind = '{kind}', "));
            all.push((format!("{{ {kind}{text} }}"), key));
        }
    }
    all
}

/// Returns every key of a table with a wrong value, and one unknown key.
fn wrong_keys(form: &Value, root: &Value, depth: usize) -> Vec<WrongValue> {
    let mut all = Vec::new();
    let Some(keys) = form["properties"].as_object() else {
        return all;
    };
    all.push(("unknown_key = 1".to_owned(), "unknown_key".to_owned()));
    for (key, schema) in keys {
        let wrong = wrong_for(schema, root);
        all.push((format!("{key} = {wrong}"), key.clone()));
        let within = wrong_within(schema, root, depth - 1);
        all.extend(
            within
                .into_iter()
                .map(|(text, inner)| (format!("{key} = {text}"), inner)),
        );
    }
    all
}

#[test]
fn every_key_of_the_schema_with_a_wrong_value_is_refused_at_its_place_with_the_correct_form() {
    let root: Value = serde_json::from_str(&schema()).unwrap();
    let (mut tried, mut failures) = (0, Vec::new());
    for (table, _) in TABLES {
        let form = match table {
            "Document" => &root,
            table => &root["$defs"][table],
        };
        for (text, key) in wrong_keys(form, &root, 6) {
            let first = text.split(' ').next().unwrap();
            if SKIPPED_KEYS.contains(&format!("{table}.{first}").as_str()) {
                continue;
            }
            let mut file = String::new();
            let mut line = 0;
            for (name, head) in TABLES {
                // The file gets a name, unless the wrong value is the name.
                if name == "Document" && first != "name" {
                    file += "name = 'x'\n";
                }
                file += head;
                if name == table {
                    line = file.matches('\n').count() + 1;
                    file += &format!("{text}\n");
                }
            }
            tried += 1;
            let Err(error) = parse("x.toml", &file, false) else {
                failures.push(format!("{text}: taken"));
                continue;
            };
            let error = format!("{error:#}");
            let is_right = error.starts_with(&format!("x.toml:{line}: "))
                && error.contains(key.as_str())
                && CORRECTION_PHRASES.iter().any(|right| error.contains(right))
                && error.lines().count() == 1;
            if !is_right {
                failures.push(format!("line {line}, {key}: {text}\n    {error}"));
            }
        }
    }
    assert!(tried > 500, "{tried}");
    let shown = failures.iter().take(40).cloned().collect::<Vec<_>>();
    assert!(
        failures.is_empty(),
        "{} of {tried}\n{}",
        failures.len(),
        shown.join("\n")
    );
}
