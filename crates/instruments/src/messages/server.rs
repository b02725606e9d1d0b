//! The far end of pingpong, blast and transfer. Each connection has a thread and carries one run.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Context, Error, Result};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use super::connection::{DatagramWait, MessageError, MessageStream, NumberedDatagrams, number_of};
use super::transfer;
use super::wire::{
    self, DONE, EchoResult, LARGEST_DATAGRAM, MessageGrant, MessageRequest, Mode, TransferResult,
    WaitMode,
};
use crate::endpoint::Local;
use crate::service::{
    ACCEPT_PAUSE, AdmissionRefusal, BoundService, ConnectionPermit, DirectionTraffic, Permit,
    PermitPool, RefusalCause, Shared, TestResources, TestTraffic, TrafficPublisher, accept_all,
    keep_alive, listen,
};
use netio::tcp::TcpInfo;
use record::Statistic::{Mean, Total};
use record::{Direction, Figure, Measurement, Metric};

/// A client that sends no complete request within this time is disconnected.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The size in bytes of the buffer into which blast's messages are read.
const DISCARD_BUFFER: usize = 256 * 1024;

/// The state that the threads of this service share.
struct MessageServer {
    shared: Arc<Shared>,
    /// The TCP port, and also the UDP port for clients that ask for UDP.
    port: u16,
    /// The interface, if the service is bound to one.
    interface: Option<String>,
    /// The permits of connections that wait by spinning.
    spinning: PermitPool,
}

/// One test with its counts, which are kept also after a failure.
struct MessageTest<'a> {
    server: &'a MessageServer,
    stream: MessageStream,
    buffer: Vec<u8>,
    /// Payload bytes received.
    received: u64,
    /// Payload bytes sent back.
    sent: u64,
    /// The datagrams received and sent back, or `None` for a test over TCP.
    datagrams: Option<[u64; 2]>,
    publisher: TrafficPublisher,
    /// The duration from the answer to the request onwards.
    time: Duration,
    /// The result of a transfer.
    transfer: Option<TransferResult>,
}

/// Binds the TCP service to `port` of `bind`. UDP sockets on the same port are opened for clients that ask for them.
///
/// # Errors
/// Returns an error if the port cannot be bound.
pub(crate) fn bind(bind: Option<&Local>, port: u16, shared: Arc<Shared>) -> Result<BoundService> {
    let listener = listen(bind, port, &shared)?;
    let address = listener.local_addr()?;
    let interface = bind.and_then(|bind| match bind {
        Local::Interface(name) => Some(name.clone()),
        Local::Address(_) => None,
    });
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let server = MessageServer {
        spinning: PermitPool::new((cores / 2).max(1)),
        shared,
        port: address.port(),
        interface,
    };
    Ok(BoundService::new("messages", address, move || {
        server.accept(&listener)
    }))
}

impl MessageServer {
    fn accept(&self, listener: &TcpListener) {
        thread::scope(|scope| {
            let take = |stream, peer, place| {
                let client = thread::Builder::new().name("messages client".to_owned());
                // If the thread cannot be started, the connection is closed as well.
                let _ =
                    client.spawn_scoped(scope, move || self.serve_connection(stream, peer, &place));
            };
            accept_all(
                listener,
                ("messages", &self.shared),
                take,
                refuse_connection,
            );
        });
    }

    /// Serves one connection from its request to its end.
    fn serve_connection(&self, stream: TcpStream, peer: SocketAddr, place: &ConnectionPermit) {
        let limits = self.shared.limits();
        if keep_alive(&SockRef::from(&stream), limits.idle).is_err() {
            return;
        }
        let timeout = limits.idle.min(REQUEST_TIMEOUT);
        let Ok(mut stream) = MessageStream::new(stream, self.shared.as_stop(), timeout) else {
            return;
        };
        match self.request(&stream, peer) {
            Ok((request, permit)) => {
                place.begin();
                stream.stop = self.shared.as_stop().within(limits.duration);
                stream.silence = limits.idle;
                let publisher = permit.publisher();
                permit.finish(&self.test(stream, &request, publisher));
            }
            Err(error) => refuse(&stream, &error),
        }
    }

