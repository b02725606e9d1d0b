//! The chart "What happened when?": rates, and below them the round-trip times and losses of the same seconds. There is
//! a drawing for each case and each group of instruments that ran simultaneously.

use super::axis::Axis;
use super::plot::{Curve, Plot, Point, Shape, stack};
use super::same_time::{FROM_TOP, ObservedGroup, Track, TrackQuantity};
use super::{ChartQuestion, Drawing, file_name};
use crate::analysis::intervals::RateQuantity;
use crate::analysis::{Analysis, CaseFigures};
use crate::case_labels::CaseLabels;
use crate::distinct;
use record::Metric;
use record::quantity::quantity;

/// Greatest number of points in a curve of this width; with more, neighbouring values are averaged.
const MOST_POINTS: usize = 220;
/// Greatest number of points in all drawings together, which limits the size of the page.
const MOST_IN_ALL: usize = 60_000;
/// Greatest number of repeats, beyond which curves cannot be followed by eye.
const MOST_REPEATS: usize = 8;
/// Drawings of the same instruments share their vertical axes unless the greatest value is more than this many times
/// the least.
const SHARED_WITHIN: f64 = 10.0;

/// The upper ends of the vertical axes that several drawings share, by quantity.
type SharedMaxima = [Option<f64>; FROM_TOP.len()];

/// One case, and a group of instruments that ran simultaneously in it.
struct Panel<'a> {
    case: &'a CaseFigures<'a>,
    /// The words that identify the case.
    label: String,
    /// Names of the instruments, joined by "+".
    names: String,
    seen: ObservedGroup,
    left_out: usize,
}

/// Returns the chart of each case over time.
pub(super) fn question(analysis: &Analysis<'_>) -> ChartQuestion {
    let cases = &analysis.cases;
    let labels = CaseLabels::of_all(analysis.record.plan());
    let labels = &labels;
    let tracks: usize = cases
        .iter()
        .map(|case| case.runs.len().min(MOST_REPEATS) * case.case.instruments.len())
        .sum();
    let most = (MOST_IN_ALL / tracks.max(1)).clamp(12, MOST_POINTS);
    let mut panels: Vec<Panel<'_>> = cases
        .iter()
        .flat_map(|case| {
            let groups = case.case.groups().into_iter();
            groups.map(move |group| Panel {
                case,
                label: labels.words(case.case),
                names: names(group.iter().map(|instrument| instrument.name.as_str())),
                seen: ObservedGroup::of(case, group, most, MOST_REPEATS),
                left_out: case.runs.len().saturating_sub(MOST_REPEATS),
            })
        })
        .filter(|panel| !panel.seen.is_empty())
        .collect();
    // Drawings of the same instruments are neighbours, to be compared; those with rates come first.
    panels.sort_by_key(|panel| !has_rate(&panel.seen));
    let kinds = distinct(panels.iter().map(|panel| panel.names.clone()));
    panels.sort_by_key(|panel| kinds.iter().position(|names| *names == panel.names));
    let shared_maxima: Vec<SharedMaxima> = kinds
        .iter()
        .map(|names| shared_maxima(&panels, names))
        .collect();
    let drawings = panels.iter().map(|panel| {
        let kind = kinds.iter().zip(&shared_maxima);
        let mut own = kind.filter(|(names, _)| **names == panel.names);
        panel.draw(
            own.next()
                .map_or(&[None; FROM_TOP.len()], |(_, shared_maxima)| shared_maxima),
        )
    });
    ChartQuestion {
        heading: "Over time",
        note: note(&panels, &shared_maxima, most),
        drawings: drawings.collect(),
    }
}

/// Returns the greatest value of each quantity in the drawings of these instruments; `None` if they differ too much to
/// share an axis.
fn shared_maxima(panels: &[Panel<'_>], names: &str) -> SharedMaxima {
    FROM_TOP.map(|quantity| {
        let own = panels.iter().filter(|panel| panel.names == names);
        let shared_maxima = own.filter_map(|panel| panel.seen.top(quantity));
        let (least, greatest) = shared_maxima
            .fold((f64::INFINITY, 0.0_f64), |(least, most), top| {
                (least.min(top), most.max(top))
            });
        (quantity == TrackQuantity::Loss || greatest <= least * SHARED_WITHIN).then_some(greatest)
    })
}

fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    names.collect::<Vec<_>>().join(" + ")
}

