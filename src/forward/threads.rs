//! Distributes many links over several forwarders, each of which has its own thread, rings, agenda
//! and memory. They share nothing that a packet touches.

use std::fmt;
use std::num::NonZeroUsize;
use std::ops::Range;
use std::str::FromStr;
use std::sync::mpsc::Receiver;

use anyhow::Result;
use conditions::EmulatedLink;
use netio::{AfPacket, OpenError, PortSet, Wakes, clock, cpu};
use record::lateness::FlowDepartures;
use record::summary::Summary;

use super::PortId;
use super::thread::{
    ForwarderHandle, ForwarderOptions, ForwarderThread, PlacedLink, RING_SLOTS, StartingForwarder,
};

/// The number of forwarder threads that a user asks for: `auto` or a number from 1 to
/// [`ThreadCount::MOST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ThreadCount {
    /// This means one for each processor but one, up to [`ThreadCount::MOST_AUTO`]. Threads on all processors would leave
    /// too little time to the ends and to the interrupts of network cards.
    Auto,
    /// The user has given this number.
    Number(NonZeroUsize),
}

/// The sets of ports of a thread, and the links between them.
pub(crate) type PortsAndLinks = (Vec<AfPacket>, Vec<PlacedLink>);

/// The forwarders of a process, and the links of each. Consecutive links belong to the same one.
#[derive(Debug)]
pub(crate) struct Forwarders {
    threads: Vec<ForwarderThread>,
    /// The links of each thread.
    links: Vec<Range<usize>>,
}

impl ThreadCount {
    /// One thread.
    pub(crate) const ONE: Self = Self::Number(NonZeroUsize::MIN);
    /// The largest number of threads.
    const MOST: usize = 256;
    /// The largest number of threads for `auto`. Every frame passes the filters of all threads'
    /// sockets, which costs more with each thread.
    const MOST_AUTO: usize = 16;

    /// Returns the number of threads for this number of links, at least one and at most one for each
    /// link.
    pub(crate) fn of_links(self, links: usize) -> usize {
        let wanted = match self {
            Self::Auto => cpu::available().saturating_sub(1).min(Self::MOST_AUTO),
            Self::Number(number) => number.get(),
        };
        wanted.clamp(1, links.max(1))
    }
}

impl FromStr for ThreadCount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let number = text
            .parse()
            .ok()
            .filter(|number: &NonZeroUsize| number.get() <= Self::MOST);
        number.map(Self::Number).ok_or_else(|| {
            format!(
                "`{text}` is no number of threads: write auto or a number from 1 to {}",
                Self::MOST
            )
        })
    }
}

impl fmt::Display for ThreadCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Number(number) => fmt::Display::fmt(number, f),
        }
    }
}

/// Divides `links` among `threads` as evenly as possible. Consecutive links stay together, because
/// the interfaces of neighbours usually have consecutive numbers, which makes the sockets' filters
/// short.
pub(crate) fn distribute(links: usize, threads: usize) -> Vec<Range<usize>> {
    let from = |thread: usize| thread * links / threads;
    (0..threads)
        .map(|thread| from(thread)..from(thread + 1))
        .collect()
}

/// Opens the interfaces of a thread's links, two for each link, in the network namespace of the calling
/// thread. The two of a single link have separate rings, so that what the kernel drops there has a
/// direction. Several links share rings.
///
/// # Errors
/// See [`OpenError`].
pub(crate) fn open(interfaces: &[&str]) -> Result<Vec<AfPacket>, OpenError> {
    match interfaces {
        [a, b] => Ok(AfPacket::open_pair([*a, *b], RING_SLOTS)?.into()),
        _ => Ok(vec![AfPacket::open_all(interfaces, RING_SLOTS)?]),
    }
}

