//! The kernel's token bucket (tc-tbf(8)) on an interface, a shaper that is independent of farwire.

use std::io;

use futures_util::StreamExt as _;
use model::BitsPerSec;
use rtnetlink::Handle;
use rtnetlink::packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::tc::{TcAttribute, TcHandle, TcMessage, TcOption};

use crate::netlink::{self, NetlinkError, RequestContext as _};
use crate::netns::NetNs;

/// The parameters of a token bucket, which counts L2 bytes without FCS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TbfConfig {
    /// Rate at which it fills.
    pub rate: BitsPerSec,
    /// Bytes that may leave back to back, faster than the rate.
    pub burst: u32,
    /// Bytes that may wait in the queue.
    pub limit: u32,
}

impl TbfConfig {
    /// Adds the token bucket to the egress of `interface` in `namespace`.
    ///
    /// # Errors
    /// There is no such interface, it already has a queue discipline, or the kernel has no tbf.
    pub fn put_on(&self, namespace: &NetNs, interface: &str) -> Result<(), NetlinkError> {
        let what = || format!("put a token bucket (tbf) on {interface}");
        netlink::call(namespace, async |mut handle| {
            let index = nix::net::if_::if_nametoindex(interface).map_err(io::Error::from);
            let message = self.message(index.context(what)?);
            ask(&mut handle, message).await.context(what)
        })
    }

    /// Returns the request of `tc qdisc add dev INTERFACE root tbf`.
    fn message(&self, index: u32) -> TcMessage {
        // The attributes are those of include/uapi/linux/pkt_sched.h.
        const PARMS: u16 = 1;
        const RATE64: u16 = 4;
        const BURST: u16 = 6;
        let options = [
            (PARMS, self.parameters()),
            (RATE64, self.bytes_per_second().to_ne_bytes().to_vec()),
            (BURST, self.burst.to_ne_bytes().to_vec()),
        ]
        .map(|(kind, value)| TcOption::Other(DefaultNla::new(kind, value)));
        let mut message = TcMessage::with_index(index.cast_signed());
        message.header.parent = TcHandle::ROOT;
        message.attributes = vec![
            TcAttribute::Kind("tbf".to_owned()),
            TcAttribute::Options(options.into()),
        ];
        message
    }

    fn bytes_per_second(&self) -> u64 {
        self.rate.get() / 8
    }

    /// Returns `struct tc_tbf_qopt`: two `tc_ratespec`, the limit, the burst in ticks, and an MTU.
    fn parameters(&self) -> Vec<u8> {
        const ETHERNET: u8 = 1;
        let rate = u32::try_from(self.bytes_per_second()).unwrap_or(u32::MAX);
        let mut bytes = vec![0, ETHERNET, 0, 0, 0, 0, 0, 0];
        bytes.extend(rate.to_ne_bytes());
        // There is no peak rate, and the attribute BURST has the burst in bytes.
        bytes.extend([0; 12]);
        bytes.extend(self.limit.to_ne_bytes());
        bytes.extend([0; 8]);
        bytes
    }
}

/// Sends a request for a new queue discipline. The library's request has no place for its options.
async fn ask(handle: &mut Handle, message: TcMessage) -> Result<(), rtnetlink::Error> {
    let mut request = NetlinkMessage::from(RouteNetlinkMessage::NewQueueDiscipline(message));
    request.header.flags = NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL;
    let mut answers = handle.request(request)?;
    while let Some(answer) = answers.next().await {
        if let NetlinkPayload::Error(error) = answer.payload
            && error.code.is_some()
        {
            return Err(rtnetlink::Error::NetlinkError(error));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parameters_have_the_size_of_the_kernel_struct() {
        let bucket = TbfConfig {
            rate: "8mbit".parse().unwrap(),
            burst: 6056,
            limit: 100_000,
        };
        let bytes = bucket.parameters();
        assert_eq!(bytes.len(), 36);
        assert_eq!(bytes[8..12], 1_000_000_u32.to_ne_bytes());
        assert_eq!(bytes[24..28], 100_000_u32.to_ne_bytes());
    }
}
