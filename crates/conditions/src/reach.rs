//! Conditions that cannot be reached: farwire says so before, because afterwards the effect looks like a measurement.

use model::{BitsPerSec, LinkConfig, Nanos, StageSpec};

/// The limits of a host, whatever the conditions are.
#[derive(Clone, Copy, Debug, Default)]
pub struct Host {
    /// The median lateness of a thread's wake-up: no packet is noticed sooner.
    pub wake_up: Nanos,
    /// The rate of the slower interface, at L1; `None` if nothing limits it.
    pub wire: Option<BitsPerSec>,
}

/// Returns the shortest delay above 0 in the conditions; `None` if there is none.
pub fn shortest_delay(link: &LinkConfig) -> Option<Nanos> {
    let stages = link.paths.iter().flat_map(|path| &path.stages);
    stages.filter_map(delay).min()
}

/// Returns a line for each delay and rate that `host` does not reach, and for each rate at which no packet ever waits
/// because another rate of the same hop is lower. A line begins with the stages that it concerns.
pub fn beyond(link: &LinkConfig, host: &Host) -> Vec<String> {
    let mut known: Vec<(String, Vec<&str>)> = Vec::new();
    for path in &link.paths {
        for stage in &path.stages {
            // Hops are meant to differ: bursts wait in a fast one, too.
            let of_hop = path.stages.iter().filter(|other| other.hop == stage.hop);
            let rates = of_hop.filter_map(rate);
            let slowest = rates.min_by_key(|&(_, rate)| rate.get());
            let of_delay = of_delay(stage, host).into_iter();
            for line in of_delay.chain(of_rate(stage, host, slowest)) {
                match known.iter_mut().find(|(other, _)| *other == line) {
                    Some((_, names)) if names.contains(&stage.name.as_str()) => {}
                    Some((_, names)) => names.push(&stage.name),
                    None => known.push((line, vec![&stage.name])),
                }
            }
        }
    }
    let lines = known.iter();
    lines
        .map(|(line, names)| format!("{}: {line}", names.join(", ")))
        .collect()
}

fn of_delay(stage: &StageSpec, host: &Host) -> Option<String> {
    let delay = delay(stage).filter(|&delay| delay < host.wake_up)?;
    Some(format!(
        "a delay of {delay} is less than the {} us that this host takes (median) to notice a packet: packets leave late by about \
         the difference",
        host.wake_up.0.div_ceil(1_000)
    ))
}

fn of_rate<'a>(
    stage: &StageSpec,
    host: &Host,
    slowest: Option<(&'a str, BitsPerSec)>,
) -> impl Iterator<Item = String> + use<'a> {
    let own = rate(stage).map(|(_, rate)| rate);
    let beyond = |own: BitsPerSec, other: BitsPerSec| (own.get() > other.get()).then_some(own);
    let cable = host.wire.and_then(|wire| {
        let own = beyond(own?, wire)?;
        Some(format!(
            "a rate of {own} exceeds the speed of the interfaces, {wire}, so no more than {wire} passes"
        ))
    });
    let other = slowest.and_then(|(name, least)| {
        let own = beyond(own?, least)?;
        Some(format!(
            "a rate of {own} has no effect, because {name} lets only {least} pass"
        ))
    });
    [cable, other].into_iter().flatten()
}

/// Returns the delay of every packet at a stage, if it is above 0.
fn delay(stage: &StageSpec) -> Option<Nanos> {
    Some(stage.effect.behaviour().propagation).filter(|&time| time > Nanos::ZERO)
}

