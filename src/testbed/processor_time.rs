//! Shows who used the processors: this program with its descendants, other programs, other virtual
//! machines, or nobody.

use std::collections::HashMap;
use std::fs;
use std::process;

/// Above this share of all processors' time, other programs are more than a background load.
const OTHERS: f64 = 0.2;
/// If at least this share of the time was idle, every thread that was ready found a processor.
const IDLE: f64 = 0.1;

/// The time of the processors that this process may use since the machine started, in the kernel's
/// ticks of 10 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProcessorTime {
    /// The time of all processors.
    all: u64,
    /// The time in which the processors were idle.
    idle: u64,
    /// The time that other virtual machines took.
    stolen: u64,
    /// The time that processes used.
    programs: u64,
    /// The time of this process and of its descendants.
    own: u64,
}

/// The use of the processors' time between two readings, in shares of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ProcessorShares {
    /// The idle share.
    pub(super) idle: f64,
    /// The share of other virtual machines.
    pub(super) stolen: f64,
    /// The share of other programs.
    pub(super) others: f64,
}

/// The time that one process has used, and its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ProcessTime {
    parent: u32,
    /// The process's own time, and that of its descendants that have ended.
    ticks: u64,
}

impl ProcessorTime {
    /// Reads the current times. Returns `None` if /proc does not contain them.
    pub(super) fn now() -> Option<Self> {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let stat = fs::read_to_string("/proc/stat").ok()?;
        Some(Self {
            own: family_ticks(&processes(), process::id()),
            ..Self::of_processors(&stat, &Processors::allowed(&status))?
        })
    }

    /// Sums the lines of these processors in /proc/stat (proc(5)): user, nice, system, idle,
    /// iowait, irq, softirq and steal. The time of guests is part of user.
    fn of_processors(stat: &str, processors: &Processors) -> Option<Self> {
        let mut sum = None;
        for line in stat.lines() {
            let mut words = line.split_whitespace();
            let name = words.next().and_then(|name| name.strip_prefix("cpu"));
            let number = name.and_then(|number| number.parse().ok());
            if !number.is_some_and(|number| processors.contain(number)) {
                continue;
            }
            let numbers: Vec<u64> = words.take(8).map_while(|n| n.parse().ok()).collect();
            let [user, nice, system, idle, iowait, irq, softirq, steal] = numbers[..] else {
                return None;
            };
            let (programs, idle) = (user + nice + system, idle + iowait);
            let sum: &mut Self = sum.get_or_insert_default();
            sum.all += programs + idle + irq + softirq + steal;
            sum.idle += idle;
            sum.stolen += steal;
            sum.programs += programs;
        }
        sum
    }

    /// Returns the use of the time since `before`, or `None` if no time has passed.
    pub(super) fn since(self, before: Self) -> Option<ProcessorShares> {
        let all = self.all.checked_sub(before.all).filter(|all| *all > 0)?;
        let share = |ticks: u64| ticks as f64 / all as f64;
        let programs = self.programs.saturating_sub(before.programs);
        let own = self.own.saturating_sub(before.own);
        Some(ProcessorShares {
            idle: share(self.idle.saturating_sub(before.idle)),
            stolen: share(self.stolen.checked_sub(before.stolen)?),
            others: share(programs.saturating_sub(own)),
        })
    }
}

/// The processors on which this process may run, as ranges with both ends included; all processors
/// if the list is empty.
#[derive(Debug)]
struct Processors(Vec<(usize, usize)>);

impl Processors {
    /// Parses the line `Cpus_allowed_list` of /proc/PID/status, such as "0-3,8".
    fn allowed(status: &str) -> Self {
        let mut lines = status.lines();
        let list = lines.find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let range = |text: &str| {
            let (first, last) = text.split_once('-').unwrap_or((text, text));
            Some((first.parse().ok()?, last.parse().ok()?))
        };
        let ranges = list.unwrap_or_default().trim().split(',');
        Self(ranges.filter_map(range).collect())
    }

    fn contain(&self, number: usize) -> bool {
        let mut ranges = self.0.iter();
        self.0.is_empty() || ranges.any(|(first, last)| (first..=last).contains(&&number))
    }
}

impl ProcessorShares {
    /// Returns a sentence if other programs kept the processors from the measurement.
    pub(super) fn starved(self) -> Option<String> {
        (self.others > OTHERS && self.idle < IDLE).then(|| {
            format!(
                "the host was starved of CPU: other programs used {:.0} % of the processor time, and {:.0} % was idle",
                100.0 * self.others,
                100.0 * self.idle
            )
        })
    }
}

/// Returns all processes that this one can see.
fn processes() -> HashMap<u32, ProcessTime> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let process = |entry: fs::DirEntry| {
        let id = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        Some((id, ProcessTime::parse(&stat)?))
    };
    entries.filter_map(process).collect()
}

