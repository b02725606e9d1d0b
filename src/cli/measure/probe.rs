//! `farwire measure probe`.

use std::path::PathBuf;

use clap::Args;
use model::Nanos;

use super::{Common, Instrument, Shown, above_zero};
use crate::endpoint;
use crate::exit::{Blame, Failure};
use crate::instrument::Session;
use crate::instrument::stamp::{self, FULL, Outcome, ProbePlan, wire};

/// STAMP (RFC 8762): delay, its variation, loss and order of packets, by direction
///
/// HOST runs `farwire serve` or any STAMP or TWAMP Light reflector without authentication.
#[derive(Args, Debug)]
pub(super) struct ProbeArgs {
    /// Name or address of the reflector, and its port if it is not 862
    #[arg(value_name = "HOST[:PORT]")]
    host: String,
    /// UDP port of the reflector, unless it stands behind HOST
    #[arg(short, long, default_value_t = wire::PORT)]
    port: u16,
    /// Payload bytes; below 104, a probe asks for no extension of RFC 8972
    #[arg(short, long, value_name = "BYTES", default_value_t = FULL)]
    size: u16,
    /// Probes to send
    #[arg(short, long, default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    count: u32,
    /// From one probe to the next: 10ms, 500us
    #[arg(short, long, value_name = "TIME", default_value = "10ms", value_parser = above_zero)]
    interval: Nanos,
    /// After which an answer is late and its probe lost
    #[arg(short = 'W', long, value_name = "TIME", default_value = "2s", value_parser = above_zero)]
    timeout: Nanos,
    /// Write a line a probe as CSV there
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    #[command(flatten)]
    common: Common,
}

impl Instrument for ProbeArgs {
    fn common(&self) -> &Common {
        &self.common
    }

    fn measure(&self, session: &Session) -> Result<Shown, Failure> {
        let family = self.common.family();
        let target = endpoint::resolve(&self.host, self.port, family).or_bad_input()?;
        let plan = ProbePlan {
            size: self.size,
            count: self.count,
            interval: self.interval.into(),
            timeout: self.timeout.into(),
        };
        plan.check().or_bad_input()?;
        let local = self.common.bind.as_ref();
        let (outcome, failure) = stamp::probe(target, local, &plan, session).or_bad_input()?;
        if let Some(file) = &self.csv {
            stamp::write_csv(file, &[("", &outcome)]).or_bad_input()?;
        }
        let mut measurement = outcome.measurement(&plan);
        measurement.failure = failure;
        Ok(Shown::of(measurement))
    }
}
