//! A thousand links of one box for half an hour, with one thread and with two: changes, datagrams, and interfaces that go
//! and come back.

use std::fs;
use std::iter;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::{Street, batch, file, own_address};
use test_support::api::{self, Listening};
use test_support::process::{farwire, ip};
use test_support::usage::heap_kib;

const LINKS: usize = 1_000;

/// The first links, whose histories are full from the beginning. In a second, one of them and one of all links change.
const FULL: usize = 10;

/// The number of changes that a link keeps, after which its history grows no further.
const KEPT: usize = 1_000;

/// The links that carry datagrams in a second. All links have carried some within the first minute.
const BUSY: usize = 20;

/// The duration of the soak with each number of threads, and the time after which memory must not grow.
const LASTS: Duration = Duration::from_secs(15 * 60);
const WARM_UP: Duration = Duration::from_secs(2 * 60);

/// The factor by which memory may exceed its first value later.
const FLAT: f64 = 1.05;

/// The files that may be open in addition to those of the beginning: connections of the API.
const MORE_DESCRIPTORS: usize = 8;

#[test_support::test(serial, Soak, Namespaces, Tool("ip"))]
fn a_thousand_links_that_change_and_whose_interfaces_come_and_go_leave_memory_flat() -> Result<()> {
    for threads in ["1", "2"] {
        soak(threads).with_context(|| format!("with --threads {threads}"))?;
    }
    Ok(())
}

fn soak(threads: &str) -> Result<()> {
    let street = Street::build(LINKS)?;
    ip(&street.middle, "link set lo up")?;
    let links = file(iter::repeat_n("delay = '1ms'", LINKS))?;
    let mut command = farwire();
    // Use one heap, so that freed memory is reused.
    command.env("MALLOC_ARENA_MAX", "1");
    command.args(["emulate", "--links"]).arg(links.path());
    command.args(["--threads", threads]).args(api::OPEN);
    let live = street.middle.run(|| Listening::start(&mut command))??;
    for number in 0..FULL * KEPT {
        change(&street, &live, number % FULL, number)?;
    }
    let begun = Instant::now();
    let third = (LASTS - WARM_UP) / 3;
    let (mut round, mut first_open) = (0, None);
    let mut heap = [const { Vec::new() }; 3];
    while begun.elapsed() < LASTS {
        for links in [FULL, LINKS] {
            change(&street, &live, round % links, round)?;
        }
        for place in 0..BUSY {
            street.await_passage((round * BUSY + place) % LINKS)?;
        }
        replace(&street, (round + LINKS / 2) % LINKS)?;
        if let Some(passed) = begun.elapsed().checked_sub(WARM_UP) {
            let of = usize::try_from(passed.as_nanos() / third.as_nanos())?;
            heap[of.min(2)].push(heap_kib(live.pid())?);
            let open = fs::read_dir(format!("/proc/{}/fd", live.pid()))?.count();
            let at_first = *first_open.get_or_insert(open);
            ensure!(
                open <= at_first + MORE_DESCRIPTORS,
                "{open} descriptors are open, and {at_first} were at first"
            );
        }
        round += 1;
        thread::sleep(Duration::from_secs(1));
    }
    let [first, _, last] = heap.map(|mut kib| {
        kib.sort_unstable();
        kib.get(kib.len() / 2).copied().unwrap_or_default()
    });
    println!(
        "memory with --threads {threads}: {first} KiB at first, {last} KiB at last, {round} rounds"
    );
    ensure!(
        first > 0 && last as f64 <= first as f64 * FLAT,
        "memory grew from {first} to {last} KiB"
    );
    live.terminate()
}

/// Changes the delay of a link. `number` is that of the change.
fn change(street: &Street, live: &Listening, link: usize, number: usize) -> Result<()> {
    let line = format!("PATCH /v1/links/x{link}-y{link}");
    // 39 has no factor in common with the numbers of links, so a link gets another delay each time.
    let body = format!(r#"{{"delay": "{}ms"}}"#, 2 + number % 39);
    let kind = "application/merge-patch+json";
    let answer = street
        .middle
        .run(|| live.with_body(&line, kind, "", &body))??;
    ensure!(answer.status == 200, "{answer:?}");
    Ok(())
}

/// Deletes an interface of a link and makes it again, and waits until the link has taken it.
fn replace(street: &Street, link: usize) -> Result<()> {
    ip(&street.middle, &format!("link delete x{link}"))?;
    batch(&street.middle, &street.cable(link, 'x', &street.clients))?;
    let far = format!("{}\nlink set x{link} up", own_address(link, 'x'));
    batch(&street.clients, &far)?;
    street.await_passage(link)
}
