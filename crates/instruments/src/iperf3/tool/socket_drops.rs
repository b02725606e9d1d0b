//! Counts of datagrams that a tool reports as lost although its own full UDP socket dropped them, by the counters of
//! the receiving namespace.

use std::sync::Arc;

use netio::UdpErrors;
use netio::netns::NetNs;
use netio::udp::MOST_SEGMENTS;
use record::quantity::counted;
use record::{Direction, Figure, Measurement, Metric};
use stats::proportion;

use super::{nearest, whole};
use crate::Session;

/// The counters of both ends' namespaces before a tool measures.
pub(super) struct SocketWatch {
    near: Option<UdpErrors>,
    far: Option<(Arc<NetNs>, UdpErrors)>,
    /// The number of datagrams that one drop at the far end may represent.
    far_train: u64,
}

/// The most datagrams that found a socket full at each receiving end, or `None` if that is unknown.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SocketDrops {
    up: Option<u64>,
    down: Option<u64>,
}

impl SocketWatch {
    /// Reads the counters before a tool starts, on the thread where it will run. farwire's own far end receives trains,
    /// which the kernel counts as one drop; the servers of tools receive single datagrams.
    pub(super) fn begin(session: &Session, is_served_by_farwire: bool) -> Self {
        let far = session.far.clone();
        Self {
            near: UdpErrors::so_far().ok(),
            far: far.and_then(|far| {
                let before = far.run(UdpErrors::so_far).ok()?.ok()?;
                Some((far, before))
            }),
            far_train: if is_served_by_farwire {
                MOST_SEGMENTS as u64
            } else {
                1
            },
        }
    }

    /// Counts the drops since the start.
    pub(super) fn end(self) -> SocketDrops {
        let now = UdpErrors::so_far().ok();
        let near = now.zip(self.near);
        let far = self.far.and_then(|(far, before)| {
            let now = far.run(UdpErrors::so_far).ok()?.ok()?;
            Some(now.since(before).no_room.saturating_mul(self.far_train))
        });
        SocketDrops {
            up: far,
            down: near.map(|(now, before)| now.since(before).no_room),
        }
    }
}

impl SocketDrops {
    /// Extends the intervals of loss and goodput of a measurement by these drops, which the tool counts as lost.
    pub(super) fn widen_intervals(self, mut measurement: Measurement) -> Measurement {
        let mut facts = Vec::new();
        for (direction, drops) in [(Direction::Up, self.up), (Direction::Down, self.down)] {
            if widen_direction(&mut measurement.figures, direction, drops) {
                let fact = format!("interval {}", direction.name());
                facts.push((fact, in_words(drops)));
            }
        }
        facts
            .into_iter()
            .fold(measurement, |all, (name, text)| all.with_fact(&name, text))
    }
}

/// Extends the intervals of this direction's loss and goodput by up to `drops` datagrams. Returns whether there is a
/// loss with known counts.
fn widen_direction(figures: &mut [Figure], direction: Direction, drops: Option<u64>) -> bool {
    let of = |metric| whole(figures, metric, direction);
    let counts = of(Metric::LostPackets).zip(of(Metric::SentPackets));
    let Some((lost, sent)) = counts.filter(|(lost, sent)| *sent > 0.0 && lost <= sent) else {
        return false;
    };
    let dropped = drops.map_or(lost, |drops| lost.min(drops as f64));
    let ends = |lost: f64| proportion::wilson(nearest(lost), nearest(sent));
    // The rate is over the sender's time, if that is shorter than the receiver's.
    let sent_rate = of(Metric::SentRateBitPerS).unwrap_or(0.0) * (sent - lost + dropped) / sent;
    let least = ends(lost - dropped).map_or(0.0, |[low, _]| low);
    let most = ends(lost).map_or(1.0, |[_, high]| high);
    for figure in figures.iter_mut() {
        if (figure.direction, figure.stream) != (Some(direction), None) {
            continue;
        }
        match figure.metric {
            Metric::LostPercent => figure.interval = Some([100.0 * least, 100.0 * most]),
            Metric::LostPackets => figure.interval = Some([lost - dropped, lost]),
            Metric::GoodputBitPerS if dropped > 0.0 && lost < sent => {
                let carried = (sent - lost + dropped) / (sent - lost);
                let most = (figure.value * carried).max(sent_rate);
                figure.interval = Some([figure.value, most]);
            }
            _ => {}
        }
    }
    true
}

