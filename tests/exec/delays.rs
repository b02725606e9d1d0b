//! Random delays and slots, as the packet log states them for each packet, over IPv4 and IPv6.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};

use super::effects::Run;
use test_support::FAR_ENDS;

/// A packet that went up and was due to leave.
struct Crossed {
    arrival_ns: u64,
    due_ns: u64,
    /// Protocol, addresses and ports.
    flow: String,
}

/// Sends `count` probes, one each millisecond, through `up = { ... }` and stages, and returns their packets in the order of arrival.
fn probes(run: &Run) -> Result<Vec<Crossed>> {
    let mut all = Vec::new();
    for row in run.packet_log.lines().filter(|row| row.contains(",up,")) {
        let columns: Vec<&str> = row.split(',').collect();
        let [_, _, _, arrival, verdict, _, due, _, flow @ ..] = &columns[..] else {
            continue;
        };
        if *verdict == "link_control" || due.is_empty() {
            continue;
        }
        all.push(Crossed {
            arrival_ns: arrival.parse()?,
            due_ns: due.parse()?,
            flow: flow.join(","),
        });
    }
    all.sort_by_key(|crossed| crossed.arrival_ns);
    ensure!(all.len() >= 200, "{}", run.said);
    Ok(all)
}

fn milliseconds(all: &[Crossed]) -> Vec<f64> {
    let delays = all.iter().map(|one| one.due_ns - one.arrival_ns);
    delays.map(|delay| delay as f64 / 1e6).collect()
}

fn probe(address: &str) -> String {
    format!("$farwire measure probe {address} --quiet -c 200 -i 1ms")
}

/// The bounds of each law's delays around 20 ms, and the median of the draws.
#[test_support::test(each(FAR_ENDS), Namespaces)]
fn each_law_of_jitter_keeps_within_its_bounds_and_the_summary_says_so(address: &str) -> Result<()> {
    let two = "{ spread = '2ms', law = 'table', values = '-8192 8192', ordering = 'free' }";
    for (jitter, bounds) in [
        ("'2ms,free'", [18.0, 22.0]),
        ("'2ms,normal,free'", [7.0, 33.0]),
        ("'2ms,pareto,free'", [20.0 - 4.0 / 3.0, 28.0]),
        ("'2ms,paretonormal,free'", [15.0, 28.0]),
        ("'19ms,lognormal,free'", [0.0, 1_000.0]),
        (two, [18.0, 22.0]),
    ] {
        let link = format!("up = {{ delay = '20ms', jitter = {jitter} }}");
        let run = Run::of(&link, &probe(address))?;
        let delays = milliseconds(&probes(&run)?);
        let within = |delay: &f64| (bounds[0] - 1e-6..=bounds[1] + 1e-6).contains(delay);
        ensure!(delays.iter().all(within), "{jitter}: {delays:?}");
        if jitter == two {
            ensure!(
                delays.iter().all(|delay| bounds.contains(delay)),
                "{delays:?}"
            );
        }
        let mean = delays.iter().sum::<f64>() / delays.len() as f64;
        // Allow four standard errors, and the distance by which netem's laws are lower.
        ensure!(
            (mean - 20.0).abs() < if jitter.contains("log") { 5.5 } else { 0.7 },
            "{jitter}: {mean}"
        );
        let [said] = &run.summary.delays[..] else {
            anyhow::bail!("{jitter}: {:?}", run.summary)
        };
        ensure!(said.stage == "box.up.delay", "{said:?}");
        ensure!(said.packets == delays.len() as u64, "{said:?}");
        ensure!(
            (said.mean_ns as f64 / 1e6 - mean).abs() < 1e-5,
            "{jitter}: {mean} is not {said:?}"
        );
    }
    Ok(())
}

#[test_support::test(each(FAR_ENDS), Namespaces)]
fn with_a_half_life_neighbours_have_nearly_the_same_delay(address: &str) -> Result<()> {
    let mean_change = |jitter: &str| -> Result<f64> {
        let link = format!("up = {{ delay = '40ms', jitter = '5ms,normal,{jitter}' }}");
        let delays = milliseconds(&probes(&Run::of(&link, &probe(address))?)?);
        let changes = delays.windows(2).map(|pair| (pair[1] - pair[0]).abs());
        Ok(changes.sum::<f64>() / (delays.len() - 1) as f64)
    };
    // A millisecond is a hundredth of a half-life: 0.47 ms is expected, and 5.6 ms with independent draws.
    let (wandering, independent) = (mean_change("half-life=100ms,free")?, mean_change("free")?);
    ensure!((0.1..1.5).contains(&wandering), "{wandering} ms");
    ensure!((4.0..7.5).contains(&independent), "{independent} ms");
    Ok(())
}

#[test_support::test(each(FAR_ENDS), Namespaces)]
fn jitter_per_flow_keeps_the_order_of_each_flow_alone(address: &str) -> Result<()> {
    // Long enough for both to run at the same time, however late one of them starts.
    let probe = probe(address).replace("-c 200", "-c 2000");
    let script = format!("{probe} & {probe}; wait");
    let link = "up = { delay = '20ms', jitter = '8ms,per-flow' }";
    let run = Run::of(link, &script)?;
    let log = &run.packet_log;
    let all = probes(&run)?;
    // Times of different batches of lines differ by the time between two readings of the clocks.
    let is_sorted = |flow: &[&Crossed]| flow.is_sorted_by(|a, b| a.due_ns < b.due_ns + 10_000);
    let mut flows: BTreeMap<&str, Vec<&Crossed>> = BTreeMap::new();
    for one in &all {
        flows.entry(&one.flow).or_default().push(one);
    }
    ensure!(
        flows.values().filter(|flow| flow.len() >= 200).count() == 2,
        "{log}"
    );
    ensure!(flows.values().all(|flow| is_sorted(flow)), "{log}");
    ensure!(!is_sorted(&all.iter().collect::<Vec<_>>()), "{log}");
    Ok(())
}

#[test_support::test(each(FAR_ENDS), Namespaces)]
fn packets_leave_in_slots(address: &str) -> Result<()> {
    let link =
        "[[stages]]\nkind = 'slots'\nmin = '3ms'\nmax = '5ms'\npackets = 4\ndirection = 'up'";
    let all = probes(&Run::of(link, &probe(address))?)?;
    let mut slots: BTreeMap<u64, usize> = BTreeMap::new();
    for one in &all {
        ensure!(
            one.due_ns > one.arrival_ns,
            "a packet did not wait for a slot"
        );
        *slots.entry(one.due_ns).or_default() += 1;
    }
    // Times of different batches of lines differ by the time between two readings of the clocks.
    let opened: Vec<u64> = slots.keys().copied().collect();
    let first = opened.first().context("no slot")?;
    let slots_of_their_own = opened
        .windows(2)
        .filter(|pair| pair[1] - pair[0] > 1_000_000)
        .count()
        + 1;
    ensure!(slots.values().all(|packets| *packets <= 4), "{slots:?}");
    ensure!(slots_of_their_own * 4 >= all.len(), "{slots:?}");
    ensure!(*first > 0, "{slots:?}");
    let gaps = opened.windows(2).map(|pair| pair[1] - pair[0]);
    let mut gaps = gaps.filter(|gap| *gap > 1_000_000);
    ensure!(gaps.all(|gap| gap >= 2_900_000), "{slots:?}");
    Ok(())
}
