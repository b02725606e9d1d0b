//! The elements of the pictures.

use report::{Axis, Curve, Plot, Point, Shape};

/// A picture, and the name of its file without the ending.
pub(crate) struct Picture {
    pub(crate) name: &'static str,
    pub(crate) svg: String,
}

/// The look of formulas: black.
const FORMULA: usize = 4;

/// The height of a frame that is alone in its picture.
pub(crate) const HEIGHT: f64 = 200.0;

/// Makes a curve of counted values.
pub(crate) fn found(label: &str, look: usize, shape: Shape, points: Vec<Point>) -> Curve {
    Curve {
        label: Some(label.to_owned()),
        look,
        points,
        shape,
        faint: false,
    }
}

/// Makes a curve of a formula, as a line or with [`Shape::Hollow`] marks.
pub(crate) fn formula(label: &str, shape: Shape, points: Vec<Point>) -> Curve {
    found(label, FORMULA, shape, points)
}

/// Returns the points of a function of whole numbers.
pub(crate) fn by_number(
    numbers: impl Iterator<Item = u32>,
    value: impl Fn(u32) -> f64,
) -> Vec<Point> {
    numbers
        .map(|number| Point::at(f64::from(number), value(number)))
        .collect()
}

/// Makes an axis that begins and ends at these round numbers.
pub(crate) fn between(title: &str, from: f64, to: f64) -> Axis {
    Axis::linear(title, [from, to].into_iter())
}

/// Makes a picture of one frame, with `title` for readers who cannot see it.
pub(crate) fn picture(
    name: &'static str,
    title: &str,
    [x, y]: [Axis; 2],
    curves: Vec<Curve>,
) -> Picture {
    let plot = Plot {
        x,
        y,
        height: HEIGHT,
        curves,
    };
    let svg = plot.draw(title);
    Picture { name, svg }
}

/// The weight in each of many intervals of one width.
pub(crate) struct Bins {
    from: f64,
    width: f64,
    weights: Vec<f64>,
}

impl Bins {
    /// Makes `count` intervals between two values.
    pub(crate) fn new(from: f64, to: f64, count: u32) -> Self {
        Self {
            from,
            width: (to - from) / f64::from(count),
            weights: vec![0.0; count as usize],
        }
    }

    /// Adds a weight at a value; values outside are ignored.
    pub(crate) fn add(&mut self, value: f64, weight: f64) {
        let place = ((value - self.from) / self.width).floor();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "what is below 0 was sorted out, what is too much has no bin"
        )]
        let bin = if place >= 0.0 {
            self.weights.get_mut(place as usize)
        } else {
            None
        };
        if let Some(bin) = bin {
            *bin += weight;
        }
    }

    /// Computes the share of the values in each interval, in percent.
    pub(crate) fn of(mut self, values: &[f64]) -> Self {
        for value in values {
            self.add(*value, 100.0 / values.len() as f64);
        }
        self
    }

    /// Returns the corners of the steps.
    pub(crate) fn steps(&self) -> Vec<Point> {
        let bins = self.weights.iter().enumerate();
        let corners = bins.flat_map(|(bin, weight)| {
            let left = self.from + bin as f64 * self.width;
            [
                Point::at(left, *weight),
                Point::at(left + self.width, *weight),
            ]
        });
        corners.collect()
    }

    /// Returns the middle of each step.
    pub(crate) fn middles(&self) -> Vec<Point> {
        let bins = self.weights.iter().enumerate();
        let middle = |bin: usize| self.from + (bin as f64 + 0.5) * self.width;
        bins.map(|(bin, weight)| Point::at(middle(bin), *weight))
            .collect()
    }
}

/// Returns the means of the points in each of many intervals of one width, without empty intervals.
pub(crate) fn means(points: &[(f64, f64)], width: f64, until: f64) -> Vec<Point> {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "some hundreds"
    )]
    let count = (until / width).round() as u32;
    let mut sums = Bins::new(0.0, until, count);
    let mut counts = Bins::new(0.0, until, count);
    for (x, y) in points {
        sums.add(*x, *y);
        counts.add(*x, 1.0);
    }
    let both = sums.middles().into_iter().zip(counts.middles());
    both.filter(|(_, count)| count.y > 0.0)
        .map(|(sum, count)| Point::at(sum.x, sum.y / count.y))
        .collect()
}

/// Counts each distance from one number to the next, for distances up to `most`.
pub(crate) fn distances(numbers: &[usize], most: usize) -> Vec<f64> {
    let mut counts = vec![0.0; most + 1];
    for pair in numbers.windows(2) {
        if let Some(count) = counts.get_mut(pair[1] - pair[0]) {
            *count += 1.0;
        }
    }
    counts
}

/// Returns the numbers of the true values.
pub(crate) fn numbers(all: &[bool]) -> Vec<usize> {
    let all = all.iter().enumerate();
    all.filter(|(_, is)| **is)
        .map(|(number, _)| number)
        .collect()
}
