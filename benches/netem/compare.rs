//! Comparison of both results.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use stats::autocorrelation::mean_with_interval;
use stats::order_statistics::{quantile, sorted};

use crate::jobs::{Job, NOTHING};
use crate::ours::{Passed, through};

/// The half width of the compared intervals in units of that of 95 %: they are 99.9 % intervals, because there are many.
const WIDER: f64 = 3.29 / 1.96;
const SHARES: [f64; 5] = [0.05, 0.25, 0.5, 0.75, 0.95];
/// The largest difference of quantiles of the delay, in ms, which is the accuracy of the guest's clock.
const NEAR_MS: f64 = 0.2;
/// A packet with less delay than this, in ms, skipped the delay.
const AT_ONCE_MS: f64 = 1.0;
const AT_ONCE: &str = "skipped the delay, %";
/// The margin beyond the range of the guest's runs, because these are few.
const BEYOND: f64 = 0.05;

/// A mean and its interval.
type Mean = (f64, f64, f64);

/// A function that returns a value for each packet, or for each run of packets.
type Values = fn(&[Passed], f64) -> Vec<f64>;

/// The compared figures by name, with their values for each packet or run of packets; `base` is the excess time of the guest, in ms.
const FIGURES: [(&str, Values); 4] = [
    ("lost, %", |passed, _| {
        percent(passed, |packet| packet.came.is_empty())
    }),
    ("lost in a row", |passed, _| lost_in_a_row(passed)),
    ("copied, %", |passed, _| {
        percent(passed, |packet| packet.came.len() > 1)
    }),
    (AT_ONCE, |passed, base| {
        let delays = delays(passed).into_iter();
        delays
            .map(|ms| if ms - base < AT_ONCE_MS { 100.0 } else { 0.0 })
            .collect()
    }),
];

/// Prints the results of each effect in both, and returns whether they agree.
pub(crate) fn effects(directory: &Path, jobs: &[&Job]) -> Result<bool> {
    if jobs.is_empty() {
        return Ok(true);
    }
    let nothing = sorted(&delays(&read(directory, NOTHING, 0)?));
    let base = quantile(&nothing, 0.5).context("nothing came")?;
    println!(
        "Through nothing a packet takes {base:.3} ms in the guest, in the median, which is taken off.\n"
    );
    println!(
        "| tc qdisc add dev wan root | figure | sch_netem | farwire | |\n|---|---|---|---|---|"
    );
    let mut is_like = true;
    for job in jobs.iter().filter(|job| job.name != NOTHING) {
        let kernel = read(directory, job.name, 0)?;
        let ours = through(job, kernel.iter().map(|packet| packet.sent), 1)?;
        let mut row = |figure: &str, one: String, other: String, agrees: bool| {
            is_like &= agrees;
            let verdict = if agrees { "" } else { "DIFFERS" };
            let options = job.kernel[0].trim_start_matches("root ");
            println!("| `{options}` | {figure} | {one} | {other} | {verdict} |");
        };
        for (figure, of) in FIGURES {
            // Without reordering, packets for which the guest was late would count.
            if figure == AT_ONCE && !job.ours.contains("reorder") {
                continue;
            }
            let (one, other) = (mean(&of(&kernel, base)), mean(&of(&ours, 0.0)));
            let Some((one, other)) = one.zip(other) else {
                continue;
            };
            let is_all_or_none = |mean: Mean| mean.0 < 0.001 || mean.0 > 99.99;
            if is_all_or_none(one) && is_all_or_none(other) {
                continue;
            }
            let overlap = one.1 <= other.2 && other.1 <= one.2;
            row(figure, shown(one), shown(other), overlap);
        }
        let one = quantiles(&kernel)?.map(|ms| ms - base);
        let other = quantiles(&ours)?;
        let apart = one.iter().zip(&other).map(|(a, b)| (a - b).abs());
        let is_near = apart.fold(0.0, f64::max) <= NEAR_MS;
        let list = |values: [f64; 5]| values.map(|ms| format!("{ms:.2}")).join(" ");
        row(
            "delay, ms: 5, 25, 50, 75, 95 %",
            list(one),
            list(other),
            is_near,
        );
    }
    println!();
    Ok(is_like)
}

