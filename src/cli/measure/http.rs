//! `farwire measure http`.

use clap::Args;
use model::{Bytes, Nanos};

use super::{Common, Instrument, Shown, above_zero};
use crate::exit::{Blame, Failure};
use crate::instrument::Session;
use crate::instrument::http::{self, Amount, HttpPlan, HttpTarget};

/// An HTTP/1.1 download
#[derive(Args, Debug)]
pub(super) struct HttpArgs {
    /// `http://HOST[:PORT]/PATH`; `farwire serve` has /bytes/N and /seconds/T
    url: String,
    /// End after so many bytes
    #[arg(long, value_name = "SIZE", conflicts_with = "duration")]
    bytes: Option<Bytes>,
    /// End after so long
    #[arg(long, value_name = "TIME", value_parser = above_zero)]
    duration: Option<Nanos>,
    /// Length of the intervals in which bytes are counted
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = above_zero)]
    interval: Nanos,
    #[command(flatten)]
    common: Common,
}

impl Instrument for HttpArgs {
    fn common(&self) -> &Common {
        &self.common
    }

    fn measure(&self, session: &Session) -> Result<Shown, Failure> {
        let target = HttpTarget::resolve(&self.url).or_bad_input()?;
        let plan = HttpPlan {
            amount: self.amount(),
            interval: self.interval.into(),
        };
        Ok(Shown::of(http::measure(&target, &plan, session)))
    }
}

impl HttpArgs {
    fn amount(&self) -> Amount {
        match (self.bytes, self.duration) {
            (Some(Bytes(bytes)), _) => Amount::Bytes(bytes),
            (None, Some(time)) => Amount::For(time.into()),
            (None, None) => Amount::Whole,
        }
    }
}
