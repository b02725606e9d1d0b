//! What requests may cost, and who is served meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use test_support::api::{Exec, Listening};
use test_support::process;

/// Changes, each of which takes more than a sixtieth of what a link keeps of its history.
const CHANGES: u64 = 60;

/// Steps of the schedule of each: they take 60 KB in the request, and about 800 KB in memory.
const STEPS: usize = 2_300;

/// Readers of the history.
const READERS: usize = 12;

/// What a link keeps of its history, in bytes.
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
            // Each reads it once at least.
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

/// The revisions of a history that was read to its end. Those that are forgotten meanwhile are left out.
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
