//! An axis: its range, the positions of values, and its ticks.

use stats::digits::significant;

/// An axis from one value to another.
#[derive(Clone, Debug)]
pub struct Axis {
    /// The title, with the unit.
    pub title: String,
    scale: Scale,
    low: f64,
    high: f64,
    /// Further rows of texts below those of the ticks, for fields that change together with the axis' own.
    rows: Vec<TickRow>,
}

/// Texts at positions of an axis.
#[derive(Clone, Debug)]
pub(super) struct TickRow {
    /// The name of the field.
    pub(super) title: String,
    /// The texts with their values on the axis.
    pub(super) ticks: Vec<(f64, String)>,
}

#[derive(Clone, Debug)]
enum Scale {
    Linear {
        step: f64,
    },
    /// The ticks are at powers of ten, or of two for sizes in bytes.
    Log {
        base: f64,
    },
    /// The values 0, 1, 2 and so on are shown as names.
    Names(Vec<String>),
}

/// Approximate number of ticks.
const TICKS: f64 = 5.0;

impl Axis {
    /// Creates a linear axis from 0 to a round number above every value.
    pub fn from_zero(title: &str, values: impl Iterator<Item = f64>) -> Self {
        Self::linear(title, std::iter::once(0.0).chain(values))
    }

    /// Creates a linear axis between round numbers around the values.
    pub fn linear(title: &str, values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = ends(values).unwrap_or((0.0, 1.0));
        // A single value has no range.
        let high = if high > low {
            high
        } else {
            low + high.abs().max(1.0)
        };
        let step = round_step((high - low) / TICKS);
        let low = (low / step + 1e-9).floor() * step;
        let high = ((high / step - 1e-9).ceil() * step).max(low + step);
        Self {
            title: title.to_owned(),
            scale: Scale::Linear { step },
            low,
            high,
            rows: Vec::new(),
        }
    }

    /// Creates a logarithmic axis around those of the values that are above 0.
    pub fn log(title: &str, values: impl Iterator<Item = f64>) -> Self {
        Self::logarithmic(title, 10.0, values)
    }

    /// Creates a logarithmic axis in powers of two, for sizes in bytes.
    pub fn log2(title: &str, values: impl Iterator<Item = f64>) -> Self {
        Self::logarithmic(title, 2.0, values)
    }

    fn logarithmic(title: &str, base: f64, values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = ends(values.filter(|value| *value > 0.0)).unwrap_or((1.0, base));
        let (low, high) = if base == 2.0 {
            (
                2_f64.powf((low.log2() + 1e-9).floor()),
                2_f64.powf((high.log2() - 1e-9).ceil()),
            )
        } else {
            (round_down(low), round_up(high))
        };
        Self {
            title: title.to_owned(),
            scale: Scale::Log { base },
            low,
            high: if high > low { high } else { low * base },
            rows: Vec::new(),
        }
    }

    /// Creates a logarithmic axis if the values, which are all above 0, span more than a factor of 20, or else a linear
    /// one from 0.
    pub(super) fn fitting(title: &str, values: impl Iterator<Item = f64>) -> Self {
        let values: Vec<f64> = values.collect();
        match ends(values.iter().copied()) {
            Some((low, high)) if low > 0.0 && high / low > 20.0 => {
                Self::log(title, values.into_iter())
            }
            _ => Self::from_zero(title, values.into_iter()),
        }
    }

    /// Creates an axis with names side by side.
    pub fn names(title: &str, names: Vec<String>) -> Self {
        Self {
            title: title.to_owned(),
            low: -0.5,
            high: names.len() as f64 - 0.5,
            scale: Scale::Names(names),
            rows: Vec::new(),
        }
    }

    /// Creates an axis of the numbers from 1 to `last`, each with its tick.
    pub fn counts(title: &str, last: u64) -> Self {
        Self {
            low: 0.5,
            high: last as f64 + 0.5,
            ..Self::names(title, (0..=last).map(|n| n.to_string()).collect())
        }
    }

    /// Adds a row of texts below those of the ticks.
    pub(super) fn with_row(mut self, row: TickRow) -> Self {
        self.rows.push(row);
        self
    }

