//! Far ends that violate the protocol.

use super::*;

/// Starts a far end that passes the line of each request to `answer`.
fn misbehaving_far_end(answer: impl Fn(&mut TcpStream, &str) + Send + 'static) -> MessageTarget {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut line = String::new();
        BufReader::new(stream.try_clone().unwrap())
            .read_line(&mut line)
            .unwrap();
        answer(&mut stream, &line);
    });
    far_end(address)
}

#[test]
fn another_program_at_the_far_end_is_named_with_its_answer() {
    let far = misbehaving_far_end(|stream, _| stream.write_all(b"220 mail ESMTP\r\n").unwrap());
    let cause = blast::measure(&far, &blast_of(1, 1), &session())
        .failure
        .unwrap();
    assert!(cause.contains("220 mail ESMTP"), "{cause}");
    assert!(cause.contains(&far.address.to_string()), "{cause}");
    let far =
        misbehaving_far_end(|stream, _| stream.write_all(&[b'x'; 100_000]).unwrap_or_default());
    let cause = blast::measure(&far, &blast_of(1, 1), &session())
        .failure
        .unwrap();
    assert!(
        cause.contains("a line of text of at most 256 bytes"),
        "{cause}"
    );
}

#[test]
fn a_far_end_that_closes_is_a_failure_that_names_the_message() {
    let far = misbehaving_far_end(|stream, _| {
        stream
            .write_all(b"ok wait=block mss=1448 rcvbuf=1\n")
            .unwrap();
        stream.read_exact(&mut [0; 64]).unwrap();
        stream.write_all(&[0; 10]).unwrap();
    });
    let cause = pingpong::measure(&far, &pingpong_of(&[64]), &session())
        .failure
        .unwrap();
    assert!(cause.contains("message 1 of 3 of 64 bytes"), "{cause}");
    assert!(
        cause.contains("closed the connection after 10 bytes"),
        "{cause}"
    );
}

#[test]
fn a_silent_far_end_is_given_up() {
    type Answer = fn(&mut TcpStream);
    let states: [(Answer, &str); 2] = [
        (|_| {}, "answering the request"),
        (
            |stream| {
                stream
                    .write_all(b"ok wait=block mss=1448 rcvbuf=1\n")
                    .unwrap()
            },
            "message 1 of 3",
        ),
    ];
    let give_up = |answer: Answer, state| {
        let far = misbehaving_far_end(move |stream, _| {
            answer(stream);
            // It stays silent until the client gives up.
            let _ = stream.read_to_end(&mut Vec::new());
        });
        let far = MessageTarget {
            silence: Duration::from_secs(2),
            ..far
        };
        let cause = pingpong::measure(&far, &pingpong_of(&[64]), &session())
            .failure
            .unwrap();
        assert!(cause.contains(state), "{cause}");
        assert!(
            cause.contains("neither sent nor received anything for 2 s"),
            "{cause}"
        );
    };
    // The silences are waited for in parallel.
    thread::scope(|scope| {
        for (answer, state) in states {
            scope.spawn(move || give_up(answer, state));
        }
    });
}

#[test]
fn wrong_bytes_from_the_far_end_are_a_failure() {
    let far = misbehaving_far_end(|stream, _| {
        stream
            .write_all(b"ok wait=block mss=1448 rcvbuf=1\n")
            .unwrap();
        let mut message = [0; 64];
        while stream.read_exact(&mut message).is_ok() {
            stream.write_all(&[0; 64]).unwrap();
        }
    });
    let cause = pingpong::measure(&far, &pingpong_of(&[64]), &session())
        .failure
        .unwrap();
    assert!(cause.contains("other bytes"), "{cause}");
}

#[test]
fn impossible_results_are_refused() {
    let far = misbehaving_far_end(|stream, _| {
        stream
            .write_all(b"ok wait=block mss=1448 rcvbuf=1\n")
            .unwrap();
        stream.read_exact(&mut [0; 10]).unwrap();
        let line = b"result reads=1 bytes=11 total_ns=5 network_ns=9\n";
        stream.write_all(line).unwrap();
    });
    let plan = transfer_of(10, &[10]);
    let cause = transfer::measure(&far, &plan, &session()).failure.unwrap();
    assert!(cause.contains("reports impossible figures"), "{cause}");
}

#[test]
fn a_signal_ends_a_wait() {
    let far = misbehaving_far_end(|stream, _| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let stop = Stop::on(Arc::new(AtomicBool::new(true)));
    let measurement = blast::measure(&far, &blast_of(1, 1), &Session::quiet(stop));
    assert!(measurement.failure.unwrap().contains("interrupted"));
}
