//! `farwire measure blast`.

use clap::Args;

use crate::Session;
use crate::failure::{Blame, Failure};
use crate::measure::{Common, Instrument, Shown};
use crate::messages::args::{Connection, Messages};
use crate::messages::blast;
use crate::messages::blast::BlastPlan;
use crate::messages::sizes::Sweep;
use crate::messages::tables;
use record::Measurement;
use record::table::Table;

/// Throughput of messages one way, as nettest measured it
///
/// The far end swallows them and sends one byte at the end. Each message is one send call.
#[derive(Args, Debug)]
pub struct BlastArgs {
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
        Ok(Shown::of(blast::measure(&far, &plan, session)))
    }

    fn table(&self, measurement: &Measurement) -> Result<Option<Table>, Failure> {
        let sizes = self.messages.loads(Sweep::blast).or_bad_input()?;
        Ok(Some(tables::blast_table(measurement, &sizes)))
    }
}
