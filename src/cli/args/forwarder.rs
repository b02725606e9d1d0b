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
    /// How to wait: spin (busy-wait the last microseconds) or gentle
    #[arg(
        long,
        value_name = "USE",
        default_value = "spin",
        hide_possible_values = true,
        help_heading = headings::EMULATOR,
        hide_short_help = true
    )]
    cpu: CpuArg,
    /// Count a packet as late this long after its due time; at most 1s
    #[arg(
        long,
        value_name = "TIME",
        default_value_t,
        help_heading = headings::EMULATOR,
        hide_short_help = true
    )]
    late_budget: LateBudget,
    /// Drop packets this long after their due time if the emulator cannot keep up; 1ms to 10s [default: 10ms, or the late budget if
    /// that is longer]
    #[arg(
        long,
        value_name = "TIME",
        help_heading = headings::EMULATOR,
        hide_short_help = true
    )]
    late_limit: Option<LateLimit>,
    /// Memory for frames in flight; a link that needs more is refused
    #[arg(
        long,
        value_name = "SIZE",
        default_value = "1GiB",
        help_heading = headings::EMULATOR,
        hide_short_help = true
    )]
    held_memory: Bytes,
    /// Write a line for every packet to FILE.csv or FILE.parquet[,limit=SIZE]
    #[arg(long, value_name = "FILE", value_parser = log_target(), help_heading = headings::OUTPUT)]
    packet_log: Option<LogTarget>,
    /// Capture both ends of each link to PREFIX.pcapng, with verdicts as comments
    #[arg(long, value_name = "PREFIX", help_heading = headings::OUTPUT)]
    pcap: Option<PathBuf>,
    #[command(flatten)]
    capture_options: CaptureArgs,
}

impl ForwarderArgs {
    /// Returns the options of a forwarder whose links have these conditions and captures, and creates the file of the packet log.
    ///
    /// # Errors
    /// The file cannot be written, or the links need more memory than `--held-memory` allows.
    pub(crate) fn options<'s>(
        &self,
        links: impl IntoIterator<Item = &'s LinkSpec>,
        captures: impl FnOnce(&Self) -> Result<Vec<Capture>, Failure>,
    ) -> Result<ForwarderOptions, Failure> {
        let (memory, needs) = self.memory_for(links)?;
        let packet_log = self.packet_log.as_ref();
        let packet_log = packet_log.map(|log| PacketLog::create(&log.file, log.limit));
        Ok(ForwarderOptions {
            late_budget: self.late_budget,
            late_limit: self
                .late_limit
                .unwrap_or(LateLimit::beside(self.late_budget)),
            memory,
            needs,
            captures: captures(self)?,
            packet_log: packet_log.transpose().or_bad_input()?,
            ..CpuUse::from(self.cpu).into()
        })
    }

    /// The time after which a packet counts as late.
    pub(crate) fn late_budget(&self) -> LateBudget {
        self.late_budget
    }

    /// Returns the capture of the only link, between these ends, if `--pcap` asks for one, and creates its file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(crate) fn capture(&self, ends: [&str; 2]) -> Result<Vec<Capture>, Failure> {
        let prefix = self.pcap.iter();
        let captures = prefix.map(|prefix| self.capture_to(prefix, ends));
        captures.collect::<Result<_>>().or_bad_input()
    }

    /// True if `--packet-log` is given.
    pub(crate) fn logs_packets(&self) -> bool {
        self.packet_log.is_some()
    }

    /// Returns a capture of each link, to PREFIX-A-B with the names of its ends, if `--pcap` asks for them, and creates the files.
    ///
    /// # Errors
    /// One of the files cannot be written.
    pub(crate) fn captures<'e>(
        &self,
        links: impl Iterator<Item = [&'e str; 2]>,
    ) -> Result<Vec<Capture>, Failure> {
        let Some(prefix) = &self.pcap else {
            return Ok(Vec::new());
        };
        if output::is_stdout(prefix) {
            return Err(Failure::bad_input(
                "--pcap -: standard output can take the capture of one link only: name a PREFIX for the links' files",
            ));
        }
        let capture = |[a, b]: [&str; 2]| {
            let mut name = prefix.clone().into_os_string();
            name.push(format!("-{a}-{b}"));
            self.capture_to(Path::new(&name), [a, b])
        };
        links.map(capture).collect::<Result<_>>().or_bad_input()
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
