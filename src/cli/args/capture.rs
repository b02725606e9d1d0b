//! `--pcap-filter` and `--pcap-limit`: what a capture keeps.

use clap::Args;
use model::Bytes;

use crate::forward::capture::{CaptureSpec, Filter};

/// What is captured, and how much of it.
#[derive(Args, Debug)]
pub(crate) struct CaptureArgs {
    /// Capture only what meets all of it, in some of tcpdump's words: tcp port 443 and host 10.77.0.2
    #[arg(long, value_name = "FILTER", requires = "pcap")]
    pcap_filter: Option<Filter>,
    /// A capture ends when its file is so long; without, a file at 1GiB and standard output never
    #[arg(long, value_name = "SIZE", requires = "pcap")]
    pcap_limit: Option<Bytes>,
}

/// Of a file where nothing else is said.
const LIMIT: Bytes = Bytes(1 << 30);

impl CaptureArgs {
    /// At both ends of a link, into a file or standard output.
    pub(crate) fn spec(&self, is_file: bool) -> CaptureSpec {
        let limit = self.pcap_limit.or(is_file.then_some(LIMIT));
        CaptureSpec {
            filter: self.pcap_filter.clone().unwrap_or_default(),
            most_bytes: limit.map(|bytes| bytes.0),
            ..CaptureSpec::default()
        }
    }
}
