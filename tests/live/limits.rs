//! The cost of requests, and service for others meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use test_support::api::{Exec, Listening};
use test_support::process;

/// The number of changes; each takes more than a sixtieth of the memory for a link's history.
const CHANGES: u64 = 60;

/// The steps in the schedule of each change: they take 60 KB in the request, and about 800 KB in memory.
const STEPS: usize = 2_300;

/// The number of readers of the history.
const READERS: usize = 12;

/// The memory for a link's history, in bytes.
const MOST_KEPT: u64 = 32 << 20;

#[test_support::test(Namespaces)]
fn a_history_keeps_to_its_memory_and_a_lease_ends_while_twelve_read_it() -> Result<()> {
    let exec = Exec::start("--delay 1ms")?;
    let step = json!({"at": "1000s", "loss": "1%"});
    for number in 1..=CHANGES {
        let steps = vec![&step; STEPS];
        let conditions = json!({"delay": format!("{number}ms"), "schedule": steps});
        let change = exec.with_body(
            "PUT /v1/links/link",
            "application/json",
            "",
            &conditions.to_string(),
        )?;
        ensure!(change.status == 200, "{change:?}");
    }
    let numbers = history(&exec)?;
    let least = u64::try_from(STEPS * size_of::<conditions::Condition>())?;
    let most = usize::try_from(MOST_KEPT / least)?;
    ensure!(
        (2..=most).contains(&numbers.len()),
        "{} revisions are kept",
        numbers.len()
    );
    let first = CHANGES + 2 - u64::try_from(numbers.len())?;
    ensure!(
        numbers.iter().copied().eq(first..=CHANGES + 1),
        "{numbers:?}"
    );

    let over = AtomicBool::new(false);
    let live: &Listening = &exec;
    thread::scope(|scope| {
        let read = || {
            // Each reads it at least once.
            loop {
                history(live)?;
                if over.load(Ordering::Relaxed) {
                    return anyhow::Ok(());
                }
            }
        };
        let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(read)).collect();
        let reverted = exec
            .patch("?for=100ms", r#"{"loss": "100%"}"#)
            .and_then(|leased| {
                ensure!(leased.status == 200, "{leased:?}");
                process::wait_for("the link to revert", || {
                    let link = exec.link()?;
                    let is_back = link["lease"].is_null() && link["revision"] == CHANGES + 3;
                    Ok(is_back.then_some(()))
                })
            });
        over.store(true, Ordering::Relaxed);
        for reader in readers {
            reader.join().expect("a reader does not panic")?;
        }
        reverted
    })?;
    exec.end()
}

/// Reads a history to its end and returns its revisions, without those that are forgotten meanwhile.
fn history(live: &Listening) -> Result<Vec<u64>> {
    let answer = live.get("/v1/links/link/history")?;
    let changes = answer.body["changes"].as_array().context("no list")?;
    let numbers = changes.iter().map(|change| change["revision"].as_u64());
    let numbers: Vec<u64> = numbers.collect::<Option<_>>().context("no number")?;
    ensure!(numbers.is_sorted(), "{numbers:?}");
    ensure!(
        changes
            .iter()
            .all(|change| change["conditions"] != Value::Null)
    );
    Ok(numbers)
}
