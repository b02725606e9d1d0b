//! Files of all forms, and what is refused.

use conditions::Direction;

use super::*;

fn probes(text: &str) -> ProbeSession {
    read(text).unwrap().idle
}

fn pings(count: u32, lost: impl Fn(u32) -> bool) -> String {
    let mut text = "PING 192.0.2.1 (192.0.2.1) 100(128) bytes of data.\n".to_owned();
    for sequence in (1..=count).filter(|sequence| !lost(*sequence)) {
        let at = 1_700_000_000.0 + 0.1 * f64::from(sequence) + 0.02;
        text += &format!(
            "[{at:.6}] 108 bytes from 192.0.2.1: icmp_seq={sequence} ttl=57 time=20.0 ms\n"
        );
    }
    text
}

#[test]
fn missing_numbers_of_ping_are_losses() {
    let found = probes(&pings(100, |sequence| sequence % 10 == 0));
    assert_eq!((found.wire_bytes, found.probes.len()), (142, 99));
    assert_eq!(found.answered().count(), 90);
    let [lost, next] = [found.probes[9], found.probes[10]];
    assert_eq!(lost.rtt_ms, None);
    assert!(
        (lost.at_s - 0.9).abs() < 0.001 && (next.at_s - 1.0).abs() < 0.001,
        "{lost:?}"
    );
    assert!(!found.reordered[1]);
    let day = read(&pings(100, |_| false)).unwrap().measured_on;
    assert_eq!(day.as_deref(), Some("2023-11-14"));
}

#[test]
fn copies_and_order_of_ping_are_seen() {
    let mut text = pings(30, |_| false);
    text += "[1700000005.0] 108 bytes from 192.0.2.1: icmp_seq=30 ttl=57 time=21 ms (DUP!)\n";
    text += "[1700000005.0] 108 bytes from 192.0.2.1: icmp_seq=32 ttl=57 time=21 ms\n";
    text += "[1700000005.0] 108 bytes from 192.0.2.1: icmp_seq=31 ttl=57 time=21 ms\n";
    let found = probes(&text);
    assert_eq!((found.duplicates, found.probes.len()), (1, 32));
    assert!(found.reordered[1]);
}

#[test]
fn losses_of_irtt_have_their_direction() {
    let trip = |number: u32| {
        let lost = match number {
            3 => "true_up",
            7 => "true_down",
            _ => "false",
        };
        let delay = if lost == "false" {
            r#"{"rtt":20000000,"send":1,"receive":2}"#
        } else {
            "{}"
        };
        format!(
            r#"{{"seqno":{number},"lost":"{lost}","timestamps":{{"client":{{"send":{{"monotonic":{}}}}}}},"delay":{delay}}}"#,
            u64::from(number) * 10_000_000
        )
    };
    let trips: Vec<String> = (0..20).map(trip).collect();
    let text = format!(
        r#"{{"config":{{"length":60}},"stats":{{"duplicates":2}},"round_trips":[{}]}}"#,
        trips.join(",")
    );
    let found = probes(&text);
    let [up, down] = found.losses.map(Option::unwrap);
    assert_eq!((up.lost, up.of, down.lost, down.of), (1, 20, 1, 19));
    assert_eq!((found.wire_bytes, found.duplicates), (102, 2));
    assert!((found.probes[5].at_s - 0.05).abs() < 1e-9);
    assert_eq!(found.probes[5].rtt_ms, Some(20.0));
}

#[test]
fn packets_of_a_log_have_the_delays_and_the_random_losses_of_their_direction() {
    let mut text =
        "number,direction,bytes,arrival_ns,verdict,changes,due_ns,departure_ns\n".to_owned();
    for packet in 0..40_u32 {
        let arrival = 1_000_000_000 + u64::from(packet) * 1_000_000;
        let (way, delay) = if packet % 2 == 0 {
            ("up", 5_000_000)
        } else {
            ("down", 9_000_000)
        };
        // The machine was busy.
        let (due, left) = (arrival + delay, arrival + delay + 13_000_000);
        let (verdict, times) = match packet {
            4 => ("loss", ",".to_owned()),
            5 => ("queue_full", ",".to_owned()),
            _ => ("delivered", format!("{due},{left}")),
        };
        text += &format!("{packet},{way},100,{arrival},{verdict},,{times}\n");
    }
    let observed = read(&text).unwrap();
    let [up, down] = observed.idle.losses.map(Option::unwrap);
    assert_eq!((up.lost, up.of, down.lost, down.of), (1, 20, 0, 19));
    let found = crate::LinkFit::of(&observed);
    assert!(found.one_way);
    let delays = [&found.up, &found.down].map(|one| one.delay.as_ref().unwrap().ms.value);
    assert!(
        (delays[0] - 5.0).abs() < 1e-6 && (delays[1] - 9.0).abs() < 1e-6,
        "{delays:?}"
    );
    assert_eq!(found.up.bottleneck, None);
}