/// Joins the links of each thread with its sets of ports: two separate sets of one link, or a set that
/// its links share. `shares` are the numbers of each thread's links.
pub(crate) fn place(
    sets: Vec<Vec<AfPacket>>,
    shares: &[Range<usize>],
    links: Vec<EmulatedLink>,
) -> Vec<PortsAndLinks> {
    let mut links = links.into_iter();
    let with_links = |(sets, share): (Vec<AfPacket>, &Range<usize>)| {
        let has_separate_sets = sets.len() > 1;
        let place = |(number, link)| PlacedLink {
            ports: if has_separate_sets {
                PortId::SEPARATE_SETS
            } else {
                PortId::in_one_set(number)
            },
            link,
        };
        let own = (0..).zip(links.by_ref().take(share.len()));
        (sets, own.map(place).collect())
    };
    sets.into_iter().zip(shares).map(with_links).collect()
}

impl Forwarders {
    /// Starts a forwarder for each group of ports and links. `links` are the numbers of each group's
    /// links among all. The time of all links begins at the same instant.
    pub(crate) fn start(
        groups: Vec<PortsAndLinks>,
        links: Vec<Range<usize>>,
        options: ForwarderOptions,
    ) -> Result<Self> {
        Self::start_between(groups, AfPacket::ring_bytes, links, options)
    }

