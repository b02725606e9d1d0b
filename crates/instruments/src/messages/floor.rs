//! What the hosts add to a round-trip time, estimated where there is no network.

use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::exchange::{Channel, Watch};
use super::wire::Wait;
use netio::stop::Stop;

const MESSAGES: usize = 200;
/// For large messages, or long pauses, less is enough.
const LONGEST: Duration = Duration::from_millis(500);
/// A core that has waited so long sleeps as deeply as it will.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

/// What both hosts add to the round-trip time of messages of `size` bytes: what nine in ten of them do not take longer from
/// one thread to another and back over 127.0.0.1, where both wait as `wait` says and for as long as an answer of the network takes (`pause`): the
/// longer a core waits, the longer it takes to wake up.
///
/// It holds two sends, two receives, two wake-ups and the copies; nothing of a driver or a wire.
///
/// # Errors
/// There is no loopback here.
pub(super) fn measure(size: usize, wait: Wait, pause: Duration, stop: &Stop) -> Result<Duration> {
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
    let pause = pause.min(LONGEST_PAUSE);
    thread::scope(|scope| {
        let far = scope.spawn(move || answer(&far, size, pause));
        let mut message = vec![0; size];
        let start = Instant::now();
        let mut exchanges = Vec::new();
        while exchanges.len() < MESSAGES && start.elapsed() < LONGEST {
            thread::sleep(pause);
            let sent = Instant::now();
            near.send(&message)?;
            near.receive(&mut message)?;
            exchanges.push((sent, Instant::now()));
        }
        near.stream().shutdown(Shutdown::Both)?;
        let answers = far.join().unwrap_or_default();
        let pairs = exchanges.iter().zip(&answers);
        let hosts = pairs.map(|((sent, came), (heard, answered))| {
            heard.saturating_duration_since(*sent) + came.saturating_duration_since(*answered)
        });
        let mut hosts: Vec<Duration> = hosts.collect();
        hosts.sort_unstable();
        let nine_in_ten = hosts.get(hosts.len() * 9 / 10).copied();
        nine_in_ten.context("no message came back over loopback")
    })
}

/// Sends every message back after a pause; when each came, and when its answer was sent.
fn answer(far: &Channel, size: usize, pause: Duration) -> Vec<(Instant, Instant)> {
    let mut message = vec![0; size];
    let mut answers = Vec::new();
    while far.receive(&mut message).is_ok() {
        let came = Instant::now();
        thread::sleep(pause);
        let answered = Instant::now();
        if far.send(&message).is_err() {
            break;
        }
        answers.push((came, answered));
    }
    answers
}