/// Returns the note on how to read the drawings.
fn note(panels: &[Panel<'_>], shared: &[SharedMaxima], most: usize) -> String {
    let any = |quantity: TrackQuantity| panels.iter().any(|panel| panel.seen.has(quantity));
    let tracks = || panels.iter().flat_map(|panel| &panel.seen.tracks);
    let several = panels.iter().any(|panel| panel.case.runs.len() > 1);
    let mut parts = Vec::new();
    for quantity in RateQuantity::ALL {
        if any(TrackQuantity::Rate(quantity)) {
            parts.push(in_words(quantity).to_owned());
        }
    }
    if any(TrackQuantity::RoundTrip) {
        parts.push(
            "RTT: the round-trip time of each probe, at the time at which it was sent.".to_owned(),
        );
    }
    if tracks().any(|track| track.is_smoothed) {
        parts.push("The RTT of TCP is the smoothed value of the sending kernel.".to_owned());
    }
    if any(TrackQuantity::Queue) || any(TrackQuantity::Drops) {
        parts.push(
            "Queue and drops: those of the emulated link in the first repeat, read ten times a second; a direction in which \
             nothing waited or was dropped is not drawn."
                .to_owned(),
        );
    }
    if FROM_TOP
        .into_iter()
        .any(|one| one.is_condition() && any(one))
    {
        parts.push(
            "Link rate, delay and loss: the conditions in force, by its schedule, trace, outages and handovers; not drawn \
             where they did not change."
                .to_owned(),
        );
    }
    if any(TrackQuantity::Loss) {
        parts.push(
            "Loss: the share of lost probes in groups of ten or more neighbouring ones; not drawn if no probe was lost, or if there are fewer than 40."
                .to_owned(),
        );
    }
    if several {
        parts.push("Further repeats are paler.".to_owned());
    }
    if panels.iter().any(|panel| panel.seen.published.is_some()) {
        parts.push("Dashed beside a goodput: the published mean.".to_owned());
    }
    if panels.iter().any(|panel| panel.seen.requested.is_some()) {
        parts.push("Dashed beside a sent rate: the requested rate.".to_owned());
    }
    if shared.iter().flatten().any(Option::is_none) {
        parts.push("The vertical axes differ.".to_owned());
    }
    if tracks().any(|track| track.is_thinned) {
        parts.push(format!(
            "Curves have at most {most} points: the mean of neighbouring intervals, the least and the greatest of neighbouring probes."
        ));
    }
    if panels.iter().any(|panel| panel.left_out > 0) {
        parts.push(format!(
            "The first {MOST_REPEATS} repeats of a case are drawn."
        ));
    }
    parts.join(" ")
}

fn has_rate(seen: &ObservedGroup) -> bool {
    let mut all = RateQuantity::ALL.into_iter();
    all.any(|quantity| seen.has(TrackQuantity::Rate(quantity)))
}

/// Explains how to read the curves of a rate.
fn in_words(quantity: RateQuantity) -> &'static str {
    match quantity {
        RateQuantity::Goodput => {
            "Goodput: the payload that arrived in each interval, divided by its length."
        }
        RateQuantity::IpCapacity => {
            "IP-layer capacity: the IP packets that arrived in each interval, divided by its length."
        }
        RateQuantity::Sent => {
            "Sent rate: the payload that the sender handed to its socket in each interval, divided by its length; not all of it need have arrived."
        }
    }
}

