//! The options of the emulator, which `exec` and `emulate` share.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, ValueEnum};
use model::Bytes;
use netio::CpuUse;

use super::capture::CaptureArgs;
use super::headings;
use crate::forward::capture::{Capture, CaptureSpec};
use crate::forward::overload::LateLimit;
use crate::forward::packet_log::PacketLog;
use crate::forward::thread::ForwarderOptions;
use conditions::LinkSpec;
use conditions::in_effect::MemoryNeed;
use instruments::failure::{Blame, Failure};
use instruments::output;
use record::lateness::LateBudget;

/// Options of the emulator: processor time, memory, and records of packets.
#[derive(Args, Debug)]
pub(crate) struct ForwarderArgs {
    /// Wait for departures by spin (busy-wait) or gentle (sleep)
    #[arg(
        long,
        value_name = "USE",
        default_value = "spin",
        hide_possible_values = true,
        help_heading = headings::EMULATOR,
        hide_short_help = true
    )]
    cpu: CpuArg,
    /// Count a packet as late above this departure error; at most 1s
    #[arg(
        long,
        value_name = "TIME",
        default_value_t,
        help_heading = headings::EMULATOR,
        hide_short_help = true
    )]
    late_budget: LateBudget,
    /// Drop packets later than this if the emulator cannot keep up [default: 10ms]
    #[arg(
        long,
        value_name = "TIME",
        help_heading = headings::EMULATOR,
        hide_short_help = true
    )]
    late_limit: Option<LateLimit>,
    /// Maximum memory for frames in flight
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "1GiB",
        help_heading = headings::EMULATOR,
        hide_short_help = true
    )]
    held_memory: Bytes,
    /// Log every packet to FILE.csv or FILE.parquet, up to a size with ,limit=SIZE
    #[arg(long, value_name = "FILE", value_parser = log_target(), help_heading = headings::OUTPUT)]
    packet_log: Option<LogTarget>,
    /// Capture both ends of each link to PREFIX.pcapng, with verdicts as comments
    #[arg(long, value_name = "PREFIX", help_heading = headings::OUTPUT)]
    pcap: Option<PathBuf>,
    #[command(flatten)]
    capture_options: CaptureArgs,
}