#[test]
fn a_table_of_throughput_gives_a_rate_and_nothing_else() {
    let rows = (0..30).map(|second| format!("{second},{}\n", 8 + second % 3));
    let text = "seconds,Mbit/s\n".to_owned() + &rows.collect::<String>();
    let found = crate::LinkFit::of(&read(&text).unwrap());
    let bottleneck = found.down.bottleneck.unwrap();
    assert_eq!((bottleneck.rate.value, bottleneck.queue), (9e6, None));
    assert_eq!((found.down.delay, found.down.loss), (None, None));
    assert_eq!(found.up.bottleneck, None);
    let error = read("seconds,kbit/s\n1,2\n").unwrap_err().to_string();
    assert_eq!(error, "line 1: `kbit/s` does not say Mbit/s or Mbps");
    let error = read("1 2\n2 fast\n").unwrap_err().to_string();
    assert!(error.starts_with("line 2: `2 fast` is not"), "{error}");
}

#[test]
fn enough_marks_beside_a_throughput_show_that_the_queue_is_managed() {
    let fitted = |count, tenths| {
        let rows = (0..30).map(|second| format!("{second},8\n"));
        crate::LinkFit::of(&PathObservations {
            marked: [crate::Marks::default(), crate::Marks { count, tenths }],
            ..read(&rows.collect::<String>()).unwrap()
        })
    };
    for (count, tenths) in [(4, 4), (40, 2)] {
        let bottleneck = fitted(count, tenths).down.bottleneck.unwrap();
        assert_eq!(bottleneck.queue, None);
        let few = format!("{count} packets were marked (ECN) on the path, too few");
        assert!(bottleneck.evidence.starts_with(&few), "{bottleneck:?}");
    }
    let found = fitted(7, 3);
    let bottleneck = found.down.bottleneck.as_ref().unwrap();
    let managed = crate::QueueKind::Managed { most_ms: None };
    assert_eq!(bottleneck.queue, Some(managed));
    assert!(bottleneck.evidence.starts_with("7 packets were marked"));
    let text = found.to_toml(&crate::Origin::of_path("a file", "2026-11-27"));
    assert!(text.contains("aqm = \"codel,ecn\""), "{text}");
    let spec: conditions::LinkSpec = conditions::read::toml_text(&text).unwrap();
    spec.check().unwrap();
}

#[test]
fn a_throughput_that_varies_is_followed_over_time() {
    let link = |mbit: fn(u32) -> u32| {
        let rows = (0..40).map(|second| format!("{second},{}\n", mbit(second)));
        let found = crate::LinkFit::of(&read(&rows.collect::<String>()).unwrap());
        let text = found.to_toml(&crate::Origin::of_path("a file", "2026-11-27"));
        let spec: conditions::LinkSpec = conditions::read::toml_text(&text).unwrap();
        spec.check().unwrap();
        text
    };
    assert!(!link(|_| 8).contains("trace"));
    let varying = link(|second| if second == 0 { 0 } else { 8 + second % 5 });
    assert!(varying.contains("trace = { file = \"fitted\", content = \"t,rate\\n0s,0bit\\n1s,"));
    assert!(varying.contains("\\n40s,\\n\" }"), "{varying}");
    assert!(!varying.contains("\nrate = "), "{varying}");
}