impl Panel<'_> {
    fn draw(&self, shared: &SharedMaxima) -> Drawing {
        let x = Axis::from_zero("seconds", self.seen.times());
        let looks = self.looks();
        let frames: Vec<Plot> = FROM_TOP
            .into_iter()
            .zip(shared)
            .filter(|(quantity, _)| self.seen.has(*quantity))
            .map(|(quantity, shared)| {
                let top = shared.or(self.seen.top(quantity)).unwrap_or_default();
                self.frame(quantity, &x, top, &looks)
            })
            .collect();
        let shown = names(self.instruments().into_iter());
        let title = self.case.case.title.clone();
        let lines = [Some(title), self.above_limit()].into_iter().flatten();
        let lines: Vec<String> = lines.filter(|line| !line.is_empty()).collect();
        Drawing {
            file: file_name(&["over-time", &self.names, self.case.name()]),
            svg: stack(&frames, &format!("{shown} over time, {}", self.label)),
            caption: format!("{}: {shown}", self.label),
            below: lines.join(". "),
            about: self.about(),
        }
    }

    /// Explains a goodput above the limit of the link.
    fn above_limit(&self) -> Option<String> {
        let limit = quantity(Metric::GoodputBitPerS, self.seen.exceeded?);
        Some(format!(
            "Goodput above the link's limit of {limit} is delivery after a stall: data that waited behind a lost packet, or in a \
             buffer, reaches the application at one moment"
        ))
    }

    /// Describes each of its frames in a sentence.
    fn about(&self) -> String {
        let shown = FROM_TOP
            .into_iter()
            .filter(|quantity| self.seen.has(*quantity));
        let sentences =
            shown.map(|quantity| format!("{}: {}", quantity.title(), quantity.meaning()));
        sentences.collect::<Vec<_>>().join(" ")
    }

    fn instruments(&self) -> Vec<&str> {
        let tracks = self.seen.tracks.iter();
        let measured = tracks.filter(|track| !track.quantity.is_of_link());
        distinct(measured.map(|track| track.instrument.as_str()))
    }

    /// Returns the labels of the legend, whose positions determine the looks.
    fn looks(&self) -> Vec<String> {
        distinct(self.seen.tracks.iter().map(|track| track.label.clone()))
    }

    fn frame(&self, quantity: TrackQuantity, x: &Axis, top: f64, looks: &[String]) -> Plot {
        let title = quantity.title();
        let (by, unit) = quantity.scale(top);
        let mut own: Vec<&str> = Vec::new();
        let mut curves = Vec::new();
        for track in self.seen.of_quantity(quantity) {
            let known = own.iter().position(|label| *label == track.label);
            let nth = known.unwrap_or_else(|| {
                own.push(&track.label);
                own.len() - 1
            });
            curves.push(track.curve(looks, nth, by));
        }
        for ((label, level), look) in self.seen.levels(quantity).into_iter().zip([4, 5]) {
            let points = [0.0, x.high()].map(|at| Point::at(at, level / by)).into();
            curves.push(Curve::new(
                Some(label.to_owned()),
                look,
                Shape::Level,
                points,
            ));
        }
        let height = match quantity {
            TrackQuantity::Rate(_) => 150.0,
            TrackQuantity::RoundTrip => 130.0,
            TrackQuantity::Queue
            | TrackQuantity::LinkRate
            | TrackQuantity::LinkDelay
            | TrackQuantity::LinkLoss => 90.0,
            TrackQuantity::Loss | TrackQuantity::Drops => 60.0,
        };
        Plot {
            x: x.clone(),
            y: Axis::from_zero(&format!("{title}, {unit}"), std::iter::once(top / by)),
            height,
            curves,
        }
    }
}