    /// Returns the rows of texts below those of the ticks.
    pub(super) fn rows(&self) -> &[TickRow] {
        &self.rows
    }

    /// Returns the title with the names of the rows below the ticks.
    pub(super) fn full_title(&self) -> String {
        let rows: Vec<&str> = self.rows.iter().map(|row| row.title.as_str()).collect();
        if rows.is_empty() {
            self.title.clone()
        } else {
            format!("{}; below it: {}", self.title, rows.join(", "))
        }
    }

    /// Returns the number of names on an axis of names.
    pub(super) fn names_count(&self) -> Option<usize> {
        match &self.scale {
            Scale::Names(names) => Some(names.len()),
            _ => None,
        }
    }

    /// Returns whether the axis is logarithmic.
    pub(super) fn is_log(&self) -> bool {
        matches!(self.scale, Scale::Log { .. })
    }

    /// Returns the position of a value from 0 at the low end to 1 at the high end. Values outside are placed at the
    /// nearer end.
    pub(super) fn place(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Log { .. } => {
                (value.max(self.low).ln() - self.low.ln()) / (self.high.ln() - self.low.ln())
            }
            _ => (value - self.low) / (self.high - self.low),
        };
        share.clamp(0.0, 1.0)
    }

    /// Returns the text after the last comma of the title, or the whole title.
    pub(super) fn unit(&self) -> &str {
        self.title
            .rsplit_once(", ")
            .map_or(self.title.as_str(), |(_, unit)| unit)
    }

    /// Returns the greatest value of the axis.
    pub(super) fn high(&self) -> f64 {
        self.high
    }

    /// Returns the ends of the axis and whether it is logarithmic, as an attribute for programs that read the drawing.
    pub(super) fn data(&self) -> String {
        let kind = match self.scale {
            Scale::Linear { .. } => "lin",
            Scale::Log { .. } => "log",
            Scale::Names(_) => "names",
        };
        format!("{} {} {kind}", self.low, self.high)
    }

    /// Returns the positions and the texts of the ticks.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        match &self.scale {
            Scale::Linear { step } => {
                let count = ((self.high - self.low) / step).round();
                let ticks = (0..).take_while(|n| f64::from(*n) <= count);
                let places = significant(*step, 1).map(usize::try_from);
                let places = places.and_then(Result::ok).unwrap_or_default();
                ticks
                    .map(|n| self.low + f64::from(n) * step)
                    .map(|value| (value, short_to(clean(value, *step), places)))
                    .collect()
            }
            Scale::Log { base } if *base == 2.0 => {
                let powers = (self.high / self.low).log2().round();
                let every = (powers / 8.0).ceil().max(1.0);
                let at = |n: u32| self.low * 2_f64.powf(f64::from(n) * every);
                (0..)
                    .map(at)
                    .take_while(|value| *value <= self.high * 1.001)
                    .map(|value| (value, binary(value)))
                    .collect()
            }
            Scale::Log { .. } => decades(self.low, self.high),
            Scale::Names(names) => {
                let ticks = (0..).map(f64::from).zip(names.iter().cloned());
                ticks
                    .filter(|(value, _)| (self.low..self.high).contains(value))
                    .collect()
            }
        }
    }
}

/// Returns the least and the greatest finite value.
fn ends(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values
        .filter(|value| value.is_finite())
        .fold(None, |ends, value| match ends {
            None => Some((value, value)),
            Some((low, high)) => Some((low.min(value), high.max(value))),
        })
}

/// Rounds up to 1, 2 or 5 times a power of ten.
fn round_step(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let step = [1.0, 2.0, 5.0]
        .into_iter()
        .find(|step| value <= step * power * 1.000_001);
    step.unwrap_or(10.0) * power
}

fn round_up(value: f64) -> f64 {
    round_step(value)
}

fn round_down(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let step = [5.0, 2.0, 1.0]
        .into_iter()
        .find(|step| value >= step * power * 0.999_999);
    step.unwrap_or(1.0) * power
}