impl ForwarderArgs {
    /// Returns the options of a forwarder whose links have these conditions and ends, and creates the files of their packet logs and
    /// captures.
    ///
    /// # Errors
    /// A file cannot be written, there are too many links for their files, or the links need more memory than `--held-memory` allows.
    pub(crate) fn options<'s>(
        &self,
        links: impl IntoIterator<Item = &'s LinkSpec>,
        ends: &LinkEnds<'_>,
    ) -> Result<ForwarderOptions, Failure> {
        let (memory, needs) = self.memory_for(links)?;
        Ok(ForwarderOptions {
            late_budget: self.late_budget,
            late_limit: self
                .late_limit
                .unwrap_or(LateLimit::beside(self.late_budget)),
            memory,
            needs,
            packet_logs: self.packet_logs(ends)?,
            captures: self.captures(ends)?,
            ..CpuUse::from(self.cpu).into()
        })
    }

    /// The largest number of descriptors that the packet log and the capture of a link have.
    pub(crate) fn descriptors_of_link(&self) -> u64 {
        let of_log = self.packet_log.as_ref().map_or(0, |_| DESCRIPTORS_OF_LOG);
        let of_capture = self.pcap.as_ref().map_or(0, |_| DESCRIPTORS_OF_CAPTURE);
        of_log + of_capture
    }

    /// The time after which a packet counts as late.
    pub(crate) fn late_budget(&self) -> LateBudget {
        self.late_budget
    }

    /// Returns the packet logs of the links, if `--packet-log` asks for them, and creates their files.
    ///
    /// # Errors
    /// One of the files cannot be written, there are more links than can be logged, or standard output would have to take several logs.
    fn packet_logs(&self, ends: &LinkEnds<'_>) -> Result<Vec<PacketLog>, Failure> {
        let Some(LogTarget { file, limit }) = &self.packet_log else {
            return Ok(Vec::new());
        };
        if let LinkEnds::OfEach(links) = ends {
            if output::is_stdout(file) {
                return Err(Failure::bad_input(
                    "--packet-log -: with --links or several containers, each link has a file of its own: name a FILE",
                ));
            }
            if links.len() > MOST_LOGGED {
                return Err(Failure::bad_input(format!(
                    "--packet-log: at most {MOST_LOGGED} links can be logged, not {}: name those to log in a smaller file for --links, \
                     or choose fewer containers",
                    links.len(),
                )));
            }
        }
        let logs = ends.files(file, log_file).into_iter();
        let logs = logs.map(|(file, _)| PacketLog::create(&file, *limit));
        logs.collect::<Result<_>>().or_bad_input()
    }

    /// Returns the captures of the links, if `--pcap` asks for them, and creates their files.
    ///
    /// # Errors
    /// One of the files cannot be written, or standard output would have to take several captures.
    fn captures(&self, ends: &LinkEnds<'_>) -> Result<Vec<Capture>, Failure> {
        let Some(prefix) = &self.pcap else {
            return Ok(Vec::new());
        };
        if matches!(ends, LinkEnds::OfEach(_)) && output::is_stdout(prefix) {
            return Err(Failure::bad_input(
                "--pcap -: with --links or several containers, each link has a file of its own: name a PREFIX",
            ));
        }
        let captures = ends.files(prefix, capture_prefix).into_iter();
        let captures = captures.map(|(prefix, ends)| self.capture_to(&prefix, ends));
        captures.collect::<Result<_>>().or_bad_input()
    }

    fn capture_to(&self, prefix: &Path, ends: [&str; 2]) -> Result<Capture> {
        let spec = CaptureSpec {
            ends: ends.map(str::to_owned),
            ..self.capture_options.spec(!output::is_stdout(prefix))
        };
        Capture::create(prefix, spec)
    }

    /// Returns the memory for frames in flight, if it is enough for these conditions, and what each link needs of it.
    fn memory_for<'s>(
        &self,
        links: impl IntoIterator<Item = &'s LinkSpec>,
    ) -> Result<(usize, Vec<usize>), Failure> {
        let needs = links.into_iter().map(MemoryNeed::of);
        let needs: Result<Vec<_>, conditions::Error> = needs.collect();
        let needs = needs.or_bad_input()?;
        let sum = |way: fn(&MemoryNeed) -> u64| needs.iter().map(way).fold(0, u64::saturating_add);
        let need = sum(MemoryNeed::bytes);
        if need > self.held_memory.0 {
            return Err(Failure::bad_input(format!(
                "--held-memory {}: rate times delay puts {} bytes of full frames in flight up and {} down, which need {need} bytes \
                 of memory: allow that much, or reduce the rate or the delay",
                self.held_memory,
                sum(|of| of.up),
                sum(|of| of.down),
            )));
        }
        let memory = usize::try_from(self.held_memory.0).or_bad_input()?;
        let bytes = needs.iter().map(|need| usize::try_from(need.bytes()));
        Ok((memory, bytes.collect::<Result<_, _>>().or_bad_input()?))
    }
}

/// The largest number of links that can be logged. Each log has a thread, and up to 14 MB of lines that wait.
const MOST_LOGGED: usize = 64;

/// The descriptors of a packet log: its two files, one of its writer, and a second one while the files change turns.
const DESCRIPTORS_OF_LOG: u64 = 4;
/// The descriptor of a capture: its file.
const DESCRIPTORS_OF_CAPTURE: u64 = 1;

