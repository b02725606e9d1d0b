//! Steps of a condition up or down: 1, 2, 5, 10 and so on.

use model::{BitsPerSec, Nanos, Probability};

/// A condition that arrow keys change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AdjustableCondition {
    Delay,
    Loss,
    Rate,
}

impl AdjustableCondition {
    pub(super) const ALL: [Self; 3] = [Self::Delay, Self::Loss, Self::Rate];

    /// Returns the name of the condition in files and flags.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Delay => "delay",
            Self::Loss => "loss",
            Self::Rate => "rate",
        }
    }

    /// Returns the value after one step from `now`, or `None` if the condition is then absent.
    ///
    /// # Errors
    /// Fails with a message if the value is more than a number with a unit, or if there is no
    /// further step.
    pub(super) fn step(self, now: Option<&str>, up: bool) -> Result<Option<String>, String> {
        let read = |text: &str| {
            self.number(text)
                .ok_or_else(|| format!("{} is {text}: press Enter to change it", self.name()))
        };
        let now = now.map(read).transpose()?;
        let (least, most) = self.ends();
        let next = match (self, now, up) {
            // Without a rate nothing is slowed, so the first step down adds one.
            (Self::Rate, None, true) => {
                return Err("no rate is set".to_owned());
            }
            (Self::Rate, None, false) => 1e9,
            (_, None, true) => match self {
                Self::Delay => 1e6,
                _ => 0.1,
            },
            (_, None, false) => return Err(format!("no {} is set", self.name())),
            (_, Some(now), true) => above(now),
            (_, Some(now), false) => below(now),
        };
        if next > most * 1.001 {
            return match self {
                Self::Rate => Ok(None),
                _ => Err(format!("{}: this is the maximum for keys", self.name())),
            };
        }
        if next < least * 0.999 {
            return match self {
                Self::Rate => Err("rate: this is the minimum for keys".to_owned()),
                _ => Ok(None),
            };
        }
        Ok(Some(self.text(next)))
    }

    /// Parses a value in nanoseconds, percent or bits per second.
    fn number(self, text: &str) -> Option<f64> {
        Some(match self {
            Self::Delay => text.parse::<Nanos>().ok()?.0 as f64,
            Self::Loss => text.parse::<Probability>().ok()?.percent(),
            Self::Rate => text.parse::<BitsPerSec>().ok()?.get() as f64,
        })
    }

    const fn ends(self) -> (f64, f64) {
        match self {
            Self::Delay => (1e5, 1e10),
            Self::Loss => (0.01, 100.0),
            Self::Rate => (1e3, 1e11),
        }
    }

    fn text(self, value: f64) -> String {
        match self {
            Self::Delay => format!("{:.0}us", value / 1e3),
            Self::Loss => format!("{value}%"),
            Self::Rate => format!("{value:.0}bit"),
        }
    }
}

/// Returns the next value of 1, 2, 5, 10, 20 and so on above `value`.
fn above(value: f64) -> f64 {
    series(value)
        .find(|next| *next > value * 1.001)
        .unwrap_or(value)
}

/// Returns the next value below `value`, or 0.
fn below(value: f64) -> f64 {
    let lower = series(value).filter(|next| *next < value * 0.999);
    lower.fold(0.0, f64::max)
}

/// Returns the values around `value` in ascending order.
fn series(value: f64) -> impl Iterator<Item = f64> {
    let decade = value.max(1e-12).log10().floor();
    [-1.0, 0.0, 1.0].into_iter().flat_map(move |by| {
        let whole = 10_f64.powf(decade + by);
        // Below 1, dividing by a power of ten gives 0.2 instead of 0.20000000000000001.
        let exact = move |of: f64| {
            if decade + by < 0.0 {
                of / 10_f64.powf(-(decade + by)).round()
            } else {
                of * whole.round()
            }
        };
        [1.0, 2.0, 5.0].map(exact)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn steps(
        condition: AdjustableCondition,
        from: Option<&str>,
        up: bool,
        count: usize,
    ) -> Vec<String> {
        let mut now = from.map(str::to_owned);
        let mut all = Vec::new();
        for _ in 0..count {
            now = condition.step(now.as_deref(), up).unwrap();
            all.push(now.clone().unwrap_or_else(|| "none".to_owned()));
        }
        all
    }

    #[test]
    fn conditions_step_by_one_two_and_five() {
        let delays = ["1000us", "2000us", "5000us", "10000us", "20000us"];
        assert_eq!(steps(AdjustableCondition::Delay, None, true, 5), delays);
        assert_eq!(
            steps(AdjustableCondition::Delay, Some("20ms"), false, 1),
            ["10000us"]
        );
        assert_eq!(
            steps(AdjustableCondition::Delay, Some("30ms"), true, 1),
            ["50000us"]
        );
        assert_eq!(
            steps(AdjustableCondition::Delay, Some("200us"), false, 2),
            ["100us", "none"]
        );
        let losses = ["0.1%", "0.2%", "0.5%", "1%", "2%"];
        assert_eq!(steps(AdjustableCondition::Loss, None, true, 5), losses);
        assert_eq!(
            steps(AdjustableCondition::Loss, Some("0.02%"), false, 2),
            ["0.01%", "none"]
        );
        let rates = ["1000000000bit", "500000000bit", "200000000bit"];
        assert_eq!(steps(AdjustableCondition::Rate, None, false, 3), rates);
        assert_eq!(
            steps(AdjustableCondition::Rate, Some("100gbit"), true, 1),
            ["none"]
        );
    }

    #[test]
    fn a_missing_step_is_explained() {
        let refused =
            |condition: AdjustableCondition, now, up| condition.step(now, up).unwrap_err();
        assert!(refused(AdjustableCondition::Loss, Some("1%,burst=8"), true).contains("Enter"));
        assert_eq!(
            refused(AdjustableCondition::Loss, Some("100%"), true),
            "loss: this is the maximum for keys"
        );
        assert!(refused(AdjustableCondition::Rate, None, true).contains("no rate"));
        assert!(refused(AdjustableCondition::Delay, None, false).contains("no delay"));
    }
}
