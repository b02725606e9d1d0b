//! Redirects everything that one interface receives to another, which sends it: a filter on ingress that matches everything
//! (cls_u32) with a redirect action (net/sched/act_mirred.c). This happens within the call that receives the packet.

use std::io;

use rtnetlink::packet_core::{NLM_F_DUMP, NetlinkPayload};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::packet_route::tc::{
    TcActionAttribute, TcAttribute, TcFilterU32Option, TcHandle, TcMessage, TcOption, TcStats2,
};
use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::netlink::{self, NetlinkError, RequestContext as _};

const ALL_PROTOCOLS: u16 = 0x0003;

/// A redirection, which belongs to the interface that receives and goes with it.
#[derive(Debug)]
pub(crate) struct Redirect {
    from: u32,
    /// Of the namespace in which it is.
    socket: Socket,
}

impl Redirect {
    /// Has all that the interface numbered `from` receives leave by `to`, both of the calling thread's namespace.
    ///
    /// # Errors
    /// Without CAP_NET_ADMIN, and on a kernel without the filter or the action.
    pub(crate) fn new(from: u32, to: u32) -> Result<Self, NetlinkError> {
        let ask = || "count what is redirected".to_owned();
        let mut socket = Socket::new(NETLINK_ROUTE).asked(ask)?;
        socket.bind_auto().asked(ask)?;
        netlink::call_here(async |handle| {
            let queue = handle.qdisc().add(from.cast_signed()).ingress();
            let added = queue.execute().await;
            added.asked(|| "have received frames filtered (sch_ingress)".to_owned())?;
            let what = || "redirect received frames (cls_u32, act_mirred)".to_owned();
            let mut filters = handle.traffic_filter(from.cast_signed());
            let filter = filters.add().ingress().protocol(ALL_PROTOCOLS.to_be());
            let filter = filter.redirect(to).asked(what)?;
            filter.execute().await.asked(what)
        })?;
        Ok(Self { from, socket })
    }

    /// Frames that the other interface refused, or could not take because it was down.
    ///
    /// # Errors
    /// When the socket fails.
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

/// What a datagram of a dump's answers counts, and whether it is the last.
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

/// [`read`] for fuzzers.
pub(crate) fn refused_in(answers: &[u8]) -> u64 {
    read(answers).0
}

/// What the actions of `filter` count as beyond their limits.
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
