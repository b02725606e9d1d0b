//! Requests to the API, as a function that fuzzers call. The API must answer in bounded time and without a panic.

use std::future::poll_fn;
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::str;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::task::Poll;

use axum::body::{Body, HttpBody as _};
use axum::extract::{DefaultBodyLimit, Request};
use axum::http::StatusCode;
use axum::{Extension, Router};
use conditions::LinkSpec;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use model::CheckedPaths;
use tokio::runtime::{self, Runtime};

use super::client::ClientConnection;
use super::guard::LARGEST_BODY;
use super::{AppState, MOST_CHANGING, openapi};
use crate::forward::thread::ForwarderThread;
use crate::forward::{NewConditions, fuzzing};
use crate::live::{Links, NewLink};

/// The conditions in force before each request. They have something of each kind that a patch can change.
const IN_FORCE: &str = "\
    delay = '20ms'\n\
    rate = '10mbit'\n\
    queue = '50ms'\n\
    schedule = [{ at = '1s', loss = '1%' }, { at = '2s', without = ['loss'] }]\n\
    [up]\n\
    jitter = '2ms,normal'\n\
    [[stages]]\n\
    kind = 'stall'\n\
    every = '15s'\n\
    lasts = '100ms'\n\
    [[rules]]\n\
    name = 'calls'\n\
    protocol = 'udp'\n\
    port = 5060\n\
    delay = '5ms'\n";

/// An API with one link, which no packet crosses.
struct Api {
    links: Links,
    forwarder: ForwarderThread,
    router: TowerToHyperService<Router>,
    runtime: Runtime,
    /// The client's end of the connection through which all requests come.
    _client: UnixStream,
}

static API: LazyLock<Mutex<Api>> = LazyLock::new(|| Mutex::new(Api::start()));

/// Sends a request to an API whose link is in its first state. The bytes are text: the method and the path in the first line, one header
/// in each further line, an empty line and the body.
///
/// # Panics
/// The API panicked, or the status of its answer is 500 or above.
pub(crate) fn request(bytes: &[u8]) {
    let Some(request) = parse(bytes) else {
        return;
    };
    let api = API.lock().unwrap_or_else(PoisonError::into_inner);
    api.reset();
    let status = api.answer(request);
    assert!(!status.is_server_error(), "{status}");
}

fn parse(bytes: &[u8]) -> Option<Request> {
    let is_end = |pair: &[u8]| pair == b"\n\n";
    let (head, body) = match bytes.windows(2).position(is_end) {
        Some(end) => (&bytes[..end], &bytes[end + 2..]),
        None => (bytes, &[][..]),
    };
    let mut lines = str::from_utf8(head).ok()?.lines();
    let (method, path) = lines.next()?.split_once(' ')?;
    let mut request = Request::builder().method(method).uri(path);
    for line in lines {
        let (name, value) = line.split_once(": ")?;
        request = request.header(name, value);
    }
    request.body(Body::from(body.to_vec())).ok()
}

impl Api {
    fn start() -> Self {
        let started = || -> anyhow::Result<Self> {
            let link = spec(IN_FORCE).to_link("box")?;
            let forwarder = fuzzing::silent(link)?;
            let (client, server) = UnixStream::pair()?;
            server.set_nonblocking(true)?;
            let links = Links::default();
            // No capture starts, because its query is checked before that.
            let app = AppState::new(links.clone(), 0);
            // There is no guard, because it would refuse requests at this rate.
            let router = openapi::router().0;
            let router = router.layer(DefaultBodyLimit::max(LARGEST_BODY));
            let router = router.layer(Extension(ClientConnection::of(&server)?));
            let runtime = runtime::Builder::new_current_thread()
                .enable_io()
                .enable_time()
                .max_blocking_threads(1 + MOST_CHANGING)
                .build()?;
            Ok(Self {
                links,
                forwarder,
                router: TowerToHyperService::new(router.with_state(app)),
                runtime,
                _client: client,
            })
        };
        started().expect("the machine has a thread and a few descriptors")
    }

    /// Resets the link, so that the outcome of a request does not depend on earlier requests.
    fn reset(&self) {
        self.links.clear();
        let forwarder = self.forwarder.handle();
        // The stages of the last request are removed first, because a stage cannot change its kind.
        for text in ["", IN_FORCE] {
            let link = spec(text).to_link("box").expect("the conditions are valid");
            let paths = CheckedPaths::new(link.config.paths).expect("the conditions are valid");
            let new = NewConditions {
                paths,
                rules: link.rules,
                ..NewConditions::default()
            };
            let changed = forwarder.change(0, new);
            changed.expect("no packet is on its way");
        }
        self.links.put(NewLink {
            name: "link".to_owned(),
            ends: ["client", "server"].map(str::to_owned).into(),
            forwarder: forwarder.clone(),
            number: 0,
            spec: spec(IN_FORCE),
            build: Ok(Box::new(|spec| spec.to_link("box"))),
        });
    }

    /// Returns the status of the answer. The part of the body that is ready is read.
    fn answer(&self, request: Request) -> StatusCode {
        self.runtime.block_on(async {
            let Ok(response) = self.router.call(request).await;
            let (head, mut body) = response.into_parts();
            // Streams of events, and answers that last as long as a lease, do not end.
            poll_fn(|context| {
                while let Poll::Ready(Some(Ok(_))) = Pin::new(&mut body).poll_frame(context) {}
                Poll::Ready(())
            })
            .await;
            head.status
        })
    }
}

/// Reads the conditions of a link file.
fn spec(text: &str) -> LinkSpec {
    toml::from_str(text).expect("the conditions are valid")
}
