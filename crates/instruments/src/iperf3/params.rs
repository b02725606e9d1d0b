//! The parameters that a client sends before a test.

use std::time::Duration;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::fields::Fields;
use super::plan::{
    LARGEST_WINDOW, LONGEST_BLOCK, LONGEST_OMIT_S, LONGEST_TEST_S, MOST_STREAMS, Plan, Protocol,
    Until, Way,
};

/// TCP blocks when nothing is asked for, as in iperf3.
const DEFAULT_BLOCK: u32 = 128 * 1024;
/// `MAX_MSS` of iperf3.
const LARGEST_MSS: i64 = 9 * 1024;
/// iperf3 takes names of congestion controls of any length; the kernel takes 15 characters.
const LONGEST_NAME: usize = 16;
/// The newest iperf3 whose behaviour this follows; servers print it and do not act on it.
const CLIENT_VERSION: &str = concat!("farwire ", env!("CARGO_PKG_VERSION"));

/// A plan and how its datagrams are numbered, as they stand on the wire.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Params {
    /// What to do.
    pub(crate) plan: Plan,
    /// Whether datagrams bear a number of 8 bytes instead of 4.
    pub(crate) udp_counters_64bit: bool,
}

impl Params {
    /// Reads what a client sent.
    ///
    /// # Errors
    /// It is not what iperf3 3.12 and later send, or nothing that a server could do; says which field.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self> {
        let fields = Fields::parse(bytes)?;
        let protocol = match (fields.flag("tcp")?, fields.flag("udp")?) {
            (true, false) => Protocol::Tcp,
            (false, true) => Protocol::Udp,
            (true, true) => bail!("tcp and udp are both true"),
            (false, false) => bail!("neither tcp nor udp is true"),
        };
        let way = match (fields.flag("reverse")?, fields.flag("bidirectional")?) {
            (false, false) => Way::Up,
            (true, false) => Way::Down,
            (false, true) => Way::Both,
            (true, true) => bail!("reverse and bidirectional are both true"),
        };
        let above_zero = |name| -> Result<Option<u64>> {
            Ok(fields.within(name, 0, i64::MAX)?.filter(|n| *n > 0))
        };
        let small = |name, most| -> Result<Option<u32>> {
            Ok(fields.within(name, 0, most)?.filter(|n| *n > 0))
        };
        let seconds = small("time", i64::from(LONGEST_TEST_S))?;
        let omit = small("omit", i64::from(LONGEST_OMIT_S))?.unwrap_or(0);
        let plan = Plan {
            way,
            parallel: fields
                .within("parallel", 1, i64::from(MOST_STREAMS))?
                .unwrap_or(1),
            until: match above_zero("num")? {
                Some(bytes) => Until::Bytes(bytes),
                // Without a time the client ends it when it likes: after so many blocks, or never.
                None => Until::For(Duration::from_secs(seconds.unwrap_or(0).into())),
            },
            omit: Duration::from_secs(omit.into()),
            bitrate: above_zero("bandwidth")?.or(above_zero("fqrate")?),
            length: small("len", i64::from(LONGEST_BLOCK))?,
            congestion: fields.text("congestion", LONGEST_NAME)?,
            mss: small("MSS", LARGEST_MSS)?,
            window: small("window", i64::from(LARGEST_WINDOW))?,
            no_delay: fields.flag("nodelay")?,
            tos: fields.within("TOS", 0, 255)?,
            ..Plan::new(protocol)
        };
        Ok(Self {
            plan,
            udp_counters_64bit: fields.flag("udp_counters_64bit")?,
        })
    }

    /// As iperf3 writes it; types are those that 3.18 and later insist on.
    pub(crate) fn to_json(&self) -> Value {
        let plan = &self.plan;
        let (seconds, bytes) = match plan.until {
            // A server only guards its own time with it, so the rest of a second is the client's to keep.
            Until::For(time) => (time.as_secs() + u64::from(time.subsec_nanos() > 0), 0),
            Until::Bytes(bytes) => (0, bytes),
        };
        let mut json = json!({
            "omit": plan.omit.as_secs(),
            "time": seconds,
            "num": bytes,
            "blockcount": 0,
            "parallel": plan.parallel,
            "len": plan.length.unwrap_or(DEFAULT_BLOCK),
            "pacing_timer": 1000,
            "client_version": CLIENT_VERSION,
        });
        let mut add = |name: &str, value: Value| json[name] = value;
        match plan.protocol {
            Protocol::Tcp => add("tcp", true.into()),
            Protocol::Udp => add("udp", true.into()),
        }
        match plan.way {
            Way::Up => {}
            Way::Down => add("reverse", true.into()),
            Way::Both => add("bidirectional", true.into()),
        }
        if let Some(bitrate) = plan.bitrate {
            add("bandwidth", bitrate.into());
        }
        if let Some(name) = &plan.congestion {
            add("congestion", name.as_str().into());
        }
        if let Some(mss) = plan.mss {
            add("MSS", mss.into());
        }
        if let Some(window) = plan.window {
            add("window", window.into());
        }
        if plan.no_delay {
            add("nodelay", true.into());
        }
        if let Some(tos) = plan.tos.filter(|tos| *tos > 0) {
            add("TOS", tos.into());
        }
        if self.udp_counters_64bit {
            add("udp_counters_64bit", 1.into());
        }
        json
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OF_3_12: &str = r#"{"tcp":true,"omit":1,"time":10,"num":0,"blockcount":0,"parallel":4,
        "bidirectional":true,"len":131072,"pacing_timer":1000,"congestion":"cubic",
        "client_version":"3.12"}"#;

    #[test]
    fn the_parameters_of_3_12_are_read() {
        let params = Params::parse(OF_3_12.as_bytes()).unwrap();
        let expected = Plan {
            way: Way::Both,
            parallel: 4,
            omit: Duration::from_secs(1),
            length: Some(131_072),
            congestion: Some("cubic".to_owned()),
            ..Plan::new(Protocol::Tcp)
        };
        assert_eq!(params.plan, expected);
    }

    #[test]
    fn parameters_are_read_as_they_were_written() {
        let plan = Plan {
            way: Way::Down,
            until: Until::Bytes(1 << 40),
            bitrate: Some(50_000_000),
            length: Some(1448),
            mss: Some(1400),
            window: Some(1 << 20),
            no_delay: true,
            tos: Some(0xb8),
            ..Plan::new(Protocol::Udp)
        };
        let params = Params {
            plan,
            udp_counters_64bit: true,
        };
        let bytes = params.to_json().to_string();
        assert_eq!(Params::parse(bytes.as_bytes()).unwrap(), params);
    }

    #[test]
    fn a_test_of_so_many_blocks_lasts_as_long_as_the_client_likes() {
        let of_blocks = OF_3_12.replace("\"time\":10", "\"time\":0");
        let params = Params::parse(of_blocks.as_bytes()).unwrap();
        assert_eq!(params.plan.duration(), None);
    }

    #[test]
    fn parameters_that_cannot_be_are_refused_by_name() {
        for (from, to, cause) in [
            ("\"tcp\":true", "\"sctp\":true", "neither tcp nor udp"),
            (
                "\"parallel\":4",
                "\"parallel\":129",
                "parallel must be from 1 to 128, not 129",
            ),
            ("\"parallel\":4", "\"parallel\":-1", "parallel must be"),
            (
                "\"time\":10",
                "\"time\":[10]",
                "time must be a whole number, not an array",
            ),
            ("\"len\":131072", "\"len\":1073741824", "len must be"),
            ("\"omit\":1", "\"omit\":601", "omit must be"),
            (
                "\"cubic\"",
                "\"xxxxxxxxxxxxxxxxxxxxxxxx\"",
                "congestion must be at most 16",
            ),
        ] {
            let text = OF_3_12.replace(from, to);
            let error = format!("{:#}", Params::parse(text.as_bytes()).unwrap_err());
            assert!(error.contains(cause), "{error}");
        }
    }
}
