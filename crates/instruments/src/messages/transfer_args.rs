//! `farwire measure transfer`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use model::{Bytes, Nanos};

use crate::Session;
use crate::failure::{Blame, Failure};
use crate::instrument::{Common, FarEnd, Instrument, MeasureOutput};
use crate::messages::args::Connection;
use crate::messages::sizes::{MessageSizes, TRANSFER_BLOCKS};
use crate::messages::tables;
use crate::messages::transfer::{self, Data, TransferPlan};
use crate::messages::wire::BLOCKS;
use record::profile::Profile;
use record::table::Table;
use record::{Measurement, Metric};
use serde::{Deserialize, Serialize};

/// A transfer in blocks, and what the far end's reads made of it
#[derive(Args, Debug, Serialize, Deserialize)]
pub struct TransferArgs {
    #[command(flatten)]
    #[serde(flatten)]
    connection: Connection,
    /// Send this file
    #[arg(short = 'F', long, value_name = "FILE", conflicts_with = "bytes")]
    file: Option<PathBuf>,
    /// Generate so many bytes that do not compress
    #[arg(short = 'n', long, value_name = "SIZE", default_value = "10MiB")]
    bytes: Bytes,
    /// Block size, at most 8 MiB, of one send and of one read: one, a list or a doubling range 1KiB..128KiB
    #[arg(
        long,
        visible_alias = "buffer-size",
        value_name = "SIZES",
        default_value = "8192",
        conflicts_with = "sweep"
    )]
    block: MessageSizes,
    /// The eight block sizes from 1 KiB to 128 KiB
    #[arg(long)]
    sweep: bool,
    /// Pause after each block, as a slow link would
    #[arg(long, value_name = "TIME", default_value = "0s")]
    latency: Nanos,
    #[command(flatten)]
    #[serde(skip)]
    common: Common,
}

impl Instrument for TransferArgs {
    fn common(&self) -> &Common {
        &self.common
    }

    fn profile(&self) -> Profile {
        self.connection.profile(&[
            Metric::Reads,
            Metric::ReadSizeBytes,
            Metric::ElapsedS,
            Metric::ReadTimeMs,
            Metric::TimePerMibMs,
        ])
    }

    fn aim(&mut self, far_end: &FarEnd) {
        self.connection.aim(far_end);
    }

    fn measure(&self, session: &Session) -> Result<MeasureOutput, Failure> {
        let far = self.connection.far_end(&self.common).or_bad_input()?;
        let plan = TransferPlan {
            data: self.data()?,
            blocks: self.blocks()?,
            latency: Duration::from(self.latency),
            runs: self.connection.runs,
            nagle: self.connection.nagle,
        };
        Ok(transfer::measure(&far, &plan, session).into())
    }

    fn table(&self, measurement: &Measurement) -> Result<Option<Table>, Failure> {
        let sizes = self.blocks()?;
        Ok(Some(tables::transfer_table(measurement, &sizes)))
    }
}

impl TransferArgs {
    fn data(&self) -> Result<Data, Failure> {
        if let Some(file) = &self.file {
            transfer::open(file).or_bad_input()?;
            return Ok(Data::File(file.clone()));
        }
        if self.bytes == Bytes(0) || i64::try_from(self.bytes.0).is_err() {
            return Err(Failure::bad_input("--bytes: from 1b on"));
        }
        Ok(Data::Generated(self.bytes.0))
    }

    fn blocks(&self) -> Result<Vec<usize>, Failure> {
        if self.sweep {
            return Ok(TRANSFER_BLOCKS.into());
        }
        let too_large = self
            .block
            .list()
            .iter()
            .find(|&&b| b as u64 > *BLOCKS.end());
        match too_large {
            None => Ok(self.block.list().into()),
            Some(block) => Err(Failure::bad_input(format_args!(
                "a block of {block} bytes is too large: at most {}",
                BLOCKS.end()
            ))),
        }
    }
}
