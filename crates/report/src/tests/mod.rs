//! The reports as a whole.

mod large;
mod snapshots;
mod width;

use super::*;
use crate::analysis::tests::record;

#[test]
fn the_json_view_is_the_record() {
    let mut text = Vec::new();
    write_json(&record(), &mut text).unwrap();
    let value: serde_json::Value = serde_json::from_slice(&text).unwrap();
    assert_eq!(value["plan"]["name"], "small");
    assert_eq!(value["runs"].as_array().unwrap().len(), 3);
}