/// The ends of the links whose packets are logged and captured. They say how the files are named.
#[derive(Clone, Debug)]
pub(crate) enum LinkEnds<'e> {
    /// The ends of the only link, whose files have the names that the user gives.
    OfOne([&'e str; 2]),
    /// The ends of each link, which are part of the names of its files.
    OfEach(Vec<[&'e str; 2]>),
}

impl<'e> LinkEnds<'e> {
    /// Returns the number of links.
    pub(crate) fn links(&self) -> usize {
        match self {
            Self::OfOne(_) => 1,
            Self::OfEach(links) => links.len(),
        }
    }

    /// Returns the file of each link and the link's ends. `given` is the file that the user gives; `with_ends` adds a link's ends to it.
    fn files(
        &self,
        given: &Path,
        with_ends: fn(&Path, [&str; 2]) -> PathBuf,
    ) -> Vec<(PathBuf, [&'e str; 2])> {
        match self {
            Self::OfOne(ends) => vec![(given.to_owned(), *ends)],
            Self::OfEach(links) => {
                let links = links.iter();
                links.map(|ends| (with_ends(given, *ends), *ends)).collect()
            }
        }
    }
}

/// Returns the file of a link's packet log: FILE-A-B.csv for FILE.csv.
fn log_file(given: &Path, [a, b]: [&str; 2]) -> PathBuf {
    let mut name = given.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{a}-{b}"));
    if let Some(extension) = given.extension() {
        name.push(".");
        name.push(extension);
    }
    given.with_file_name(name)
}

/// Returns the prefix of a link's capture: PREFIX-A-B for PREFIX.
fn capture_prefix(given: &Path, [a, b]: [&str; 2]) -> PathBuf {
    let mut name = given.as_os_str().to_owned();
    name.push(format!("-{a}-{b}"));
    name.into()
}

/// The value of `--packet-log`.
#[derive(Clone, Debug)]
struct LogTarget {
    file: PathBuf,
    limit: Option<Bytes>,
}

/// Reads a file, behind which a limit may follow.
fn log_target() -> impl TypedValueParser<Value = LogTarget> {
    OsStringValueParser::new().try_map(|text| {
        let parts = text.to_str().and_then(|text| text.rsplit_once(",limit="));
        let (file, limit) = match parts {
            Some((file, limit)) => (file.into(), Some(limit.parse::<Bytes>()?)),
            None => (text.into(), None),
        };
        Ok::<_, model::UnitError>(LogTarget { file, limit })
    })
}

/// The value of `--cpu`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum CpuArg {
    /// Busy-wait the last microseconds before each departure
    Spin,
    /// Never busy-wait; packets leave late by the machine's wake-up latency
    Gentle,
}

impl From<CpuArg> for CpuUse {
    fn from(arg: CpuArg) -> Self {
        match arg {
            CpuArg::Spin => Self::Spin,
            CpuArg::Gentle => Self::Gentle,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        forwarder: ForwarderArgs,
    }

    /// Returns the ends of this number of links: x0 and y0, x1 and y1, and so on.
    fn pairs(links: usize) -> Vec<[String; 2]> {
        let pair = |link: usize| ["x", "y"].map(|side| format!("{side}{link}"));
        (0..links).map(pair).collect()
    }

    /// Returns the names of the files in a folder after these links began to be logged there in `packets.csv`, and the refusal if
    /// they could not be.
    fn logged(pairs: &[[String; 2]]) -> (Vec<String>, Option<String>) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("packets.csv").display().to_string();
        let program = Program::try_parse_from(["x", "--packet-log", &file]).unwrap();
        let ends = pairs.iter().map(|pair| pair.each_ref().map(String::as_str));
        let ends = LinkEnds::OfEach(ends.collect());
        let refused = program.forwarder.packet_logs(&ends).err();
        let names = std::fs::read_dir(folder.path()).unwrap();
        let names = names.map(|of| of.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        (names, refused.as_ref().map(ToString::to_string))
    }

    #[test]
    fn links_above_the_limit_are_not_logged_and_no_file_is_created() {
        let (names, refused) = logged(&pairs(MOST_LOGGED));
        assert_eq!((names.len(), refused), (MOST_LOGGED, None));
        let (names, refused) = logged(&pairs(MOST_LOGGED + 1));
        let refused = refused.unwrap();
        assert!(
            refused.contains("at most 64 links can be logged, not 65: name those to log"),
            "{refused}"
        );
        assert!(names.is_empty(), "{names:?}");
    }

    #[test]
    fn the_files_of_a_link_are_counted_by_kind() {
        for (options, expected) in [
            ("", 0),
            ("--pcap seen", 1),
            ("--packet-log packets.csv", 4),
            ("--pcap seen --packet-log packets.csv", 5),
        ] {
            let line = format!("x {options}");
            let program = Program::try_parse_from(line.split_whitespace()).unwrap();
            assert_eq!(program.forwarder.descriptors_of_link(), expected);
        }
    }

    #[test]
    fn a_file_is_named_after_the_ends_of_its_link() {
        let (names, _) = logged(&pairs(2));
        assert_eq!(names, ["packets-x0-y0.csv", "packets-x1-y1.csv"]);
        for (given, log, capture) in [
            ("a/b.parquet", "a/b-x.5-y.parquet", "a/b.parquet-x.5-y"),
            ("packets", "packets-x.5-y", "packets-x.5-y"),
        ] {
            let ends = ["x.5", "y"];
            assert_eq!(log_file(Path::new(given), ends), Path::new(log));
            assert_eq!(capture_prefix(Path::new(given), ends), Path::new(capture));
        }
    }
}
