//! The cost of a packet in the model alone, in rules and on links that follow traces, measured by `cargo bench -p farwire-model -p farwire-conditions`.

use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

use crate::report::rows::{Beside, Better, Quantity, Row};
use crate::report::spread::Spread;
use crate::results::Outcome;

/// The number of packets for a figure of that bench.
const BATCH: f64 = 1000.0;

pub(crate) fn run() -> Result<Outcome> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["bench", "--locked", "-p", "farwire-model"]);
    command.args(["-p", "farwire-conditions", "--benches"]);
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    ensure!(output.status.success(), "cargo bench: {}", output.status);
    let mut outcome = Outcome::new(
        1,
        &format!(
            "packets offered at line rate and polled as the forwarder does, {BATCH:.0} a sample, 100 samples"
        ),
    );
    let text = String::from_utf8_lossy(&output.stdout);
    let mut rows: Vec<Row> = text.lines().filter_map(row).collect();
    compare_traces(&mut rows);
    outcome.rows(rows);
    ensure!(
        !outcome.rows.is_empty(),
        "cargo bench printed no figures: {text}"
    );
    Ok(outcome)
}

/// Compares links that follow a trace with the same link without one.
fn compare_traces(rows: &mut [Row]) {
    let without = rows.iter().find(|row| row.quantity.what == "no trace");
    let Some(without) = without.map(|row| row.value) else {
        return;
    };
    let traces = rows
        .iter_mut()
        .filter(|row| row.quantity.what.starts_with("trace "));
    for row in traces {
        let Spread {
            median,
            least,
            most,
            ..
        } = row.value;
        row.quantity.better = Better::Neither;
        row.peer = Some(Beside {
            name: "no trace".to_owned(),
            value: without,
            cpu: None,
            ratio: Some(Spread {
                median: median / without.median,
                least: least / without.most,
                most: most / without.least,
                lower_quartile: least / without.most,
                interval: None,
            }),
        });
    }
}

/// Reads a line such as "├─ delay   12.3 µs │ 15 µs │ 12.9 µs │ 13 µs │ 100 │ 100": fastest, slowest, median, mean.
fn row(line: &str) -> Option<Row> {
    let rest = line.trim_start_matches(['├', '╰', '─', ' ']);
    let (name, rest) = rest.split_once(' ')?;
    let mut fields = rest.split('│');
    let mut next = || nanos(fields.next()?);
    let (least, most, median) = (next()?, next()?, next()?);
    Some(Row {
        quantity: Quantity::less(&name.replace('_', " "), "ns a packet"),
        name: "farwire".to_owned(),
        value: Spread {
            median,
            least,
            most,
            lower_quartile: least,
            interval: None,
        },
        cpu: None,
        peer: None,
    })
}

/// Converts a time with its unit to nanoseconds a packet.
fn nanos(field: &str) -> Option<f64> {
    let (number, unit) = field.trim().split_once(' ')?;
    let factor = match unit {
        "ns" => 1.0,
        "µs" => 1e3,
        "ms" => 1e6,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * factor / BATCH)
}