#[test]
fn a_constant_throughput_has_the_interval_of_its_median_and_a_varying_one_a_range() {
    let rate = |rows: Vec<String>| {
        let rows = crate::LinkFit::of(&read(&rows.concat()).unwrap()).parameters();
        rows.into_iter().find(|row| row.unit == "Mbit/s").unwrap()
    };
    // From 9.0 to 9.9 Mbit/s, in another order in each ten rows.
    let constant = |at: u32| format!("{at},9.{}\n", (7 * at + at / 10) % 10);
    let constant = rate((0..200).map(constant).collect());
    assert_eq!(constant.interval_kind, crate::IntervalKind::OfValue);
    let [low, high] = constant.estimate.unwrap().known_interval().unwrap();
    assert!(high - low < 0.5, "{constant:?}");
    let varying = rate(
        (0..200)
            .map(|at| format!("{at},{}\n", 8 + at % 5))
            .collect(),
    );
    assert_eq!(varying.interval_kind, crate::IntervalKind::NineOfTen);
    assert_eq!(varying.estimate.unwrap().interval, [8.0, 12.0]);
    let few = rate((0..10).map(|at| format!("{at},9.{}\n", at / 2)).collect());
    assert_eq!(few.estimate.unwrap().known_interval(), None);
}

#[test]
fn the_times_of_a_table_are_those_of_its_trace() {
    let table = |every_s: u32| -> String {
        let rows = (0..40).map(|row| format!("{},{}\n", every_s * row, 8 + row % 5));
        rows.collect()
    };
    let found = crate::LinkFit::of(&read(&table(10)).unwrap());
    let over_time = found.down.bottleneck.unwrap().over_time.unwrap();
    assert_eq!((over_time.every_s, over_time.values.len()), (10.0, 40));
    // Times of a logger are not exact.
    let late = table(10).replace("\n50,", "\n50.4,");
    assert_eq!(read(&late).unwrap().throughput[0].1.every_s, 10.0);
    let lacking = table(10).replace("\n50,8\n", "\n");
    let error = read(&lacking).unwrap_err().to_string();
    assert!(
        error.starts_with("line 6: the time 60 s is 20 s after that of the row before"),
        "{error}"
    );
    let error = read(&table(0)).unwrap_err().to_string();
    assert!(error.contains("rising times at equal distances"), "{error}");
}

#[test]
fn a_measurement_of_farwire_and_observations_are_read_from_json() {
    let samples = (1..=20_u32).map(|index| {
        let at_s = 0.01 * f64::from(index);
        record::Sample::new(at_s, record::Metric::RttMs, index.into(), 20.0)
    });
    let measurement = Measurement {
        samples: samples.collect(),
        ..Measurement::default()
    };
    let text = serde_json::to_string(&measurement).unwrap();
    let observed = read(&text).unwrap();
    assert_eq!(observed.idle.probes.len(), 20);
    let text = serde_json::to_string(&observed).unwrap();
    assert_eq!(read(&text).unwrap(), observed);
}

#[test]
fn trains_that_no_network_delivers_are_refused() {
    let observed = |arrivals_ms: &[f64]| {
        let train = |at_s| Train {
            at_s,
            arrivals_ms: [vec![0.0], arrivals_ms.to_vec()],
        };
        let observed = PathObservations {
            trains: TrainSession {
                wire_bytes: 1400,
                length: 3,
                trains: vec![train(0.0), train(0.1)],
            },
            ..read(&pings(20, |_| false)).unwrap()
        };
        read(&serde_json::to_string(&observed).unwrap())
    };
    let right = observed(&[0.0, 1.0, 2.0]).unwrap();
    assert_eq!(right.trains.spreads(Direction::Down), [2.0; 2]);
    for wrong in [
        &[0.0, 2.0, 1.0][..],
        &[0.0, 1.0, 2.0, 3.0],
        &[-1.0, 0.0],
        &[0.0, 1e9],
    ] {
        let refused = observed(wrong).unwrap_err();
        assert_eq!(refused, FileError::Implausible, "{wrong:?}");
    }
}

#[test]
fn a_file_that_is_none_of_them_is_refused_with_what_is_right() {
    assert_eq!(read("time;rtt\n1;2\n").unwrap_err(), FileError::UnknownForm);
    assert_eq!(read("{}").unwrap_err(), FileError::UnknownForm);
    let untimed = "64 bytes from 192.0.2.1: icmp_seq=1 ttl=57 time=20 ms\n";
    assert_eq!(read(untimed).unwrap_err(), FileError::NoTime(1));
    let few = read(&pings(5, |_| false)).unwrap_err();
    assert_eq!(few, FileError::TooFew(5, "delays"));
    let slow = pings(20, |_| false).replace("time=20.0", "time=1e9");
    assert_eq!(read(&slow).unwrap_err(), FileError::Implausible);
    assert!(matches!(
        read(r#"{"round_trips":1}"#).unwrap_err(),
        FileError::Json(_)
    ));
}
