//! `farwire measure blast`.

use clap::Args;

use crate::Session;
use crate::failure::{Blame, Failure};
use crate::instrument::{Common, FarEnd, Instrument, MeasureOutput};
use crate::messages::args::{Connection, Messages};
use crate::messages::blast::{self, BlastPlan};
use crate::messages::sizes::Sweep;
use crate::messages::tables;
use record::profile::Profile;
use record::table::Table;
use record::{Measurement, Metric};
use serde::{Deserialize, Serialize};

/// Throughput of messages one way, as nettest measured it
///
/// The far end swallows them and sends one byte at the end. Each message is one send call.
#[derive(Args, Debug, Serialize, Deserialize)]
pub struct BlastArgs {
    #[command(flatten)]
    #[serde(flatten)]
    connection: Connection,
    #[command(flatten)]
    #[serde(flatten)]
    messages: Messages,
    #[command(flatten)]
    #[serde(skip)]
    common: Common,
}

impl Instrument for BlastArgs {
    fn common(&self) -> &Common {
        &self.common
    }

    fn profile(&self) -> Profile {
        self.connection.profile(&[Metric::ElapsedS])
    }

    fn aim(&mut self, far_end: &FarEnd) {
        self.connection.aim(far_end);
    }

    fn measure(&self, session: &Session) -> Result<MeasureOutput, Failure> {
        let far = self.connection.far_end(&self.common).or_bad_input()?;
        let plan = BlastPlan {
            loads: self.messages.loads(Sweep::blast).or_bad_input()?,
            runs: self.connection.runs,
            nagle: self.connection.nagle,
        };
        Ok(blast::measure(&far, &plan, session).into())
    }

    fn table(&self, measurement: &Measurement) -> Result<Option<Table>, Failure> {
        let sizes = self.messages.loads(Sweep::blast).or_bad_input()?;
        Ok(Some(tables::blast_table(measurement, &sizes)))
    }
}