    /// Does the same between ports of any kind, with a function that returns the size of the rings of
    /// one set.
    fn start_between<P: PortSet + Wakes + Send + 'static>(
        groups: Vec<(Vec<P>, Vec<PlacedLink>)>,
        ring_bytes: impl Fn(&P) -> usize,
        links: Vec<Range<usize>>,
        options: ForwarderOptions,
    ) -> Result<Self> {
        let options = ForwarderOptions {
            start: options.start.or_else(|| Some(clock::now())),
            ..options
        };
        let parts = options.divide(&links);
        let begin = |((sets, links), options): ((Vec<P>, _), _)| {
            let bytes = sets.iter().map(&ring_bytes).sum();
            StartingForwarder::spawn(sets, bytes, links, options)
        };
        // They prepare themselves side by side.
        let begun: Vec<_> = groups.into_iter().zip(parts).map(begin).collect();
        let mut started = Self {
            threads: Vec::new(),
            links,
        };
        let mut failure = None;
        for forwarder in begun {
            match forwarder.and_then(StartingForwarder::wait) {
                Ok(thread) => started.threads.push(thread),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        let Some(error) = failure else {
            return Ok(started);
        };
        // The others forward nothing that anybody asked for.
        let _ = started.stop();
        Err(error)
    }

    /// Returns the forwarder of a link, and the number of the link there.
    pub(crate) fn of_link(&self, link: usize) -> (&ForwarderHandle, usize) {
        let mut all = self.threads.iter().zip(&self.links);
        let (thread, links) = all
            .find(|(_, links)| links.contains(&link))
            .expect("every link has a thread");
        (thread.handle(), link - links.start)
    }

    /// Returns the departures from each link up to now, by kind, in the order of the links. Links of a
    /// forwarder that has died are left out.
    pub(crate) fn departures(&self) -> Vec<Vec<FlowDepartures>> {
        let threads = self.threads.iter();
        let each = threads.map(|thread| thread.handle().departures().unwrap_or_default());
        each.flatten().collect()
    }

    /// Asks whether all forwarders are alive. The answer arrives when the last of them handles its
    /// commands, and never if one has died.
    pub(crate) fn ask_whether_alive(&self) -> Receiver<()> {
        ForwarderHandle::ask_whether_all_alive(self.threads.iter().map(ForwarderThread::handle))
    }

    /// Stops all forwarders. Packets on their way are lost. Returns the summary of each link, in
    /// order.
    ///
    /// # Errors
    /// Fails if a forwarder has died; the error gives the cause.
    pub(crate) fn stop(self) -> Result<Vec<Summary>> {
        self.stop_each(ForwarderThread::stop)
    }

    /// Stops all forwarders as [`Self::stop`] does, but does not wait until their ports are closed, for which the kernel
    /// takes tens of milliseconds.
    ///
    /// # Errors
    /// Those of [`Self::stop`].
    pub(crate) fn stop_soon(self) -> Result<Vec<Summary>> {
        self.stop_each(ForwarderThread::stop_soon)
    }

    fn stop_each(
        self,
        stop: impl Fn(ForwarderThread) -> Result<Vec<Summary>>,
    ) -> Result<Vec<Summary>> {
        self.threads.iter().for_each(ForwarderThread::ask_to_stop);
        // All of them end, even if one has died.
        let stopped: Vec<_> = self.threads.into_iter().map(stop).collect();
        let each = stopped.into_iter().collect::<Result<Vec<_>>>()?;
        Ok(each.into_iter().flatten().collect())
    }
}

#[cfg(test)]
mod tests {
    use conditions::Rules;
    use model::{Delay, Effect, LinkConfig, StageSpec};

    use super::super::fuzzing::SilentPort;
    use super::*;

    type SilentGroup = (Vec<SilentPort>, Vec<PlacedLink>);

    /// Returns two ports and a link between them with these conditions.
    fn silent_group(up: Vec<StageSpec>) -> SilentGroup {
        let ports = [(); 2].map(|()| SilentPort::new(false).unwrap());
        let link = EmulatedLink {
            config: LinkConfig::new(1, up, Vec::new()),
            rules: Rules::default(),
        };
        let placed = PlacedLink {
            ports: PortId::SEPARATE_SETS,
            link,
        };
        (ports.into(), vec![placed])
    }

    fn start(groups: Vec<SilentGroup>) -> Result<Forwarders> {
        let links = (0..groups.len()).map(|link| link..link + 1).collect();
        let options = ForwarderOptions::from(netio::CpuUse::Gentle);
        Forwarders::start_between(groups, |_| 0, links, options)
    }

    #[test]
    fn the_time_of_all_links_begins_at_the_same_instant_whatever_their_threads() {
        let before = clock::now();
        let forwarders = start([(); 3].map(|()| silent_group(Vec::new())).into()).unwrap();
        let starts = [0, 1, 2].map(|link| forwarders.of_link(link).0.start());
        assert!(starts[0] >= before && starts[0] < clock::now());
        assert_eq!(starts, [starts[0]; 3]);
        assert_eq!(forwarders.stop().unwrap().len(), 3);
    }

    #[test]
    fn no_forwarder_starts_if_one_cannot() {
        let delay = |name: &str| StageSpec::new(name, Effect::Delay(Delay::default()));
        // Two stages of a path cannot have the same name.
        let invalid = vec![delay("box.up.delay"), delay("box.up.delay")];
        let groups = [Vec::new(), invalid, Vec::new()].map(silent_group);
        assert!(start(groups.into()).is_err());
    }

    #[test]
    fn links_are_divided_evenly_and_stay_in_order() {
        assert_eq!(distribute(5, 2), [0..2, 2..5]);
        assert_eq!(distribute(3, 3), [0..1, 1..2, 2..3]);
        assert_eq!(
            distribute(1000, 1),
            [Range {
                start: 0,
                end: 1000
            }]
        );
    }

    #[test]
    fn a_number_of_threads_is_auto_or_a_number_and_at_most_one_for_each_link() {
        let read = |text: &str| text.parse::<ThreadCount>();
        assert_eq!(read("1"), Ok(ThreadCount::ONE));
        let four = read("4").unwrap();
        assert_eq!(
            [four.of_links(9), four.of_links(3), four.of_links(0)],
            [4, 3, 1]
        );
        let auto = read("auto").unwrap().of_links(1_000);
        assert!((1..=16).contains(&auto), "{auto}");
        for wrong in ["0", "257", "many", "-1"] {
            let error = read(wrong).unwrap_err();
            assert!(
                error.contains("write auto or a number from 1 to 256"),
                "{error}"
            );
        }
    }
}
