//! Forty links drawn from a seed.

use super::*;

/// A direction of a hidden link.
struct Hidden {
    delay_ms: f64,
    /// The rate in bit/s.
    rate: f64,
    queue_ms: f64,
    kind: &'static str,
    loss_percent: f64,
    burst: Option<f64>,
    /// The spread in milliseconds, and whether it is that of a normal law.
    jitter: Option<(f64, bool)>,
}

impl Hidden {
    fn draw(random: &mut fastrand::Rng) -> Self {
        let logarithmic =
            |random: &mut fastrand::Rng, low: f64, high: f64| low * (high / low).powf(random.f64());
        let rate = logarithmic(random, 1e6, 200e6);
        let ten_packets_ms = 10.0 * 1514.0 * 8e3 / rate;
        let delay_ms = logarithmic(random, 1.0, 300.0);
        let is_lossy = random.u8(..3) > 0;
        let loss_percent = if is_lossy {
            logarithmic(random, 0.1, 3.0)
        } else {
            0.0
        };
        let in_bursts = is_lossy && random.bool();
        let varies = random.bool();
        Self {
            delay_ms,
            rate,
            queue_ms: logarithmic(random, 10.0, 2000.0).max(ten_packets_ms),
            kind: ["fifo", "codel", "fq_codel", "policer"][random.usize(..4)],
            loss_percent,
            burst: in_bursts.then(|| 2.0 + 6.0 * random.f64()),
            jitter: varies.then(|| {
                let most = (0.2 * delay_ms).min(4.0);
                (
                    logarithmic(random, 0.3, most.max(0.5)).min(delay_ms / 4.0),
                    random.bool(),
                )
            }),
        }
    }

    /// Returns the conditions of the direction, a line each.
    fn conditions(&self) -> String {
        let mut text = format!("delay = '{:.3}ms'\n", self.delay_ms);
        let bits = format!("{:.0}bit", self.rate);
        text += &match self.kind {
            "fifo" => format!("rate = '{bits}'\nqueue = '{:.2}ms'\n", self.queue_ms),
            "policer" => format!("police = '{bits},burst=32KiB'\n"),
            managed => format!("rate = '{bits}'\naqm = '{managed}'\n"),
        };
        if self.loss_percent > 0.0 {
            let burst = self
                .burst
                .map_or(String::new(), |burst| format!(",burst={burst:.2}"));
            text += &format!("loss = '{:.3}%{burst}'\n", self.loss_percent);
        }
        if let Some((spread, is_normal)) = self.jitter {
            let law = if is_normal { ",normal" } else { "" };
            text += &format!("jitter = '{spread:.3}ms{law}'\n");
        }
        text
    }
}

/// Draws links from a seed, and counts what the fit finds.
#[test]
fn most_of_forty_links_drawn_from_a_seed_are_found() {
    let mut random = fastrand::Rng::with_seed(47);
    let (mut right, mut all) = ([0; 7], [0; 7]);
    let mut wrong = String::new();
    for number in 0..40 {
        let hidden = [Hidden::draw(&mut random), Hidden::draw(&mut random)];
        let [up, down] = hidden.each_ref().map(Hidden::conditions);
        let text = format!("seed = {}\n[up]\n{up}[down]\n{down}", number + 1);
        let found = fit(&text);
        for (way, truth) in DIRECTIONS.into_iter().zip(&hidden) {
            let fit = found.toward(way);
            let bottleneck = fit.bottleneck.as_ref();
            let rate = bottleneck.map_or(0.0, |one| one.rate.value);
            let lost = loss(&found, way);
            let mut checks = vec![
                is_near(delay(&found, way).ms.value, truth.delay_ms, 0.3, 0.02),
                is_near(rate, truth.rate, 0.0, 0.02),
                lost.percent.contains(truth.loss_percent),
                kind(&found, way) == truth.kind,
                [truth.kind, "cannot be distinguished"].contains(&kind(&found, way)),
            ];
            let queue = match bottleneck.and_then(|one| one.queue) {
                Some(QueueKind::Fifo { ms, .. } | QueueKind::Unclear { ms: Some(ms) }) => ms.value,
                _ => 0.0,
            };
            let is_fifo = truth.kind == "fifo";
            checks.push(!is_fifo || is_near(queue, truth.queue_ms, 0.0, 0.15));
            let burst = lost.burst.map(|burst| burst.value);
            let ratio = burst.zip(truth.burst).map(|(found, truth)| found / truth);
            checks.push(ratio.is_none_or(|ratio| (1.0 / 1.5..=1.5).contains(&ratio)));
            let counts = [true, true, true, true, true, is_fifo, ratio.is_some()];
            for (at, (check, counts)) in checks.iter().zip(counts).enumerate() {
                right[at] += u32::from(*check && counts);
                all[at] += u32::from(counts);
            }
            if checks.contains(&false) {
                wrong += &format!(
                    "{number} {way:?} {checks:?}\n{}{fit:#?}\n",
                    truth.conditions()
                );
            }
        }
    }
    // A kind that is stated is right.
    let least = [0.9, 0.95, 0.9, 0.85, 1.0, 0.9, 0.5];
    for ((right, all), least) in right.into_iter().zip(all).zip(least) {
        assert!(
            f64::from(right) >= least * f64::from(all),
            "{right} of {all}\n{wrong}"
        );
    }
}
