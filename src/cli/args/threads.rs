//! The threads of the forwarders and the processors on which they run, for commands that can have
//! several links.

use clap::Args;
use netio::cpu;

use super::headings;
use crate::forward::threads::ThreadCount;

/// Options of the threads that forward.
#[derive(Args, Clone, Debug)]
pub(crate) struct ThreadsArgs {
    /// Number of threads that forward, at most one for each link; auto is one for each processor but one, up to 16
    #[arg(
        long,
        value_name = "NUMBER",
        default_value_t = ThreadCount::ONE,
        help_heading = headings::EMULATOR,
        hide_short_help = true
    )]
    threads: ThreadCount,
    /// Processors for these threads, as in 1,3 or 2-5: the first thread on the first one, and so on
    #[arg(
        long,
        value_name = "LIST",
        value_parser = cpu_list,
        help_heading = headings::EMULATOR,
        hide_short_help = true
    )]
    cpus: Option<CpuList>,
}

impl ThreadsArgs {
    /// Returns the number of threads that the user asks for.
    pub(crate) fn count(&self) -> ThreadCount {
        self.threads
    }

    /// Returns the processors for the threads, or none if the user leaves that to the kernel.
    pub(crate) fn cpus(&self) -> Vec<usize> {
        self.cpus.clone().map_or_else(Vec::new, |list| list.0)
    }
}

/// The value of `--cpus`: the numbers of processors that this process may use, in the order in which they were written.
#[derive(Clone, Debug, PartialEq, Eq)]
struct CpuList(Vec<usize>);

/// Reads numbers and ranges of processors, separated by commas, as taskset does.
fn cpu_list(text: &str) -> Result<CpuList, String> {
    let allowed = cpu::allowed().map_err(|error| error.to_string())?;
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last && last - first < MOST_CPUS).then_some(first..=last)
    };
    let mut cpus: Vec<usize> = Vec::new();
    for part in text.split(',') {
        let range = range(part).ok_or_else(|| {
            format!("`{part}` is no processor: write numbers and ranges, as in 1,3 or 2-5")
        })?;
        cpus.extend(range);
    }
    match cpus.iter().find(|cpu| !allowed.contains(cpu)) {
        Some(cpu) => {
            let allowed: Vec<String> = allowed.iter().map(ToString::to_string).collect();
            Err(format!(
                "processor {cpu} is not available to farwire: choose from {}",
                allowed.join(",")
            ))
        }
        None => Ok(CpuList(cpus)),
    }
}

/// The largest number of processors in a range.
const MOST_CPUS: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_read_in_the_order_of_the_list_and_must_be_available() {
        let allowed = cpu::allowed().unwrap();
        let first = allowed[0];
        assert_eq!(cpu_list(&first.to_string()), Ok(CpuList(vec![first])));
        let twice = format!("{first}-{first},{first}");
        assert_eq!(cpu_list(&twice), Ok(CpuList(vec![first, first])));
        let missing = allowed.last().unwrap() + 1;
        let refused = cpu_list(&missing.to_string()).unwrap_err();
        let expected =
            format!("processor {missing} is not available to farwire: choose from {first}");
        assert!(refused.starts_with(&expected), "{refused}");
        for wrong in ["", "x", "1,", "3-1", "-1", "0-99999999"] {
            let refused = cpu_list(wrong).unwrap_err();
            assert!(
                refused.contains("write numbers and ranges"),
                "{wrong}: {refused}"
            );
        }
    }
}