    /// Reads the client's request and admits its test, if it may run.
    fn request(
        &self,
        stream: &MessageStream,
        peer: SocketAddr,
    ) -> Result<(MessageRequest, Permit)> {
        let line = stream.receive_line()?;
        let request: MessageRequest = line.parse()?;
        let limits = self.shared.limits();
        let memory = memory_for(&request.mode) as u64;
        let over_limit = |why: String| {
            let test = request.mode.name();
            self.shared
                .refused(test, peer, RefusalCause::OverLimit, &why);
            Err(Error::Peer(why))
        };
        if memory > limits.memory.0 {
            return over_limit(format!(
                "{memory} bytes of memory exceed the {} of a test here",
                limits.memory.0
            ));
        }
        if let Mode::Transfer { latency, .. } = request.mode
            && latency >= limits.idle
        {
            return over_limit(format!(
                "a latency of {} s exceeds the {} s of silence that are allowed here",
                latency.as_secs_f64(),
                limits.idle.as_secs_f64()
            ));
        }
        let needs = TestResources {
            memory,
            sockets: matches!(request.mode, Mode::Pingpong { udp: Some(_), .. }).into(),
        };
        let permit = self.shared.admit(peer, request.mode.name(), needs);
        Ok((
            request,
            permit.map_err(|refusal| Error::Peer(format!("{refusal}")))?,
        ))
    }

    fn test(
        &self,
        stream: MessageStream,
        request: &MessageRequest,
        publisher: TrafficPublisher,
    ) -> Measurement {
        let spin_permit = match request.mode {
            Mode::Pingpong {
                wait: WaitMode::Spin,
                ..
            } => self.spinning.take(),
            _ => None,
        };
        let wait = spin_permit
            .as_ref()
            .map_or(WaitMode::Block, |_| WaitMode::Spin);
        let mut test = MessageTest {
            server: self,
            stream,
            buffer: vec![0; memory_for(&request.mode)],
            received: 0,
            sent: 0,
            datagrams: None,
            publisher,
            time: Duration::ZERO,
            transfer: None,
        };
        let outcome = test.serve(request, wait);
        test.publisher.finish(&test.traffic());
        if let Err(error) = &outcome
            && test.time == Duration::ZERO
        {
            refuse(&test.stream, error);
        }
        Measurement {
            figures: test.figures(&request.mode),
            failure: outcome.err().map(|error| format!("{error:#}")),
            ..Measurement::default()
        }
        .with_fact("request", request)
    }
}

/// Tells a refused client the reason, without waiting.
fn refuse_connection(mut stream: TcpStream, refusal: AdmissionRefusal) {
    let line = wire::refusal(&Error::Peer(format!("{refusal}")));
    // The send buffer of a new connection has room for a line. It is sent in one piece, because a connection that is
    // closed with unread bytes discards what it has not sent yet.
    let _ = stream.write_all(format!("{line}\n").as_bytes());
}

/// Tells the client the error in one line, and closes so that the line arrives: it first reads what the client has
/// sent, because the kernel resets a connection that is closed with unread bytes.
fn refuse(stream: &MessageStream, error: &Error) {
    const DRAIN_AT_MOST: usize = 16;
    let mut buffer = [0; 4096];
    if stream.send_line(&wire::refusal(error)).is_err() {
        return;
    }
    let _ = stream.socket().shutdown(Shutdown::Write);
    let _ = stream.socket().set_read_timeout(Some(ACCEPT_PAUSE));
    for _ in 0..DRAIN_AT_MOST {
        if !matches!(stream.socket().read(&mut buffer), Ok(1..)) {
            return;
        }
    }
}

/// Returns the bytes of memory that serving `mode` needs.
fn memory_for(mode: &Mode) -> usize {
    match *mode {
        Mode::Pingpong { udp: Some(_), .. } => LARGEST_DATAGRAM.into(),
        Mode::Pingpong { size, .. } => size,
        Mode::Blast { .. } => DISCARD_BUFFER,
        Mode::Transfer { block, .. } => block,
    }
}

/// Returns the traffic of a test with these payload bytes received and sent, in this number of datagrams if it is over
/// UDP.
fn traffic(
    stream: &MessageStream,
    (received, sent, datagrams): (u64, u64, Option<[u64; 2]>),
) -> TestTraffic {
    let info = TcpInfo::of(stream.socket()).unwrap_or_default();
    let of_tcp = TestTraffic::of_tcp(&[info], [received, sent]);
    let Some(datagrams) = datagrams else {
        return of_tcp;
    };
    let [up, down] = [(datagrams[0], received), (datagrams[1], sent)]
        .map(|(packets, bytes)| DirectionTraffic { packets, bytes });
    TestTraffic {
        up,
        down,
        // Only the client knows which datagrams are lost.
        loss: None,
        ..of_tcp
    }
}

