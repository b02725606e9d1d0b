//! The instruments: each acts in the calling thread's network namespace and hands back one [`Measurement`].

pub(crate) mod capacity;
pub(crate) mod external;
mod form;
pub(crate) mod http;
pub(crate) mod iperf3;
pub(crate) mod layers;
pub(crate) mod live;
pub(crate) mod messages;
mod meter;
pub(crate) mod ping;
mod spread;
pub(crate) mod stamp;
pub(crate) mod stop;
mod tally;
pub(crate) mod udp;
mod words;

use external::{Here, Launcher, Within};
pub(crate) use form::{Figure, Measurement, Sample};
pub(crate) use live::Live;
pub(crate) use spread::Spread;
pub(crate) use stop::Stop;
pub(crate) use words::{Direction, Metric, Phase, Statistic};

/// What an instrument is used within: when to end, and who looks on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Session {
    /// Asked for at least every [`stop::STOP_INTERVAL`].
    pub(crate) stop: Stop,
    /// Told a line an interval.
    pub(crate) live: Live,
    /// Whether external tools run in a test bed, contained.
    pub(crate) in_bed: bool,
}

impl Session {
    /// Without an onlooker, until `stop`.
    pub(crate) fn quiet(stop: Stop) -> Self {
        Self {
            stop,
            live: Live::quiet(),
            in_bed: false,
        }
    }

    /// What starts external tools.
    pub(crate) fn launcher(&self) -> &'static dyn Launcher {
        if self.in_bed { &Within } else { &Here }
    }
}

/// Serde for a duration as a number of seconds, as the names of such fields say.
pub(crate) mod seconds {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de};

    pub(crate) fn serialize<S: Serializer>(time: &Duration, target: S) -> Result<S::Ok, S::Error> {
        target.serialize_f64(time.as_secs_f64())
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(source: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(source)?).map_err(de::Error::custom)
    }
}
