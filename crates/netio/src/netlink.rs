//! rtnetlink for synchronous callers: one request after another, on a thread inside the namespace.

use std::future::Future;
use std::io;
use std::iter;

use rtnetlink::Handle;
use rtnetlink::packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkBuffer, NetlinkMessage, NetlinkPayload,
};
use rtnetlink::packet_route::RouteNetlinkMessage;
use rtnetlink::sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::netns::{NetNs, NetNsError, in_thread};

/// Error of a netlink request.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// The kernel refused the request, or it could not be sent.
    #[error("cannot {what}: {source}")]
    Refused {
        /// The request, with the name of the object.
        what: String,
        /// The cause.
        source: io::Error,
    },
    /// The namespace could not be used.
    #[error(transparent)]
    NetNs(#[from] NetNsError),
}

impl NetlinkError {
    /// Returns the kernel's errno, if there is one.
    pub(crate) fn errno(&self) -> Option<i32> {
        match self {
            Self::Refused { source, .. } => source.raw_os_error(),
            Self::NetNs(_) => None,
        }
    }
}

/// Adds the purpose of a request to its error.
pub(crate) trait RequestContext<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T, NetlinkError>;
}

impl<T> RequestContext<T> for Result<T, rtnetlink::Error> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T, NetlinkError> {
        self.map_err(|error| NetlinkError::Refused {
            what: what(),
            source: match error {
                rtnetlink::Error::NetlinkError(message) => message.to_io(),
                other => io::Error::other(other),
            },
        })
    }
}

impl<T> RequestContext<T> for io::Result<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T, NetlinkError> {
        self.map_err(|source| NetlinkError::Refused {
            what: what(),
            source,
        })
    }
}

/// Asks the kernel for all objects in the namespace of the calling thread that `message` describes, and passes each
/// answer to `take`. No answer is kept: a connection would hold all of them, at 33 kB for each interface.
///
/// # Errors
/// The kernel refuses the request.
pub(crate) fn list(
    message: RouteNetlinkMessage,
    mut take: impl FnMut(RouteNetlinkMessage),
) -> io::Result<()> {
    let mut socket = Socket::new(NETLINK_ROUTE)?;
    socket.bind_auto()?;
    socket.send_to(&request(message, NLM_F_DUMP), &SocketAddr::new(0, 0), 0)?;
    loop {
        let (datagram, _) = socket.recv_from_full()?;
        for payload in payloads(&datagram) {
            match payload {
                NetlinkPayload::InnerMessage(answer) => take(answer),
                NetlinkPayload::Done(_) => return Ok(()),
                NetlinkPayload::Error(error) => return Err(error.to_io()),
                _ => {}
            }
        }
    }
}

/// Asks the kernel for single objects, one after another, in the namespace of the thread that opened it.
pub(crate) struct Requests {
    socket: Socket,
}

impl Requests {
    /// Opens a socket for them.
    ///
    /// # Errors
    /// The kernel has no socket for this process.
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        Ok(Self { socket })
    }

    /// Asks the kernel for the object that `message` describes.
    ///
    /// # Errors
    /// The kernel refuses the request.
    pub(crate) fn get(&self, message: RouteNetlinkMessage) -> io::Result<RouteNetlinkMessage> {
        let bytes = request(message, 0);
        self.socket.send_to(&bytes, &SocketAddr::new(0, 0), 0)?;
        let (datagram, _) = self.socket.recv_from_full()?;
        match payloads(&datagram).next() {
            Some(NetlinkPayload::InnerMessage(answer)) => Ok(answer),
            Some(NetlinkPayload::Error(error)) => Err(error.to_io()),
            _ => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

/// Returns the bytes of a request, for a socket that is used without a connection.
pub(crate) fn request(message: RouteNetlinkMessage, flags: u16) -> Vec<u8> {
    let mut request = NetlinkMessage::from(message);
    request.header.flags = NLM_F_REQUEST | flags;
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);
    bytes
}

/// Iterates over the messages of a datagram, and skips those that cannot be parsed.
pub(crate) fn payloads(
    mut datagram: &[u8],
) -> impl Iterator<Item = NetlinkPayload<RouteNetlinkMessage>> {
    let messages = iter::from_fn(move || {
        let length = NetlinkBuffer::new_checked(datagram).ok()?.length() as usize;
        let message = NetlinkMessage::deserialize(datagram);
        // Messages are padded to 4 bytes.
        datagram = datagram.get(length.next_multiple_of(4)..).unwrap_or(&[]);
        Some(message)
    });
    messages.flatten().map(|message| message.payload)
}

/// Runs `f` with an rtnetlink connection of `ns` and waits for its end.
///
/// It uses a separate thread and runtime, so that it can be called anywhere, even within another runtime.
pub(crate) fn call<T, F, Fut>(ns: &NetNs, f: F) -> Result<T, NetlinkError>
where
    T: Send,
    F: FnOnce(Handle) -> Fut + Send,
    Fut: Future<Output = Result<T, NetlinkError>>,
{
    ns.run(|| run_connection(f))?
}

/// Runs `f` in the namespace of the calling thread. Entering even that namespace by [`call`] would require
/// CAP_SYS_ADMIN.
pub(crate) fn call_here<T, F, Fut>(f: F) -> Result<T, NetlinkError>
where
    T: Send,
    F: FnOnce(Handle) -> Fut + Send,
    Fut: Future<Output = Result<T, NetlinkError>>,
{
    in_thread(|| run_connection(f))?
}

fn run_connection<T, F, Fut>(f: F) -> Result<T, NetlinkError>
where
    F: FnOnce(Handle) -> Fut,
    Fut: Future<Output = Result<T, NetlinkError>>,
{
    let open = || "open a netlink connection".to_owned();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .context(open)?;
    runtime.block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection().context(open)?;
        tokio::spawn(connection);
        f(handle).await
    })
}
