//! What conditions do that their words do not say.

use model::{Behaviour, Delay, Effect, LinkConfig, Nanos, Ordering};

use crate::condition::netem;

/// The packet rate for which an estimate is made: one a millisecond.
const GAP: Nanos = Nanos::from_millis(1);

/// What comes of a link's jitter that is not asked for (a mean that order adds to, and delays that cannot be below 0), and what
/// netem does otherwise than its options say. A line each, which begins with the stages that it is about.
pub fn of_link(link: &LinkConfig) -> Vec<String> {
    let mut known: Vec<(&Effect, Vec<&str>)> = Vec::new();
    for stage in link.paths.iter().flat_map(|path| &path.stages) {
        for effect in stage.effects() {
            let place = known.iter().position(|(other, _)| *other == effect);
            let place = place.unwrap_or_else(|| {
                known.push((effect, Vec::new()));
                known.len() - 1
            });
            let names = &mut known[place].1;
            if !names.contains(&stage.name.as_str()) {
                names.push(&stage.name);
            }
        }
    }
    let lines = known.iter().flat_map(|(effect, names)| {
        let names = names.join(", ");
        let said = of_effect(effect).into_iter();
        said.map(move |line| format!("{names}: {line}"))
    });
    lines.collect()
}

fn of_effect(effect: &Effect) -> Vec<String> {
    let Behaviour { delay, netem, .. } = effect.behaviour();
    let of_delay = delay.map(of_delay).into_iter().flatten();
    of_delay
        .chain(netem.map(netem::notes).into_iter().flatten())
        .collect()
}

fn of_delay(delay: &Delay) -> Vec<String> {
    let (Some(jitter), Some(estimate)) = (&delay.jitter, delay.estimate(GAP)) else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    // A twentieth of what was asked for is not seen.
    if delay.ordering == Ordering::Fifo && estimate.added.0 > jitter.spread.0 / 20 {
        lines.push(format!(
            "order-preserving jitter adds {} on average at 1000 packets/s, with a standard deviation of {}; `free` or `per-flow` \
             avoids that, and a half-life reduces it",
            Milliseconds(estimate.added),
            Milliseconds(estimate.deviation)
        ));
    }
    if estimate.clamped > 0.0 {
        let percent = 100.0 * estimate.clamped;
        let digits = if percent < 1.0 { 2 } else { 0 };
        lines.push(format!(
            "about {percent:.digits$} % of delays would be negative and are set to 0, which raises the mean"
        ));
    }
    lines
}

/// A time in milliseconds, to two digits behind the point.
struct Milliseconds(Nanos);

impl std::fmt::Display for Milliseconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        #[expect(clippy::cast_precision_loss, reason = "two digits are read")]
        let milliseconds = self.0.0 as f64 / 1e6;
        write!(f, "{milliseconds:.2} ms")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinkSpec;

    fn warnings(text: &str) -> Vec<String> {
        let spec: LinkSpec = toml::from_str(text).unwrap();
        of_link(&spec.to_link("box").unwrap().config)
    }

    #[test]
    fn jitter_in_order_is_said_to_add_to_the_mean() {
        let both = warnings("delay = '50ms'\njitter = '5ms,normal'");
        let [line] = &both[..] else {
            panic!("{both:?}")
        };
        let begin = "box.up.delay, box.down.delay: order-preserving jitter adds 4.";
        assert!(line.starts_with(begin), "{line}");
        assert!(line.contains("a standard deviation of 3."), "{line}");
        let up = warnings("[up]\ndelay = '50ms'\njitter = '5ms'");
        assert!(up[0].starts_with("box.up.delay: "), "{up:?}");
    }

    #[test]
    fn what_does_as_it_says_is_not_warned_of() {
        for jitter in ["5ms,normal,free", "5ms,per-flow", "5ms,half-life=10s"] {
            let said = warnings(&format!("delay = '50ms'\njitter = '{jitter}'"));
            assert!(said.is_empty(), "{said:?}");
        }
        assert!(warnings("delay = '50ms'").is_empty());
    }

    #[test]
    fn delays_below_zero_are_said() {
        let said = warnings("delay = '5ms'\njitter = '5ms,normal,free'");
        // Phi(-1) is 15.9 %.
        let [line] = &said[..] else {
            panic!("{said:?}")
        };
        assert!(line.contains("down.delay: about 16 % of"), "{line}");
    }
}
