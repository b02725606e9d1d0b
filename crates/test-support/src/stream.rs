//! A TCP stream of pseudo-random bytes, which the receiver generates again and compares. It is stricter than a hash,
//! because it finds the first byte that differs.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use netio::bed::Bed;
use netio::netns::NetNs;
use socket2::{Domain, Protocol, Socket, Type};

use crate::counters::Counters;
use crate::process::uninterrupted;
use crate::wan_box::{Summary, WanBox};

/// The parameters of a transfer.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// Number of bytes, which must be a multiple of 8, the stream's unit.
    pub bytes: u64,
    /// Address of the receiver.
    pub to: IpAddr,
    /// Seed of the bytes.
    pub seed: u64,
}

/// Time for which either end waits for the other before it gives up.
const TIMEOUT: Duration = Duration::from_secs(20);
const PORT: u16 = 5001;
const CHUNK: usize = 1 << 18;

impl Transfer {
    /// Sends the bytes from `sender` to `receiver`, which must get all of them, and returns the duration.
    ///
    /// The congestion control is cubic, because it fills the link in bursts, where others pace.
    pub fn run(&self, sender: &NetNs, receiver: &NetNs) -> Result<Duration> {
        let listener = receiver.run(|| self.listen())??;
        std::thread::scope(|scope| {
            let receiving = scope.spawn(|| self.receive(&listener));
            let sent = sender.run(|| self.send())?;
            let received = receiving.join().expect("the receiver does not panic");
            // If both ends fail, the sender's error is a consequence of the receiver's.
            let elapsed = received.context("receiving")?;
            sent.context("sending")?;
            Ok(elapsed)
        })
    }

    /// Makes the transfer through `wan` from the client of `bed` to its server, and stops `wan`. Neither end may have
    /// received a damaged packet.
    pub fn cross(&self, bed: &Bed, wan: WanBox) -> Result<Summary> {
        self.run(bed.client(), bed.server())?;
        let summary = wan.stop()?;
        Counters::of(bed.client())?.check_intact()?;
        Counters::of(bed.server())?.check_intact()?;
        Ok(summary)
    }

    fn address(&self) -> SocketAddr {
        SocketAddr::new(self.to, PORT)
    }

    fn listen(&self) -> Result<Socket> {
        let socket = self.socket()?;
        socket.set_reuse_address(true)?;
        // On Linux the time-out also limits accept(2).
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.bind(&self.address().into())?;
        socket.listen(1)?;
        Ok(socket)
    }

    fn send(&self) -> Result<()> {
        let socket = self.socket()?;
        socket.set_write_timeout(Some(TIMEOUT))?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.connect_timeout(&self.address().into(), TIMEOUT)?;
        let mut stream = TcpStream::from(socket);
        let mut source = Source::new(self.seed);
        let mut left = self.bytes;
        let mut chunk = vec![0; CHUNK];
        while left > 0 {
            let part = &mut chunk[..usize::try_from(left).unwrap_or(CHUNK).min(CHUNK)];
            source.fill(part);
            stream
                .write_all(part)
                .with_context(|| format!("after {} of {} bytes", self.bytes - left, self.bytes))?;
            left -= part.len() as u64;
        }
        stream.shutdown(std::net::Shutdown::Write)?;
        // The receiver closes the connection when it has everything.
        let answer = uninterrupted(|| stream.read(&mut [0]))?;
        ensure!(answer == 0, "an answer that nobody sends");
        Ok(())
    }

    fn receive(&self, listener: &Socket) -> Result<Duration> {
        let (socket, _) = uninterrupted(|| listener.accept()).context("waiting for the sender")?;
        let began = Instant::now();
        socket.set_read_timeout(Some(TIMEOUT))?;
        let mut stream = TcpStream::from(socket);
        let mut source = Source::new(self.seed);
        let (mut got, mut expected) = (vec![0; CHUNK], vec![0; CHUNK]);
        let mut at = 0u64;
        while at < self.bytes {
            let want = usize::try_from(self.bytes - at).unwrap_or(CHUNK).min(CHUNK);
            let (got, expected) = (&mut got[..want], &mut expected[..want]);
            stream
                .read_exact(got)
                .with_context(|| format!("after {at} of {} bytes", self.bytes))?;
            source.fill(expected);
            let differs = got.iter().zip(expected.iter()).position(|(a, b)| a != b);
            ensure!(
                got == expected,
                "byte {} is not the one that was sent",
                at + differs.unwrap_or(0) as u64
            );
            at += want as u64;
        }
        let more = uninterrupted(|| stream.read(&mut [0]))?;
        ensure!(more == 0, "more bytes than were sent");
        Ok(began.elapsed())
    }

    fn socket(&self) -> Result<Socket> {
        let domain = Domain::for_address(self.address());
        let socket = Socket::new(domain, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_tcp_congestion(b"cubic")?;
        Ok(socket)
    }
}

/// The bytes of one stream, in order.
struct Source(fastrand::Rng);

impl Source {
    fn new(seed: u64) -> Self {
        Self(fastrand::Rng::with_seed(seed))
    }

    /// Fills whole units of 8 bytes, so that the stream does not depend on the sizes of the chunks.
    fn fill(&mut self, chunk: &mut [u8]) {
        for unit in chunk.chunks_exact_mut(8) {
            unit.copy_from_slice(&self.0.u64(..).to_le_bytes());
        }
    }
}
