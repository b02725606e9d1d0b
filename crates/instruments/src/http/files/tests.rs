//! Downloads of many files from farwire's own server, and from servers that misbehave.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use super::*;
use crate::serve::{self, FarEndServer, ServeConfig};
use netio::stop::Stop;

fn plan(count: u32, sizes: &str) -> FilesArgs {
    FilesArgs {
        count: Some(count),
        sizes: Some(sizes.parse().unwrap()),
        seed: 1,
        connections: Some(3),
        keep_alive: true,
    }
}

fn far_end() -> (FarEndServer, HttpTarget) {
    let server = serve::start(ServeConfig::on_loopback()).unwrap();
    let target = HttpTarget::of(server.address("http").unwrap(), "/").sized();
    (server, target)
}

fn fetch(target: &HttpTarget, plan: &FilesArgs) -> Measurement {
    measure(
        std::slice::from_ref(target),
        plan,
        None,
        &Session::default(),
    )
}

fn values(measurement: &Measurement, metric: Metric) -> Vec<(u64, Option<u64>)> {
    let mut all: Vec<_> = measurement
        .samples
        .iter()
        .filter(|s| s.metric == metric)
        .map(|s| (s.index, s.size))
        .collect();
    all.sort_unstable();
    all
}

#[test]
fn every_file_is_fetched_once_with_its_own_size() {
    let (_server, target) = far_end();
    let plan = plan(40, "1kb..50kb");
    let measurement = fetch(&target, &plan);
    assert_eq!(measurement.failure, None);
    let sizes = plan.sizes.as_ref().unwrap().draw(40, 1);
    let wanted: Vec<_> = (1..).zip(sizes.iter().copied().map(Some)).collect();
    assert_eq!(values(&measurement, Metric::CompletionMs), wanted);
    assert_eq!(values(&measurement, Metric::FirstByteMs), wanted);
    let total = measurement.figure(Metric::ReceivedBytes, Total);
    assert_eq!(total, Some(sizes.iter().sum::<u64>() as f64));
    assert_eq!(measurement.figure(Metric::Files, Total), Some(40.0));
}

#[test]
fn files_share_a_connection_only_with_keep_alive() {
    let (_server, target) = far_end();
    let kept = fetch(&target, &plan(30, "2kb"));
    assert!(values(&kept, Metric::ConnectMs).len() <= 3);
    let new = FilesArgs {
        keep_alive: false,
        ..plan(30, "2kb")
    };
    assert_eq!(values(&fetch(&target, &new), Metric::ConnectMs).len(), 30);
}

#[test]
fn each_listed_size_has_a_completion_time() {
    let (_server, target) = far_end();
    let measurement = fetch(&target, &plan(20, "1kb,100kb"));
    let of_size = |size| {
        measurement
            .figures
            .iter()
            .any(|figure| figure.size == Some(size) && figure.effective_samples.is_some())
    };
    assert!(of_size(1_000) && of_size(100_000));
}

#[test]
fn urls_are_fetched_in_turn() {
    let (_server, target) = far_end();
    let targets = [target.of_size(100), target.of_size(200)];
    let plan = FilesArgs {
        sizes: None,
        ..plan(3, "1b")
    };
    let measurement = measure(&targets, &plan, None, &Session::default());
    let sizes = values(&measurement, Metric::CompletionMs);
    assert_eq!(sizes, [(1, Some(100)), (2, Some(200)), (3, Some(100))]);
}

#[test]
fn a_missing_file_ends_the_measurement_and_is_named() {
    let (_server, target) = far_end();
    let nothing = HttpTarget::of(target.address, "/nothing");
    let plan = FilesArgs {
        sizes: None,
        connections: Some(1),
        ..plan(9, "1b")
    };
    let targets = [target.of_size(10), nothing];
    let measurement = measure(&targets, &plan, None, &Session::default());
    let cause = measurement.failure.unwrap();
    assert!(
        cause.contains("file 2 (http://") && cause.contains("404"),
        "{cause}"
    );
    assert_eq!(measurement.samples.len(), 3);
}

#[test]
fn a_stop_ends_the_measurement_with_its_cause() {
    let (_server, target) = far_end();
    let session = Session::quiet(Stop::default().within(Duration::ZERO));
    let plan = plan(9, "1kb");
    let measurement = measure(&[target], &plan, None, &session);
    let cause = measurement.failure.unwrap();
    assert!(cause.contains("not done within 0 s"), "{cause}");
}

/// Starts a server for a number of consecutive connections, which sends a number of responses on each.
fn serve_a_few(answers: usize, connections: usize, answer: &'static str) -> HttpTarget {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming().take(connections) {
            answer_some(&mut client.unwrap(), answers, answer);
        }
    });
    HttpTarget::of(address, "/")
}

fn answer_some(client: &mut TcpStream, answers: usize, answer: &str) {
    for _ in 0..answers {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if client.read(&mut byte).unwrap_or(0) == 0 {
                return;
            }
            request.push(byte[0]);
        }
        client.write_all(answer.as_bytes()).unwrap();
    }
}

fn one_by_one(count: u32, sizes: Option<&str>) -> FilesArgs {
    FilesArgs {
        sizes: sizes.map(|text| text.parse().unwrap()),
        connections: Some(1),
        ..plan(count, "1b")
    }
}

#[test]
fn a_connection_closed_between_two_files_is_reopened() {
    let target = serve_a_few(2, 2, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc");
    let measurement = fetch(&target, &one_by_one(4, None));
    assert_eq!(measurement.failure, None);
    assert_eq!(values(&measurement, Metric::ConnectMs).len(), 2);
}

#[test]
fn a_file_of_the_wrong_size_is_a_failure() {
    let target = serve_a_few(1, 1, "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc");
    let measurement = fetch(&target, &one_by_one(1, Some("4b")));
    let cause = measurement.failure.unwrap();
    assert!(
        cause.contains("sent 3 bytes instead of the requested 4"),
        "{cause}"
    );
}

#[test]
fn a_failure_of_one_file_ends_the_others() {
    let (_server, endless) = far_end();
    let endless = HttpTarget::of(endless.address, "/seconds/3600");
    let nothing = HttpTarget::of(endless.address, "/nothing");
    let plan = FilesArgs {
        sizes: None,
        connections: Some(2),
        ..plan(2, "1b")
    };
    let measurement = measure(&[endless, nothing], &plan, None, &Session::default());
    assert!(measurement.failure.unwrap().contains("404"));
}