impl ProcessTime {
    /// Parses /proc/PID/stat (proc(5)). After the name, which may contain any character, the second
    /// field is the parent, and the 12th to the 15th are utime, stime, cutime and cstime.
    fn parse(stat: &str) -> Option<Self> {
        let (_, fields) = stat.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let ticks = fields
            .get(11..15)?
            .iter()
            .map(|ticks| ticks.parse::<i64>().unwrap_or(0).unsigned_abs());
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            ticks: ticks.sum(),
        })
    }
}

/// Returns the time used by process `first` and its running descendants.
fn family_ticks(processes: &HashMap<u32, ProcessTime>, first: u32) -> u64 {
    let is_family = |id: u32| {
        let parent = |id: &u32| processes.get(id).map(|process| process.parent);
        // A process may end while others are read, so a number can appear twice.
        let mut ancestors = std::iter::successors(Some(id), parent).take(processes.len());
        ancestors.any(|ancestor| ancestor == first)
    };
    let family = processes.iter().filter(|(id, _)| is_family(**id));
    family.map(|(_, process)| process.ticks).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the shares for two processors during ten seconds, which are 2,000 ticks: other
    /// programs use `others`, `idle` are idle, and this program uses the rest.
    fn shares(others: u64, idle: u64) -> ProcessorShares {
        let before = ProcessorTime {
            all: 1_000_000,
            idle: 500_000,
            stolen: 30,
            programs: 300_000,
            own: 700,
        };
        let own = 2000 - others - idle;
        let after = ProcessorTime {
            all: before.all + 2000,
            idle: before.idle + idle,
            programs: before.programs + others + own,
            own: before.own + own,
            ..before
        };
        after.since(before).unwrap()
    }

    #[test]
    fn a_host_whose_other_programs_leave_no_processor_idle_is_starved() {
        assert_eq!(
            shares(966, 8).starved().unwrap(),
            "the host was starved of CPU: other programs used 48 % of the processor time, and 0 % was idle"
        );
        assert!(shares(401, 199).starved().is_some());
    }

    #[test]
    fn a_host_is_not_starved_by_its_background_or_by_farwire_itself() {
        assert_eq!(shares(400, 0).starved(), None);
        assert_eq!(shares(0, 0).starved(), None);
    }

    #[test]
    fn a_host_with_idle_processors_is_not_starved() {
        assert_eq!(shares(1000, 200).starved(), None);
        assert!(shares(1000, 199).starved().is_some());
    }

    #[test]
    fn the_time_of_the_allowed_processors_is_read_from_proc_stat() {
        let stat = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 100 7 50 800 10 1 5 35 9 9\ncpu1 1 1 1 1 1 1 1 1 1 1\nintr 5\n";
        let read = |stat, status| ProcessorTime::of_processors(stat, &Processors::allowed(status));
        let first = read(stat, "Cpus_allowed:\t1\nCpus_allowed_list:\t0\n").unwrap();
        let expected = ProcessorTime {
            all: 1008,
            idle: 810,
            stolen: 35,
            programs: 157,
            own: 0,
        };
        assert_eq!(first, expected);
        for both in ["Cpus_allowed_list:\t0-1,8\n", ""] {
            assert_eq!(read(stat, both).unwrap().all, 1016);
        }
        let later = ProcessorTime {
            all: 1108,
            stolen: 85,
            ..expected
        };
        assert_eq!(later.since(first).unwrap().stolen, 0.5);
        assert_eq!(first.since(later), None);
        assert_eq!(read("cpu0 1 2 3", ""), None);
        assert_eq!(read("intr 5", ""), None);
    }

    #[test]
    fn the_time_of_a_process_is_read_whatever_its_name() {
        let stat =
            "4711 (a) b (c) R 17 4711 4711 0 -1 4194304 90 0 0 0 5 6 70 800 20 0 1 0 100 2883584";
        let expected = ProcessTime {
            parent: 17,
            ticks: 881,
        };
        assert_eq!(ProcessTime::parse(stat), Some(expected));
        assert_eq!(ProcessTime::parse("4711 (a) R 17"), None);
    }

    #[test]
    fn descendants_are_this_program_s_own_and_its_parent_is_not() {
        let process = |id, parent, ticks| (id, ProcessTime { parent, ticks });
        let all = HashMap::from([
            process(1, 0, 1000),
            process(20, 1, 100),
            process(21, 20, 10),
            process(22, 21, 1),
            process(30, 1, 5000),
        ]);
        assert_eq!(family_ticks(&all, 20), 111);
        assert_eq!(family_ticks(&all, 22), 1);
        // A circle of parents does not cause an endless loop.
        let circle = HashMap::from([process(2, 3, 1), process(3, 2, 1)]);
        assert_eq!(family_ticks(&circle, 9), 0);
    }

    #[test]
    fn this_program_s_own_time_is_not_that_of_others() {
        let before = ProcessorTime::now().unwrap();
        // Even a busy machine gives this time to the process eventually.
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let own = || ProcessorTime::now().unwrap().own;
        while own() < before.own + 20 {
            assert!(
                std::time::Instant::now() < deadline,
                "{before:?}, {}",
                own()
            );
        }
    }
}
