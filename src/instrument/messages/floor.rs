//! What the hosts add to a round-trip time, estimated where there is no network.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::exchange::{Channel, Watch};
use super::far_end;
use super::wire::Wait;
use crate::instrument::Stop;

const MESSAGES: u64 = 200;
/// For large messages less is enough.
const LONGEST: Duration = Duration::from_millis(100);

/// The mean round-trip time of messages of `size` bytes over 127.0.0.1, between two threads that wait as `wait` says.
///
/// It holds what both hosts do: two sends, two receives, two wake-ups and the copies; nothing of a driver or a wire.
///
/// # Errors
/// There is no loopback here.
pub(super) fn measure(size: usize, wait: Wait, stop: &Stop) -> Result<Duration> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let near = TcpStream::connect_timeout(&listener.local_addr()?, LONGEST)?;
    let (far, _) = listener.accept()?;
    let open = |stream| {
        let watch = Watch {
            stop: stop.clone(),
            silence: Duration::from_secs(1),
        };
        let mut channel = Channel::new(stream, watch)?;
        channel.wait = wait;
        Ok::<_, anyhow::Error>(channel)
    };
    let (near, far) = (open(near)?, open(far)?);
    thread::scope(|scope| {
        // It ends when the near end is closed, which is no failure.
        scope.spawn(move || far_end::echo_all(&far, size));
        let mut message = vec![0; size];
        let start = Instant::now();
        for exchanged in 1..=MESSAGES {
            near.send(&message)?;
            near.receive(&mut message)?;
            let elapsed = start.elapsed();
            if elapsed >= LONGEST || exchanged == MESSAGES {
                near.stream().shutdown(std::net::Shutdown::Both)?;
                return Ok(elapsed.div_f64(exchanged as f64));
            }
        }
        Ok(Duration::ZERO)
    })
}