impl MessageTest<'_> {
    /// Answers `request` and serves it. `wait` is the granted way to wait.
    ///
    /// # Errors
    /// Returns an error if the connection breaks, or a UDP socket cannot be opened.
    fn serve(&mut self, request: &MessageRequest, wait: WaitMode) -> Result<()> {
        self.stream.socket().set_nodelay(!request.nagle)?;
        let port = self.server.port;
        let udp = match request.mode {
            Mode::Pingpong { udp, .. } => udp,
            Mode::Blast { .. } | Mode::Transfer { .. } => None,
        };
        // The socket is ready and emptied before the client is told, so that nothing that the client then sends is
        // lost.
        let datagrams = udp
            .map(|theirs| NumberedDatagrams::new(self.answering_socket(theirs)?, wait))
            .transpose()
            .with_context(|| format!("no UDP socket on port {port}"))?;
        let socket = SockRef::from(self.stream.socket());
        let grant = MessageGrant {
            wait,
            mss: socket.tcp_mss()?,
            rcvbuf: socket.recv_buffer_size()? as u64,
            udp: udp.map(|_| port),
        };
        self.stream.send_line(&grant.to_string())?;
        self.stream.wait = wait;
        let start = Instant::now();
        let outcome = match (&request.mode, datagrams) {
            (Mode::Pingpong { count, .. }, Some(datagrams)) => {
                self.echo_datagrams(datagrams, *count)
            }
            (Mode::Pingpong { count, .. }, None) => self.echo(*count),
            (Mode::Blast { size, count }, _) => self.discard(*size as u64 * count),
            (Mode::Transfer { bytes, .. }, _) => self.record_reads(*bytes),
        };
        self.time = start.elapsed();
        Ok(outcome?)
    }

    /// Sends `count` messages back, each once all of it has arrived.
    fn echo(&mut self, count: u64) -> Result<(), MessageError> {
        let length = self.buffer.len() as u64;
        for _ in 0..count {
            self.stream.receive(&mut self.buffer)?;
            self.received += length;
            self.stream.send(&self.buffer)?;
            self.sent += length;
            // The check takes place while the answer is on its way, because a test that never waits does not check
            // otherwise.
            self.stream.check_stop()?;
            self.publish();
        }
        Ok(())
    }

    /// Sends datagrams back until the client says that it is done. Datagrams after the first `count` are duplicates and
    /// are not answered.
    fn echo_datagrams(
        &mut self,
        mut datagrams: NumberedDatagrams,
        count: u64,
    ) -> Result<(), MessageError> {
        let mut result = EchoResult::default();
        let mut last = None;
        let mut quiet = None;
        let [mut arrived, mut answered] = [0, 0];
        self.datagrams = Some([arrived, answered]);
        loop {
            match datagrams.receive(&mut self.buffer, None)? {
                DatagramWait::Datagram(length) => {
                    quiet = None;
                    self.stream.check_stop()?;
                    self.received += length as u64;
                    arrived += 1;
                    let message = &self.buffer[..length];
                    if result.received == count {
                        result.duplicates += 1;
                        continue;
                    }
                    if last.replace(number_of(message)) == Some(number_of(message)) {
                        result.duplicates += 1;
                    } else {
                        result.received += 1;
                    }
                    datagrams.send(message)?;
                    self.sent += length as u64;
                    answered += 1;
                    self.datagrams = Some([arrived, answered]);
                    self.publish();
                }
                DatagramWait::Empty | DatagramWait::Nothing if self.stream.is_readable() => break,
                DatagramWait::Empty => self.stream.check_stop()?,
                DatagramWait::Nothing => self.stream.check_progress(&mut quiet)?,
            }
        }
        match self.stream.receive_line()? {
            line if line == DONE => self.stream.send_line(&result.to_string()),
            line => Err(MessageError::NoLine(line)),
        }
    }

    /// Receives `bytes` bytes and sends one.
    fn discard(&mut self, bytes: u64) -> Result<(), MessageError> {
        while self.received < bytes {
            self.received += self.read_up_to(bytes - self.received)?;
            self.stream.check_stop()?;
            self.publish();
        }
        self.stream.send(&[1])?;
        self.sent = 1;
        Ok(())
    }

    /// Reads `bytes` bytes and records the reads like the server of "Perl TCP Transfer Test", which also adds up the
    /// time within the reads.
    fn record_reads(&mut self, bytes: u64) -> Result<(), MessageError> {
        let start = Instant::now();
        let mut result = TransferResult::default();
        while result.bytes < bytes {
            let before = Instant::now();
            let read = self.read_up_to(bytes - result.bytes);
            let after = Instant::now();
            result.network += after - before;
            result.total = after - start;
            result.bytes += *read.as_ref().unwrap_or(&0);
            result.reads += u64::from(read.is_ok());
            self.received = result.bytes;
            self.transfer = Some(result);
            read?;
            self.stream.check_stop()?;
            self.publish();
        }
        self.stream.send_line(&result.to_string())
    }

    /// Reads once, at most `most` bytes.
    fn read_up_to(&mut self, most: u64) -> Result<u64, MessageError> {
        let buffer = &mut self.buffer;
        let room = usize::try_from(most).map_or(buffer.len(), |most| most.min(buffer.len()));
        match self.stream.read(&mut buffer[..room])? {
            0 => Err(MessageError::Closed),
            count => Ok(count as u64),
        }
    }

    /// Publishes the traffic so far, unless that was done a moment ago.
    fn publish(&mut self) {
        let (stream, counted) = (&self.stream, (self.received, self.sent, self.datagrams));
        self.publisher.publish(|| traffic(stream, counted));
    }

    /// Returns the traffic so far.
    fn traffic(&self) -> TestTraffic {
        traffic(&self.stream, (self.received, self.sent, self.datagrams))
    }

    /// Returns a socket on the server's UDP port that receives only from the client's port `theirs`. Its address is the
    /// one that the client has reached.
    fn answering_socket(&self, theirs: u16) -> io::Result<UdpSocket> {
        let local = self.stream.socket().local_addr()?.ip().to_canonical();
        let mut local: SocketAddr = (local, self.server.port).into();
        let peer = match self.stream.peer {
            // A link-local address keeps its scope.
            SocketAddr::V6(mut v6) if v6.ip().to_ipv4_mapped().is_none() => {
                v6.set_port(theirs);
                SocketAddr::V6(v6)
            }
            other => (other.ip().to_canonical(), theirs).into(),
        };
        if let (SocketAddr::V6(local), SocketAddr::V6(peer)) = (&mut local, peer) {
            local.set_scope_id(peer.scope_id());
        }
        let socket = Socket::new(Domain::for_address(peer), Type::DGRAM, Some(Protocol::UDP))?;
        // The sockets of several clients share the port; each is connected to its client.
        socket.set_reuse_port(true)?;
        if let Some(name) = &self.server.interface {
            socket.bind_device(Some(name.as_bytes()))?;
        }
        socket.bind(&local.into())?;
        socket.connect(&peer.into())?;
        Ok(socket.into())
    }

    /// Returns the figures that the far end can measure.
    fn figures(&self, mode: &Mode) -> Vec<Figure> {
        let (received, sent) = (self.received as f64, self.sent as f64);
        let time_s = self.time.as_secs_f64();
        let figure = Figure::new;
        let up = |metric, statistic, value| figure(metric, statistic, value).toward(Direction::Up);
        let (size, mut figures) = match *mode {
            Mode::Pingpong { size, .. } => {
                let sent = figure(Metric::SentBytes, Total, sent).toward(Direction::Down);
                let elapsed = figure(Metric::ElapsedS, Total, time_s);
                (
                    size,
                    vec![up(Metric::ReceivedBytes, Total, received), sent, elapsed],
                )
            }
            Mode::Blast { size, .. } => (
                size,
                vec![
                    up(Metric::ReceivedBytes, Total, received),
                    up(Metric::ElapsedS, Total, time_s),
                    up(Metric::GoodputBitPerS, Mean, received * 8.0 / time_s),
                ],
            ),
            Mode::Transfer { block, .. } => {
                let values = self.transfer.iter().flat_map(transfer::values);
                let figures = values.map(|(metric, statistic, value)| up(metric, statistic, value));
                (block, figures.collect())
            }
        };
        figures.retain(|figure| figure.value.is_finite());
        let figures = figures.into_iter();
        figures.map(|figure| figure.size(size as u64)).collect()
    }
}