fn in_words(drops: Option<u64>) -> String {
    let cause = match drops {
        None => "a tool counts datagrams that its own full socket dropped as lost, and does not report their number, so the \
                 network may have lost none, and its goodput may be the sent rate"
            .to_owned(),
        Some(0) => "no UDP socket of the receiving host was full".to_owned(),
        Some(drops) => format!(
            "up to {} arrived at a full UDP socket of the receiving host, and the tool counts them as lost",
            counted(drops, "datagram")
        ),
    };
    format!("95 %, by Wilson; {cause}")
}

#[cfg(test)]
mod tests {
    use super::super::tests::tool_measurement;
    use super::*;

    fn interval(measurement: &Measurement, metric: Metric) -> Option<[f64; 2]> {
        measurement
            .figures
            .iter()
            .find(|figure| figure.metric == metric)?
            .interval
    }

    /// Returns a measurement of 2,000 sent datagrams, with these numbers lost and dropped.
    fn allowed(lost: f64, up: Option<u64>) -> Measurement {
        let drops = SocketDrops { up, down: Some(9) };
        drops.widen_intervals(tool_measurement(2000.0, lost))
    }

    #[test]
    fn the_loss_of_a_network_may_be_none_where_a_tool_s_own_socket_may_have_been_full() {
        let measurement = allowed(28.0, None);
        let [low, high] = interval(&measurement, Metric::LostPercent).unwrap();
        assert_eq!(low, 0.0);
        assert!((high - 2.016).abs() < 0.001, "{high}");
        let [low, high] = interval(&measurement, Metric::GoodputBitPerS).unwrap();
        assert_eq!((low, high.round()), (9_860_000.0, 10_000_000.0));
        let none = allowed(0.0, None);
        assert_eq!(interval(&none, Metric::LostPercent).unwrap()[0], 0.0);
        assert_eq!(interval(&none, Metric::GoodputBitPerS), None);
    }

    #[test]
    fn without_socket_drops_the_loss_is_the_network_s() {
        let measurement = allowed(28.0, Some(0));
        let [low, high] = interval(&measurement, Metric::LostPercent).unwrap();
        assert!((0.9..1.0).contains(&low) && high > 2.0, "{low} {high}");
        assert_eq!(interval(&measurement, Metric::LostPackets), Some([28.0; 2]));
        assert_eq!(interval(&measurement, Metric::GoodputBitPerS), None);
        assert!(measurement.facts["interval up"].contains("no UDP socket"));
        // No datagram went down.
        assert!(!measurement.facts.contains_key("interval down"));
    }

    #[test]
    fn datagrams_that_found_a_socket_full_may_not_be_the_network_s_loss() {
        let measurement = allowed(28.0, Some(10));
        assert_eq!(
            interval(&measurement, Metric::LostPackets),
            Some([18.0, 28.0])
        );
        let [low, _] = interval(&measurement, Metric::LostPercent).unwrap();
        assert!((0.5..0.6).contains(&low), "{low}");
        let [_, high] = interval(&measurement, Metric::GoodputBitPerS).unwrap();
        assert_eq!(high.round(), 9_910_000.0);
        let all = allowed(28.0, Some(1000));
        assert_eq!(interval(&all, Metric::LostPercent).unwrap()[0], 0.0);
        assert!(all.facts["interval up"].contains("up to 1000 datagrams"));
    }
}
