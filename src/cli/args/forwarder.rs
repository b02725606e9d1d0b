//! The options of the forwarder, which `exec` and `emulate` share.

use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::{Args, ValueEnum};
use model::Bytes;
use netio::CpuUse;

use super::capture::CaptureArgs;
use crate::forward::capture::{Capture, CaptureSpec};
use crate::forward::packet_log::PacketLog;
use crate::forward::thread::ForwarderOptions;
use conditions::LinkSpec;
use conditions::in_effect::MemoryNeed;
use instruments::failure::{Blame, Failure};
use instruments::output;
use record::lateness::LateBudget;

/// How the emulator runs.
#[derive(Args, Debug)]
pub(crate) struct ForwarderArgs {
    /// Whether the forwarder may spin to be on time
    #[arg(long, value_name = "USE", default_value = "spin")]
    cpu: CpuArg,
    /// A packet that leaves later than this after its due time counts as late; above 0, at most 1s
    #[arg(long, value_name = "TIME", default_value_t)]
    late_budget: LateBudget,
    /// Most memory for frames on their way, book-keeping included; what rate and delay need beyond it is refused at the start
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    held_memory: Bytes,
    /// Write a line a packet to FILE as CSV (- is standard output): arrival, what became of it, due time, departure
    #[arg(long, value_name = "FILE")]
    packet_log: Option<PathBuf>,
    /// Capture every packet at both ends to PREFIX.pcapng (- is standard output), of --links to PREFIX-A-B.pcapng each, with what became of it
    /// as its comment
    #[arg(long, value_name = "PREFIX")]
    pcap: Option<PathBuf>,
    #[command(flatten)]
    capture_options: CaptureArgs,
}

impl ForwarderArgs {
    /// The options of a forwarder whose links have these conditions and captures. The packet log's file is made.
    ///
    /// # Errors
    /// That file cannot be written; the links need more memory than they are allowed.
    pub(crate) fn options<'s>(
        &self,
        links: impl IntoIterator<Item = &'s LinkSpec>,
        captures: impl FnOnce(&Self) -> Result<Vec<Capture>, Failure>,
    ) -> Result<ForwarderOptions, Failure> {
        let memory = self.memory_for(links)?;
        let packet_log = self.packet_log.as_deref().map(PacketLog::create);
        Ok(ForwarderOptions {
            late_budget: self.late_budget,
            memory,
            captures: captures(self)?,
            packet_log: packet_log.transpose().or_bad_input()?,
            ..CpuUse::from(self.cpu).into()
        })
    }

    /// By how much a packet may be late.
    pub(crate) fn late_budget(&self) -> LateBudget {
        self.late_budget
    }

    /// The capture of the only link, between these ends, where one is asked for; its file is made.
    ///
    /// # Errors
    /// That file cannot be written.
    pub(crate) fn capture(&self, ends: [&str; 2]) -> Result<Vec<Capture>, Failure> {
        let prefix = self.pcap.iter();
        let captures = prefix.map(|prefix| self.capture_to(prefix, ends));
        captures.collect::<Result<_>>().or_bad_input()
    }

    /// A capture of each link, to PREFIX-A-B by its ends, where they are asked for; the files are made.
    ///
    /// # Errors
    /// One of them cannot be written.
    pub(crate) fn captures<'e>(
        &self,
        links: impl Iterator<Item = [&'e str; 2]>,
    ) -> Result<Vec<Capture>, Failure> {
        let Some(prefix) = &self.pcap else {
            return Ok(Vec::new());
        };
        if output::is_stdout(prefix) {
            return Err(Failure::bad_input(
                "--pcap -: standard output takes one link's: name a PREFIX, which each link's file begins with",
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

    /// What may be held, if that is enough for what these conditions imply.
    fn memory_for<'s>(
        &self,
        links: impl IntoIterator<Item = &'s LinkSpec>,
    ) -> Result<usize, Failure> {
        let needs = links.into_iter().map(MemoryNeed::of);
        let needs: Result<Vec<_>, conditions::Error> = needs.collect();
        let needs = needs.or_bad_input()?;
        let sum = |way: fn(&MemoryNeed) -> u64| needs.iter().map(way).fold(0, u64::saturating_add);
        let need = sum(MemoryNeed::bytes);
        if need > self.held_memory.0 {
            return Err(Failure::bad_input(format!(
                "--held-memory {}: rate times delay has {} bytes of full frames on their way up and {} down, {need} bytes with \
                 what is kept beside each: allow that much, or less rate or delay",
                self.held_memory,
                sum(|of| of.up),
                sum(|of| of.down),
            )));
        }
        usize::try_from(self.held_memory.0).or_bad_input()
    }
}

/// `--cpu`.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum CpuArg {
    /// Spin through the last microseconds before each departure
    Spin,
    /// Never spin: gentler, and late by as much as the machine wakes up late
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