impl Track {
    /// Returns the curve in a unit that is `by` times the metric's own.
    fn curve(&self, looks: &[String], nth: usize, by: f64) -> Curve {
        let look = looks.iter().position(|known| *known == self.label);
        Curve {
            label: Some(format!("{}, run {}", self.label, self.repeat)),
            look: look.unwrap_or_default(),
            points: self
                .points
                .iter()
                .map(|(x, y)| Point::at(*x, *y / by))
                .collect(),
            shape: Shape::Trace(nth),
            faint: !self.is_first,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::charts::geometry;
    use record::link_history::{DirectionHistory, LinkHistory};
    use record::summary::Summary;
    use record::{LinkCounts, Record, Sample};

    /// The small record with five pings in each run.
    fn pinged() -> Record {
        let mut record = crate::analysis::tests::record();
        for run in &mut record.runs {
            let sample =
                |index: u32| Sample::new(f64::from(index) * 0.1, Metric::RttMs, index.into(), 1.0);
            run.measurements[0].measurement.samples = (1..=5).map(sample).collect();
        }
        record
    }

    /// The same, with ping and download running simultaneously, the download half a second later.
    fn together() -> Record {
        let mut record = pinged();
        for instrument in record
            .head
            .plan
            .cases
            .iter_mut()
            .flat_map(|c| &mut c.instruments)
        {
            instrument.group = Some("loaded".to_owned());
        }
        for run in &mut record.runs {
            run.measurements[0].started_at = "2026-01-01T00:00:00.000Z".to_owned();
            run.measurements[1].started_at = "2026-01-01T00:00:00.500Z".to_owned();
        }
        record
    }

    fn question_of(record: &Record) -> ChartQuestion {
        question(&Analysis::of(record))
    }

    fn axes(svg: &str) -> Vec<&str> {
        let frames = svg.split("data-x=\"").skip(1);
        frames.filter_map(|rest| rest.split('"').next()).collect()
    }

    #[test]
    fn round_trips_are_below_the_goodput_on_the_same_time_axis() {
        let question = question_of(&together());
        assert_eq!(question.drawings.len(), 2);
        for drawing in &question.drawings {
            let axes = axes(&drawing.svg);
            assert!(axes.len() >= 2, "{axes:?}");
            assert!(axes.iter().all(|axis| *axis == axes[0]), "{axes:?}");
            assert_eq!(drawing.svg.matches(">seconds<").count(), 1);
            let place = |title: &str| drawing.svg.find(title).unwrap();
            assert!(place(">goodput, Mbit/s<") < place(">RTT, ms<"));
        }
    }

    #[test]
    fn rates_below_1_mbit_are_drawn_in_kbit() {
        let mut record = together();
        for case in &mut record.head.plan.cases {
            case.published.clear();
        }
        for run in &mut record.runs {
            for sample in &mut run.measurements[1].measurement.samples {
                sample.value /= 1e3;
            }
        }
        for drawing in &question_of(&record).drawings {
            assert!(drawing.svg.contains(">goodput, kbit/s<"), "{}", drawing.svg);
        }
    }

    #[test]
    fn losses_have_a_frame_if_there_are_any() {
        let mut record = together();
        let losses = |record: &Record| {
            let question = question_of(record);
            question.drawings[0].svg.matches(">loss, %<").count()
        };
        assert_eq!(losses(&record), 0);
        for run in &mut record.runs {
            let samples = &mut run.measurements[0].measurement.samples;
            *samples = (1..=60)
                .map(|index: u64| {
                    let metric = if index == 30 {
                        Metric::LostPackets
                    } else {
                        Metric::RttMs
                    };
                    Sample::new(index as f64 * 0.1, metric, index, 1.0)
                })
                .collect();
        }
        assert_eq!(losses(&record), 1);
    }

    #[test]
    fn a_curve_of_two_points_is_not_drawn() {
        let mut record = pinged();
        for run in &mut record.runs {
            for measured in &mut run.measurements {
                measured.measurement.samples.truncate(2);
            }
        }
        assert!(question_of(&record).drawings.is_empty());
    }

    #[test]
    fn the_queue_and_the_drops_of_the_link_are_below_the_goodput() {
        let mut record = together();
        let at_s: Vec<f64> = (0..30).map(|at| f64::from(at) * 0.1).collect();
        let down = DirectionHistory {
            queue_packets: vec![5; 30],
            queue_bytes: vec![7_500; 30],
            queue_ms: vec![3.0; 30],
            dropped: [("queue_full".to_owned(), (0..30).collect())].into(),
        };
        let link = LinkCounts {
            history: Some(LinkHistory {
                started_at: "2026-01-01T00:00:00.000Z".to_owned(),
                at_s,
                up: DirectionHistory::default(),
                down,
            }),
            ..LinkCounts::of(("link".to_owned(), Summary::default()))
        };
        record.runs[0].links = vec![link];
        let drawing = &question_of(&record).drawings[0];
        let svg = &drawing.svg;
        let place = |title: &str| {
            svg.find(title)
                .unwrap_or_else(|| panic!("{title} in {svg}"))
        };
        assert!(place(">goodput, Mbit/s<") < place(">queue, ms<"));
        assert!(place(">queue, ms<") < place(">drops, 1/s<"));
        assert!(svg.contains("queue down, run 1"), "{svg}");
        assert!(svg.contains("drops down, queue full, run 1"), "{svg}");
        assert!(!svg.contains("queue up"), "{svg}");
        assert_eq!(drawing.caption, "base: ping + download");
        assert_eq!(geometry::overlaps(svg), Vec::<String>::new());
    }

    #[test]
    fn conditions_that_change_are_drawn_from_the_time_at_which_the_link_began() {
        let mut record = together();
        let conditions = "rate = '20mbit'\ndelay = '5ms'\nschedule = [{ at = '300ms', rate = '10mbit' }, { at = '900ms', rate = '4mbit' }]\n\
                          [down]\nschedule = [{ at = '1h', delay = '9ms' }]";
        for case in &mut record.head.plan.cases {
            case.link = toml::from_str(conditions).unwrap();
        }
        let drawn = |record: &Record| question_of(record).drawings[0].svg.clone();
        record.runs[0].links = vec![LinkCounts::of(("link".to_owned(), Summary::default()))];
        assert!(!drawn(&record).contains("link rate"));
        record.runs[0].links[0].begins_at = Some("2025-12-31T23:59:59.500Z".to_owned());
        let svg = drawn(&record);
        assert!(svg.contains(">link rate, Mbit/s<"), "{svg}");
        // The first step was before the first instrument.
        assert!(svg.contains("rate, run 1"), "{svg}");
        assert!(
            !svg.contains("rate up") && !svg.contains(">link delay"),
            "{svg}"
        );
        assert_eq!(geometry::overlaps(&svg), Vec::<String>::new());
        let question = question_of(&record);
        assert!(
            question.note.contains("the conditions in force"),
            "{}",
            question.note
        );
        assert!(
            question.drawings[0]
                .about
                .contains("of the emulated link in force")
        );
    }

    #[test]
    fn a_goodput_above_the_link_is_explained() {
        let mut record = together();
        for case in &mut record.head.plan.cases {
            case.link = toml::from_str("rate = '20mbit'").unwrap();
        }
        assert!(
            !question_of(&record).drawings[0]
                .below
                .contains("after a stall")
        );
        let samples = &mut record.runs[0].measurements[1].measurement.samples;
        samples[2].value *= 4.0;
        let question = question_of(&record);
        let drawing = &question.drawings[0];
        assert!(
            drawing.below.contains("delivery after a stall"),
            "{}",
            drawing.below
        );
        assert!(
            drawing.svg.contains(">limit of the link<"),
            "{}",
            drawing.svg
        );
    }

    #[test]
    fn an_instrument_that_started_later_is_drawn_later() {
        let record = together();
        let analysis = Analysis::of(&record);
        let case = &analysis.cases[0];
        let seen = ObservedGroup::of(case, case.case.groups()[0], 100, 1);
        let first = |quantity| seen.of_quantity(quantity).next().unwrap().points[0].0;
        let samples = &case.runs[0].measurements[0].measurement.samples;
        assert!((first(TrackQuantity::RoundTrip) - samples[0].at_s).abs() < 1e-9);
        assert!(first(TrackQuantity::Rate(RateQuantity::Goodput)) > 0.5);
    }

    #[test]
    fn instruments_that_did_not_run_simultaneously_share_no_axis() {
        let drawings = question_of(&pinged()).drawings;
        assert_eq!(drawings.len(), 4);
        assert!(drawings.iter().all(|drawing| axes(&drawing.svg).len() == 1));
    }
}