fn quantiles(passed: &[Passed]) -> Result<[f64; 5]> {
    let delays = sorted(&delays(passed));
    let of = |share| quantile(&delays, share);
    let [a, b, c, d, e] = SHARES.map(of);
    let all = (|| Some([a?, b?, c?, d?, e?]))();
    all.context("nothing came")
}

/// Prints how many packets each queue dropped in both, and returns whether ours are within the guest's range.
pub(crate) fn queues(directory: &Path, jobs: &[&Job]) -> Result<bool> {
    if jobs.is_empty() {
        return Ok(true);
    }
    println!(
        "| tc qdisc | dropped by the kernel, least and most of its runs | by farwire, of the same packets | |\n|---|---|---|---|"
    );
    let mut is_like = true;
    for job in jobs {
        let dropped = |passed: &[Passed]| {
            passed
                .iter()
                .filter(|packet| packet.came.is_empty())
                .count() as f64
        };
        let (mut kernel, mut ours) = (Vec::new(), Vec::new());
        for run in 0..job.runs {
            let passed = read(directory, job.name, run)?;
            kernel.push(dropped(&passed));
            ours.push(dropped(&through(
                job,
                passed.iter().map(|packet| packet.sent),
                run,
            )?));
        }
        let (kernel, ours) = (sorted(&kernel), sorted(&ours));
        let (least, most) = (kernel[0], kernel[kernel.len() - 1]);
        let agrees = ours
            .iter()
            .all(|&count| (least * (1.0 - BEYOND)..=most * (1.0 + BEYOND)).contains(&count));
        is_like &= agrees;
        let verdict = if agrees { "" } else { "DIFFERS" };
        println!(
            "| `{}` | {least} to {most} | {} to {} | {verdict} |",
            job.name,
            ours[0],
            ours[ours.len() - 1]
        );
    }
    Ok(is_like)
}

fn read(directory: &Path, name: &str, run: u32) -> Result<Vec<Passed>> {
    let path = directory.join(format!("{name}.{run}.csv"));
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let line = |line: &str| -> Result<Passed> {
        let mut times = line.split(',').map(str::parse);
        let sent = times.next().context("an empty line")??;
        Ok(Passed {
            sent,
            came: times.collect::<Result<_, _>>()?,
        })
    };
    text.lines().map(line).collect()
}

/// Returns the delay of the first copy of each packet that arrived, in ms.
fn delays(passed: &[Passed]) -> Vec<f64> {
    let first = |packet: &Passed| {
        packet
            .came
            .iter()
            .min()
            .map(|&came| came.saturating_sub(packet.sent) as f64 / 1e6)
    };
    passed.iter().filter_map(first).collect()
}

fn percent(passed: &[Passed], is_one: impl Fn(&Passed) -> bool) -> Vec<f64> {
    passed
        .iter()
        .map(|packet| if is_one(packet) { 100.0 } else { 0.0 })
        .collect()
}

fn lost_in_a_row(passed: &[Passed]) -> Vec<f64> {
    let runs = passed.chunk_by(|a, b| a.came.is_empty() == b.came.is_empty());
    runs.filter(|run| run[0].came.is_empty())
        .map(|run| run.len() as f64)
        .collect()
}

fn mean(values: &[f64]) -> Option<Mean> {
    let (mean, low, high) = mean_with_interval(values)?;
    let half = (high - low) / 2.0 * WIDER;
    Some((mean, mean - half, mean + half))
}

fn shown((mean, low, high): Mean) -> String {
    format!("{mean:.3} [{low:.3}, {high:.3}]")
}