/// Returns the ticks of a logarithmic axis: 1, 2 and 5 of each decade, or only the 1 if there are many decades.
fn decades(low: f64, high: f64) -> Vec<(f64, String)> {
    let many = high / low > 300.0;
    let steps: &[f64] = if many { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let first = low.log10().floor();
    let last = high.log10().ceil();
    let every = if many {
        ((last - first) / 7.0).ceil().max(1.0)
    } else {
        1.0
    };
    let powers = (0..)
        .map(|n| first + f64::from(n) * every)
        .take_while(|power| *power <= last);
    let values = powers.flat_map(|power| steps.iter().map(move |step| step * 10_f64.powf(power)));
    let within = |value: &f64| *value >= low * 0.999 && *value <= high * 1.001;
    values
        .filter(within)
        .map(|value| (value, short(value)))
        .collect()
}

/// Removes the rounding error that adding steps leaves.
fn clean(value: f64, step: f64) -> f64 {
    if value.abs() < step / 2.0 { 0.0 } else { value }
}

/// Formats a number in few characters: "0.05", "250", "1.5M".
pub(super) fn short(value: f64) -> String {
    short_to(value, 0)
}

/// Formats a number like [`short`], but to at least this many decimal places if it is below 10,000, so that neighbouring
/// ticks differ.
fn short_to(value: f64, places: usize) -> String {
    let (scaled, suffix) = match value.abs() {
        v if v >= 1e9 => (value / 1e9, "G"),
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e4 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        v if v >= 100.0 || v == 0.0 => 0,
        v if v >= 1.0 => 2,
        v if v >= 0.01 => 4,
        _ => 7,
    };
    let digits = match suffix {
        "" => digits.max(places),
        _ => digits,
    };
    let text = format!("{scaled:.digits$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        &text
    };
    format!("{text}{suffix}")
}

/// Formats a number of bytes: "64", "4 Ki".
fn binary(value: f64) -> String {
    let units = [
        (1024.0_f64.powi(3), " Gi"),
        (1024.0_f64.powi(2), " Mi"),
        (1024.0, " Ki"),
    ];
    let unit = units.into_iter().find(|(unit, _)| value >= *unit);
    unit.map_or_else(|| short(value), |(unit, name)| short(value / unit) + name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(axis: &Axis) -> String {
        let ticks = axis.ticks().into_iter().map(|(_, text)| text);
        ticks.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn linear_axes_end_at_round_numbers() {
        let axis = |values: &[f64]| words(&Axis::from_zero("", values.iter().copied()));
        assert_eq!(axis(&[7.3, 2.0]), "0 2 4 6 8");
        assert_eq!(axis(&[0.95]), "0 0.2 0.4 0.6 0.8 1");
        assert_eq!(axis(&[]), "0 0.2 0.4 0.6 0.8 1");
        assert_eq!(axis(&[0.0, f64::NAN]), "0 0.2 0.4 0.6 0.8 1");
    }

    #[test]
    fn neighbouring_ticks_have_different_texts() {
        let axis = |values: &[f64]| words(&Axis::linear("", values.iter().copied()));
        let near_1 = "0.9994 0.9996 0.9998 1 1.0002 1.0004";
        assert_eq!(axis(&[0.9995, 1.0004]), near_1);
        assert_eq!(axis(&[100.0, 100.5]), "100 100.1 100.2 100.3 100.4 100.5");
    }

    #[test]
    fn logarithmic_axes_have_powers() {
        let log = |values: &[f64]| words(&Axis::log("", values.iter().copied()));
        assert_eq!(log(&[0.3, 7.0]), "0.2 0.5 1 2 5 10");
        assert_eq!(log(&[1.0, 2e5]), "1 10 100 1000 10k 100k");
        assert_eq!(
            words(&Axis::log2("", [64.0, 65_536.0].into_iter())),
            "64 256 1 Ki 4 Ki 16 Ki 64 Ki"
        );
        assert_eq!(log(&[3.0]), "2 5");
    }

    #[test]
    fn values_are_placed_in_proportion_and_within_the_axis() {
        let axis = Axis::log("", [1.0, 100.0].into_iter());
        assert!((axis.place(10.0) - 0.5).abs() < 1e-12);
        assert_eq!((axis.place(0.0), axis.place(1e9)), (0.0, 1.0));
        let axis = Axis::names("", vec!["a".to_owned(), "b".to_owned()]);
        assert_eq!((axis.place(0.0), axis.place(1.0)), (0.25, 0.75));
    }
}
