//! Redirects everything that one interface receives to another one, which sends it. It uses an ingress filter that
//! matches everything (cls_u32) with a redirect action (net/sched/act_mirred.c). The redirection happens within the
//! call that receives the packet.

use std::io;

use rtnetlink::packet_core::{NLM_F_DUMP, NetlinkPayload};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::tc::{
    TcActionAttribute, TcAttribute, TcFilterU32Option, TcHandle, TcMessage, TcOption, TcStats2,
};
use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::netlink::{self, NetlinkError, RequestContext as _};

const ALL_PROTOCOLS: u16 = 0x0003;

/// A redirection. It belongs to the receiving interface and disappears with it.
#[derive(Debug)]
pub(crate) struct Redirect {
    from: u32,
    /// A socket of the namespace in which the redirection is.
    socket: Socket,
}

impl Redirect {
    /// Redirects all frames that the interface number `from` receives to the interface number `to`, both in the
    /// namespace of the calling thread.
    ///
    /// # Errors
    /// CAP_NET_ADMIN is missing, or the kernel has no such filter or action.
    pub(crate) fn new(from: u32, to: u32) -> Result<Self, NetlinkError> {
        let ask = || "count what is redirected".to_owned();
        let mut socket = Socket::new(NETLINK_ROUTE).context(ask)?;
        socket.bind_auto().context(ask)?;
        netlink::call_here(async |handle| {
            let queue = handle.qdisc().add(from.cast_signed()).ingress();
            let added = queue.execute().await;
            added.context(|| "have received frames filtered (sch_ingress)".to_owned())?;
            let what = || "redirect received frames (cls_u32, act_mirred)".to_owned();
            let mut filters = handle.traffic_filter(from.cast_signed());
            let filter = filters
                .add()
                .ingress()
                .protocol(ALL_PROTOCOLS.to_be())
                .redirect(to)
                .context(what)?;
            filter.execute().await.context(what)
        })?;
        Ok(Self { from, socket })
    }

    /// Returns the number of frames that the other interface refused, or could not take because it was down.
    ///
    /// # Errors
    /// The socket fails.
    pub(crate) fn refused(&self) -> io::Result<u64> {
        let mut filters = TcMessage::with_index(self.from.cast_signed());
        filters.header.parent = TcHandle {
            major: 0xffff,
            minor: TcHandle::MIN_INGRESS,
        };
        let get = RouteNetlinkMessage::GetTrafficFilter(filters);
        let bytes = netlink::request(get, NLM_F_DUMP);
        self.socket.send_to(&bytes, &SocketAddr::new(0, 0), 0)?;
        let mut refused = 0;
        loop {
            let (answers, _) = self.socket.recv_from_full()?;
            let (count, is_end) = read(&answers);
            refused += count;
            if is_end {
                return Ok(refused);
            }
        }
    }
}

/// Returns the count in a datagram of a dump, and whether the datagram is the last one.
fn read(answers: &[u8]) -> (u64, bool) {
    let (mut refused, mut is_end) = (0, false);
    for answer in netlink::payloads(answers) {
        match answer {
            NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewTrafficFilter(filter)) => {
                refused += not_redirected(&filter);
            }
            NetlinkPayload::Done(_) | NetlinkPayload::Error(_) => is_end = true,
            _ => {}
        }
    }
    (refused, is_end)
}

/// Calls [`read`] for fuzzers.
pub(crate) fn refused_in(answers: &[u8]) -> u64 {
    read(answers).0
}

/// Returns the number of packets that the actions of `filter` count as over their limits.
fn not_redirected(filter: &TcMessage) -> u64 {
    let options = filter.attributes.iter().filter_map(|one| match one {
        TcAttribute::Options(options) => Some(options),
        _ => None,
    });
    let actions = options.flatten().filter_map(|option| match option {
        TcOption::U32(TcFilterU32Option::Action(actions)) => Some(actions),
        _ => None,
    });
    let attributes = actions.flatten().flat_map(|action| &action.attributes);
    let stats = attributes.filter_map(|attribute| match attribute {
        TcActionAttribute::Stats(stats) => Some(stats),
        _ => None,
    });
    let counts = stats.flatten().filter_map(|one| match one {
        TcStats2::Queue(queue) => Some(u64::from(queue.overlimits)),
        _ => None,
    });
    counts.sum()
}
