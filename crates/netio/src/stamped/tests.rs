use super::*;
use crate::clock;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

fn bound(address: &str) -> UdpSocket {
    UdpSocket::bind(address).unwrap()
}

fn wait(socket: &StampedUdp) {
    let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLIN)];
    let ready = poll(&mut fds, PollTimeout::from(10_000u16)).unwrap();
    assert_eq!(ready, 1, "nothing came");
}

fn received(socket: &mut StampedUdp, buffer: &mut [u8]) -> Arrival {
    loop {
        wait(socket);
        if let Some(arrival) = socket.receive(buffer).unwrap() {
            return arrival;
        }
    }
}

fn reported(socket: &mut StampedUdp) -> Report {
    loop {
        wait(socket);
        if let Some(report) = socket.report().unwrap() {
            return report;
        }
    }
}

fn pair(far: &str, to: &str) -> (StampedUdp, StampedUdp) {
    let far = bound(far);
    let port = far.local_addr().unwrap().port();
    let near = bound(if to.contains('.') {
        "127.0.0.1:0"
    } else {
        "[::1]:0"
    });
    near.connect((to.parse::<IpAddr>().unwrap(), port)).unwrap();
    (
        StampedUdp::new(near).unwrap(),
        StampedUdp::new(far).unwrap(),
    )
}

/// A pair whose packets the kernel stamps by now: it switches stamping on some time after the first socket asks
/// (net/core/dev.c, net_enable_timestamp), and off after the last.
fn stamping() -> (StampedUdp, StampedUdp) {
    let (mut near, mut far) = pair("127.0.0.1:0", "127.0.0.1");
    let mut buffer = [0; 64];
    loop {
        near.send(b"request").unwrap();
        if received(&mut far, &mut buffer).at.is_some() {
            return (near, far);
        }
    }
}

#[test]
fn a_packet_has_four_stamps_in_the_order_of_its_way() {
    let _stamping = stamping();
    for (far, to) in [
        ("127.0.0.1:0", "127.0.0.1"),
        ("[::1]:0", "::1"),
        ("[::]:0", "127.0.0.1"),
        ("[::]:0", "::1"),
    ] {
        let (mut near, mut far) = pair(far, to);
        let mut buffer = [0; 64];
        let before = clock::wall();
        for round in 0..3 {
            assert_eq!(near.send(b"request").unwrap(), round);
            let Report::Departed { id, at: t1 } = reported(&mut near) else {
                panic!("an error");
            };
            assert_eq!(id, round);
            let request = received(&mut far, &mut buffer);
            assert_eq!(&buffer[..request.length], b"request");
            assert_eq!(far.reply(b"reply", &request, 0).unwrap(), round);
            let Report::Departed { id, at: t3 } = reported(&mut far) else {
                panic!("an error");
            };
            assert_eq!(id, round);
            let reply = received(&mut near, &mut buffer);
            assert!(before <= t1 && t3 <= clock::wall());
            assert!(t1 <= request.at.unwrap() && t3 <= reply.at.unwrap());
            assert!(request.ttl.is_some(), "{far:?}");
        }
    }
}

#[test]
fn a_reply_comes_from_the_address_that_was_asked() {
    for far in ["0.0.0.0:0", "[::]:0"] {
        // A connected socket takes replies from the address that it asked, and from no other.
        let (mut near, mut far) = pair(far, "127.0.0.9");
        let mut buffer = [0; 64];
        near.send(b"request").unwrap();
        let request = received(&mut far, &mut buffer);
        far.reply(b"reply", &request, 0xb8).unwrap();
        let reply = received(&mut near, &mut buffer);
        assert_eq!(reply.source.ip(), "127.0.0.9".parse::<IpAddr>().unwrap());
        assert_eq!(reply.tos, 0xb8);
    }
}

#[test]
fn a_port_where_nobody_listens_is_reported_with_who_says_so() {
    for host in ["127.0.0.1", "::1"] {
        let ip: IpAddr = host.parse().unwrap();
        let (mut near, far) = pair(&SocketAddr::new(ip, 0).to_string(), host);
        drop(far);
        near.send(b"request").unwrap();
        let refusal = std::iter::from_fn(|| Some(reported(&mut near)))
            .find(|report| matches!(report, Report::Unreachable { .. }));
        let expected = Report::Unreachable {
            why: Errno::ECONNREFUSED,
            by: Some(ip),
        };
        assert_eq!(refusal, Some(expected));
    }
}

#[test]
fn stamps_find_their_packets_after_one_that_could_not_be_sent() {
    let (mut near, _far) = pair("127.0.0.1:0", "127.0.0.1");
    near.send(b"first").unwrap();
    near.send(&[0; 70_000]).unwrap_err();
    while near.report().unwrap().is_some() {}
    let id = near.send(b"second").unwrap();
    let report = reported(&mut near);
    assert!(matches!(report, Report::Departed { id: found, .. } if found == id));
}
