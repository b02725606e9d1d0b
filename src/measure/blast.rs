//! `farwire measure blast`.

use clap::Args;

use super::messages::{Connection, Messages};
use super::{Common, Instrument, Shown};
use crate::exit::{Blame, Failure};
use crate::instrument::Session;
use crate::instrument::messages::blast::{self, BlastPlan};
use crate::instrument::messages::sizes::Sweep;
use crate::report;

/// Throughput of messages one way, as nettest measured it
///
/// The far end swallows them and sends one byte at the end. Each message is one send call.
#[derive(Args, Debug)]
pub(crate) struct BlastArgs {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    messages: Messages,
    #[command(flatten)]
    common: Common,
}

impl Instrument for BlastArgs {
    fn common(&self) -> &Common {
        &self.common
    }

    fn measure(&self, session: &Session) -> Result<Shown, Failure> {
        let far = self.connection.far_end(&self.common).or_bad_input()?;
        let plan = BlastPlan {
            loads: self.messages.loads(Sweep::blast).or_bad_input()?,
            runs: self.connection.runs,
            nagle: self.connection.nagle,
        };
        let measurement = blast::measure(&far, &plan, session);
        let table = report::blast_table(&measurement, &plan.loads);
        Ok(Shown::of(measurement).tabled(table))
    }
}
