//! The far end of pingpong, blast and transfer: a thread a connection, a connection a run.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};

use crate::endpoint::Local;
use crate::messages::exchange::{Channel, Watch};
use crate::messages::far_end;
use crate::messages::far_end::{Place, Served};
use crate::messages::transfer;
use crate::messages::wire;
use crate::messages::wire::{Request, Wait};
use crate::service::{
    ACCEPT_PAUSE, Permit, Refusal, Service, Shared, Slots, WAITING_ROOM, accept_all, listen,
};
use record::{Direction, Figure, Measurement, Metric, Statistic};

/// A client that sends no whole request for so long is dropped.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// What the threads of this service share.
struct Desk {
    shared: Arc<Shared>,
    place: Place,
    connections: Slots,
    /// Connections that wait by spinning.
    spinning: Slots,
}

/// Serves on `port` of `bind`, TCP; UDP sockets on the same port are opened for the clients that ask.
///
/// # Errors
/// It cannot be bound.
pub(crate) fn start(bind: Option<&Local>, port: u16, shared: Arc<Shared>) -> Result<Service> {
    let listener = listen(bind, port, &shared)?;
    let address = listener.local_addr()?;
    let interface = bind.and_then(|bind| match bind {
        Local::Interface(name) => Some(name.clone()),
        Local::Address(_) => None,
    });
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let desk = Desk {
        connections: Slots::new(shared.limits().tests.saturating_add(WAITING_ROOM)),
        spinning: Slots::new((cores / 2).max(1)),
        shared,
        place: Place {
            port: address.port(),
            interface,
        },
    };
    let thread = thread::Builder::new()
        .name("messages".to_owned())
        .spawn(move || desk.accept(&listener))?;
    Ok(Service {
        name: "messages",
        address,
        thread,
    })
}

impl Desk {
    fn accept(&self, listener: &TcpListener) {
        thread::scope(|scope| {
            let take = |stream, peer| {
                // Without a slot there is not even a thread to say so: the connection is closed.
                let Some(slot) = self.connections.take() else {
                    return;
                };
                let client = thread::Builder::new().name("messages client".to_owned());
                // A thread that cannot be had closes the connection as well.
                let _ = client.spawn_scoped(scope, move || {
                    self.attend(stream, peer);
                    drop(slot);
                });
            };
            accept_all(listener, &self.shared, take, turn_away);
        });
    }

    /// One connection, from its request to its end.
    fn attend(&self, stream: TcpStream, peer: SocketAddr) {
        let limits = self.shared.limits();
        let watch = Watch {
            stop: self.shared.as_stop(),
            silence: limits.idle.min(REQUEST_TIMEOUT),
        };
        let Ok(mut channel) = Channel::new(stream, watch) else {
            return;
        };
        match self.request(&channel, peer) {
            Ok((request, permit)) => {
                channel.watch = Watch {
                    stop: self.shared.as_stop().within(limits.duration),
                    silence: limits.idle,
                };
                let measurement = self.test(&mut channel, &request);
                permit.finish(&measurement);
            }
            Err(error) => refuse(&channel, &error),
        }
    }

    /// What the client asks for, if it may.
    fn request(&self, channel: &Channel, peer: SocketAddr) -> Result<(Request, Permit)> {
        let line = channel.receive_line()?;
        let request: Request = line.parse()?;
        let limits = self.shared.limits();
        let memory = far_end::memory_for(&request) as u64;
        ensure!(
            memory <= limits.memory.0,
            "{memory} bytes of memory are more than the {} of a test here",
            limits.memory.0
        );
        if let Request::Transfer { latency, .. } = request {
            ensure!(
                latency < limits.idle,
                "a latency of {} s is more than the {} s of silence that are allowed here",
                latency.as_secs_f64(),
                limits.idle.as_secs_f64()
            );
        }
        let permit = self.shared.admit(peer, request.mode());
        let permit = permit.map_err(|refusal| anyhow!("{refusal}"))?;
        Ok((request, permit))
    }

    fn test(&self, channel: &mut Channel, request: &Request) -> Measurement {
        let asked = match request {
            Request::Pingpong { wait, .. } => *wait,
            Request::Blast { .. } | Request::Transfer { .. } => Wait::Block,
        };
        let slot = (asked == Wait::Spin)
            .then(|| self.spinning.take())
            .flatten();
        let wait = if slot.is_some() {
            Wait::Spin
        } else {
            Wait::Block
        };
        let mut served = Served::default();
        let outcome = far_end::serve(channel, request, wait, &self.place, &mut served);
        if let Err(error) = &outcome
            && served.time == Duration::ZERO
        {
            refuse(channel, error);
        }
        Measurement {
            figures: figures(request, &served),
            failure: outcome.err().map(|error| format!("{error:#}")),
            ..Measurement::default()
        }
        .with_fact("request", request)
    }
}

/// Says to one who may not test here that it is so, as far as that needs no waiting.
fn turn_away(mut stream: TcpStream) {
    let line = wire::refusal(&anyhow!("{}", Refusal::NotAllowed));
    // A new connection has room for a line.
    let _ = writeln!(stream, "{line}");
}

/// Says why in one line, and closes so that the line arrives: what the client has sent is read first, because the
/// kernel resets a connection that is closed with unread bytes.
fn refuse(channel: &Channel, error: &anyhow::Error) {
    const DRAIN_AT_MOST: usize = 16;
    let mut buffer = [0; 4096];
    if channel.send_line(&wire::refusal(error)).is_err() {
        return;
    }
    let _ = channel.stream().shutdown(Shutdown::Write);
    let _ = channel.stream().set_read_timeout(Some(ACCEPT_PAUSE));
    for _ in 0..DRAIN_AT_MOST {
        if !matches!(channel.stream().read(&mut buffer), Ok(1..)) {
            return;
        }
    }
}

/// What the far end can say of one connection.
fn figures(request: &Request, served: &Served) -> Vec<Figure> {
    let total = |metric, value| Figure::new(metric, Statistic::Total, value);
    let (received, sent) = (served.received as f64, served.sent as f64);
    let time_s = served.time.as_secs_f64();
    let (size, figures) = match *request {
        Request::Pingpong { size, .. } => (
            size,
            vec![
                total(Metric::ReceivedBytes, received).toward(Direction::Up),
                total(Metric::SentBytes, sent).toward(Direction::Down),
                total(Metric::ElapsedS, time_s),
            ],
        ),
        Request::Blast { size, .. } => (
            size,
            vec![
                total(Metric::ReceivedBytes, received).toward(Direction::Up),
                total(Metric::ElapsedS, time_s).toward(Direction::Up),
                Figure::new(
                    Metric::GoodputBitPerS,
                    Statistic::Mean,
                    received * 8.0 / time_s,
                )
                .toward(Direction::Up),
            ],
        ),
        Request::Transfer { block, .. } => {
            let values = served.transfer.iter().flat_map(transfer::values);
            let figures = values.map(|(metric, value)| {
                let statistic = transfer::statistic(metric);
                Figure::new(metric, statistic, value).toward(Direction::Up)
            });
            (block, figures.collect())
        }
    };
    let finite = figures
        .into_iter()
        .filter(|figure| figure.value.is_finite());
    finite.map(|figure| figure.size(size as u64)).collect()
}
