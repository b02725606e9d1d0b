//! A protocol on tokio, whose clock stands still: minutes of it pass in milliseconds.

use std::time::Duration;

use farwire_model::{Nanos, Side};
use rust_tests::Wire;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, sleep_until, timeout};

/// An end of the wire, in the place of a `UdpSocket`.
struct Socket {
    side: Side,
    outgoing: UnboundedSender<(Side, Vec<u8>)>,
    incoming: UnboundedReceiver<Vec<u8>>,
}

impl Socket {
    fn send(&self, bytes: &[u8]) {
        self.outgoing
            .send((self.side, bytes.to_vec()))
            .expect("a wire");
    }

    async fn receive(&mut self) -> Vec<u8> {
        self.incoming.recv().await.expect("a wire")
    }
}

/// Starts a task that carries packets between two sockets, those of side A and of side B.
fn connect(mut wire: Wire) -> (Socket, Socket) {
    let (outgoing, mut sent) = unbounded_channel();
    let (to_a, at_a) = unbounded_channel();
    let (to_b, at_b) = unbounded_channel();
    let start = Instant::now();
    tokio::spawn(async move {
        loop {
            let due = wire.next_at().map(|at| start + Duration::from_nanos(at.0));
            tokio::select! {
                packet = sent.recv() => match packet {
                    Some((from, bytes)) => wire.send(since(start), from, bytes),
                    None => return,
                },
                () = sleep_until(due.unwrap_or(start)), if due.is_some() => {}
            }
            for (side, to) in [(Side::A, &to_a), (Side::B, &to_b)] {
                while let Some(bytes) = wire.receive(since(start), side) {
                    // A socket that is closed receives nothing.
                    to.send(bytes).ok();
                }
            }
        }
    });
    let socket = |side, incoming| Socket {
        side,
        outgoing: outgoing.clone(),
        incoming,
    };
    (socket(Side::A, at_a), socket(Side::B, at_b))
}

fn since(start: Instant) -> Nanos {
    Nanos(u64::try_from(start.elapsed().as_nanos()).expect("five centuries"))
}

#[tokio::test(start_paused = true)]
async fn every_question_is_answered_in_spite_of_losses() {
    let (mut client, mut server) = connect(Wire::new(7, "20ms", "10%"));
    tokio::spawn(async move {
        loop {
            let question = server.receive().await;
            server.send(&question);
        }
    });
    let (start, mut repeated) = (Instant::now(), 0);
    for number in 0..1_000_u32 {
        loop {
            client.send(&number.to_be_bytes());
            match timeout(Duration::from_millis(100), client.receive()).await {
                Ok(answer) => break assert_eq!(answer, number.to_be_bytes()),
                Err(_) => repeated += 1,
            }
        }
    }
    // Each answer takes a round trip, each loss a time-out.
    let round_trips = Duration::from_millis(1_000 * 40 + repeated * 100);
    assert!(start.elapsed().abs_diff(round_trips) < Duration::from_secs(2));
    assert!((180..290).contains(&repeated), "{repeated} repetitions");
}