/// Returns a stage's name and the rate that it always has.
fn rate(stage: &StageSpec) -> Option<(&str, BitsPerSec)> {
    let bottleneck = stage.effect.behaviour().bottleneck;
    let rate = bottleneck
        .filter(|_| stage.schedule.is_empty())?
        .constant_rate()?;
    Some((&stage.name, rate))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinkSpec;

    fn lines_of(text: &str, wake_up_us: u64, wire: Option<&str>) -> Vec<String> {
        let spec: LinkSpec = toml::from_str(text).unwrap();
        let host = Host {
            wake_up: Nanos::from_micros(wake_up_us),
            wire: wire.map(|rate| rate.parse().unwrap()),
        };
        beyond(&spec.to_link("box").unwrap().config, &host)
    }

    #[test]
    fn a_delay_below_the_hosts_latency_is_noted() {
        let lines = lines_of("delay = '5us'", 24, None);
        let [line] = &lines[..] else {
            panic!("{lines:?}")
        };
        let begin = "box.up.delay, box.down.delay: a delay of 5us is less than the 24 us that this host takes";
        assert!(line.starts_with(begin), "{line}");
        assert!(lines_of("delay = '25us'", 24, None).is_empty());
        assert!(lines_of("loss = '1%'", 24, None).is_empty());
        let netem = lines_of("up.netem = 'delay 5us'", 24, None);
        assert!(
            netem[0].starts_with("box.up.netem: a delay of 5us"),
            "{netem:?}"
        );
    }

    #[test]
    fn a_rate_above_that_of_the_interfaces_is_noted() {
        let lines = lines_of("up.rate = '2gbit'\ndown.rate = '1gbit'", 0, Some("1gbit"));
        assert_eq!(
            lines,
            [
                "box.up.rate: a rate of 2gbit exceeds the speed of the interfaces, 1gbit, so no more than 1gbit passes"
            ]
        );
    }

    #[test]
    fn a_packet_rate_is_not_compared_with_rates_of_bits() {
        let lines = lines_of("pps = 1000\nrate = '10mbit'", 0, Some("1mbit"));
        assert!(lines[0].starts_with("box.up.rate"), "{lines:?}");
        assert!(lines.iter().all(|line| !line.contains("pps")), "{lines:?}");
    }

    #[test]
    fn a_rate_of_netem_is_noted_too() {
        let lines = lines_of("up.netem = 'rate 2gbit'", 0, Some("1gbit"));
        assert!(
            lines[0]
                .starts_with("box.up.netem: a rate of 2gbit exceeds the speed of the interfaces"),
            "{lines:?}"
        );
    }

    #[test]
    fn a_rate_above_another_rate_is_noted() {
        let stages = |hop, rate| {
            let spec: LinkSpec = toml::from_str(&format!("up.rate = '{rate}'")).unwrap();
            spec.to_link(hop).unwrap().config.paths.remove(0).stages
        };
        let both = [stages("wire", "1mbit"), stages("box", "2mbit")].concat();
        let lines = beyond(&LinkConfig::new(1, both, Vec::new()), &Host::default());
        assert_eq!(
            lines,
            [
                "box.up.rate: a rate of 2mbit has no effect, because wire.up.rate lets only 1mbit pass"
            ]
        );
    }

    #[test]
    fn the_rates_of_different_hops_are_not_compared() {
        let two = "rate = '2mbit'\n[[hops]]\nname = 'a'\nrate = '1mbit'";
        assert!(lines_of(two, 0, None).is_empty());
        let one = "[[hops]]\nname = 'a'\nup = { rate = '2mbit', netem = 'rate 1mbit' }";
        let lines = lines_of(one, 0, None);
        assert_eq!(
            lines,
            [
                "box.a.up.rate: a rate of 2mbit has no effect, because box.a.up.netem lets only 1mbit pass"
            ]
        );
    }

    #[test]
    fn the_shortest_delay_is_found() {
        let link = |text: &str| {
            let spec: LinkSpec = toml::from_str(text).unwrap();
            shortest_delay(&spec.to_link("box").unwrap().config)
        };
        assert_eq!(
            link("up.delay = '2ms'\ndown.delay = '1ms'"),
            Some(Nanos::from_millis(1))
        );
        assert_eq!(link("loss = '1%'"), None);
    }
}
