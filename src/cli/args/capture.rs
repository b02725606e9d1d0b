//! `--pcap-filter` and `--pcap-limit`: which packets a capture keeps, and how many of them.

use clap::Args;
use model::Bytes;

use super::headings;
use crate::forward::capture::CaptureSpec;
use conditions::filter::{Filter, FilterError};

/// The filter and the size limit of captures.
#[derive(Args, Debug)]
pub(crate) struct CaptureArgs {
    /// Capture only packets that match a filter in tcpdump's syntax: "tcp port 443"
    #[arg(
        long,
        value_name = "FILTER",
        value_parser = filter,
        requires = "pcap",
        help_heading = headings::OUTPUT,
        hide_short_help = true
    )]
    pcap_filter: Option<Filter>,
    /// Maximum capture size [default: 1GiB; unlimited on standard output]
    #[arg(
        long,
        value_name = "SIZE",
        requires = "pcap",
        help_heading = headings::OUTPUT,
        hide_short_help = true
    )]
    pcap_limit: Option<Bytes>,
}

/// Reads a filter without names of hosts, which only rules resolve.
fn filter(text: &str) -> Result<Filter, FilterError> {
    text.parse().and_then(Filter::without_names)
}

/// The largest capture file without `--pcap-limit`.
const LIMIT: Bytes = Bytes(1 << 30);

impl CaptureArgs {
    /// Returns the specification of a capture at both ends of a link, into a file or to standard output.
    pub(crate) fn spec(&self, is_file: bool) -> CaptureSpec {
        let limit = self.pcap_limit.or(is_file.then_some(LIMIT));
        CaptureSpec {
            filter: self.pcap_filter.clone().unwrap_or_default(),
            most_bytes: limit.map(|bytes| bytes.0),
            ..CaptureSpec::default()
        }
    }
}
