//! Each parameter of a hidden link, alone or with a few others.

use super::*;

#[test]
fn delays_rate_and_plain_queue_of_a_hidden_link_are_found() {
    let found = fit(
        "rate = '20mbit'\nqueue = '100ms'\nloss = '1%'\n[up]\ndelay = '20ms'\n[down]\ndelay = '35ms'",
    );
    assert!(found.one_way);
    for (way, delay) in [(Direction::Up, 20.0), (Direction::Down, 35.0)] {
        let fit = self::delay(&found, way);
        assert!(is_near(fit.ms.value, delay, 0.1, 0.0), "{fit:?}");
        assert_eq!(fit.jitter, None);
        let bottleneck = found.toward(way).bottleneck.as_ref().unwrap();
        assert!(
            is_near(bottleneck.rate.value, 20e6, 0.0, 0.02),
            "{bottleneck:?}"
        );
        assert_eq!(bottleneck.burst_bytes, None);
        assert!(fit.without_transmission);
        let Some(QueueKind::Fifo {
            ms,
            is_least: false,
        }) = bottleneck.queue
        else {
            panic!("{bottleneck:?}");
        };
        assert!(is_near(ms.value, 100.0, 0.0, 0.05), "{ms:?}");
    }
}

/// One interval of twenty may miss the truth, so that only many paths show whether the intervals are right.
#[test]
fn nineteen_of_twenty_intervals_contain_the_loss() {
    const PATHS: u32 = 50;
    let mut covered = 0;
    for seed in 1..=PATHS {
        let text = format!("seed = {seed}\ndelay = '2ms'\nrate = '20mbit'\nloss = '1%'");
        let mut path = Path::new(&text);
        let (mut idle, _) = path.session([0.0, 8.0], None);
        for way in DIRECTIONS {
            path.search(way, &mut idle);
            let found = LossFit::of(&idle, way).unwrap();
            covered += u32::from(found.percent.contains(1.0));
        }
    }
    assert!(
        covered * 100 >= 90 * 2 * PATHS,
        "{covered} of {}",
        2 * PATHS
    );
}

#[test]
fn a_managed_queue_a_queue_per_flow_and_a_policer_are_distinguished() {
    for rate in ["1mbit", "20mbit", "150mbit"] {
        for (how, name) in [
            (format!("rate = '{rate}'\nqueue = '200ms,10pkt'"), "fifo"),
            (format!("rate = '{rate}'\naqm = 'codel'"), "codel"),
            (format!("rate = '{rate}'\naqm = 'fq_codel'"), "fq_codel"),
            (format!("police = '{rate},burst=32KiB'"), "policer"),
        ] {
            let found = fit(&format!("delay = '15ms'\n{how}"));
            for way in DIRECTIONS {
                let bottleneck = &found.toward(way).bottleneck;
                assert_eq!(kind(&found, way), name, "{how}: {bottleneck:?}");
            }
        }
    }
}

#[test]
fn loss_in_bursts_and_jitter_are_found() {
    let found = fit(
        "rate = '20mbit'\n[up]\ndelay = '40ms'\njitter = '3ms'\nloss = '3%,burst=6'\n[down]\ndelay = '50ms'\njitter = '2ms,normal,half-life=50ms'",
    );
    let lost = loss(&found, Direction::Up);
    assert!(lost.percent.contains(3.0), "{lost:?}");
    assert!(lost.burst.unwrap().contains(6.0), "{lost:?}");
    let [up, down] = DIRECTIONS.map(|way| delay(&found, way));
    let jitter = up.jitter.unwrap();
    assert_eq!(
        (jitter.law, jitter.half_life_ms),
        (JitterLaw::Uniform, None)
    );
    assert!(is_near(jitter.spread_ms.value, 3.0, 0.0, 0.1), "{jitter:?}");
    assert!(is_near(up.ms.value, 40.0, 0.3, 0.0), "{up:?}");
    let jitter = down.jitter.unwrap();
    assert_eq!(jitter.law, JitterLaw::Normal, "{jitter:?}");
    assert!(
        is_near(jitter.spread_ms.value, 2.0, 0.0, 0.25),
        "{jitter:?}"
    );
    assert!(
        is_near(jitter.half_life_ms.unwrap().value, 50.0, 0.0, 0.4),
        "{jitter:?}"
    );
}

#[test]
fn reordering_and_duplicates_are_found() {
    let found = fit("delay = '40ms'\nrate = '20mbit'\nreorder = '4%'\nduplicate = '2%'");
    let up = delay(&found, Direction::Up);
    let skipped = up.skipped_percent.unwrap();
    assert!(skipped.contains(4.0), "{skipped:?}");
    assert!(is_near(up.ms.value, 40.0, 0.3, 0.0), "{up:?}");
    let duplicated = found.duplicated_percent.unwrap();
    assert!(is_near(duplicated.value, 2.0, 0.5, 0.0), "{duplicated:?}");
}

#[test]
fn the_file_of_a_fit_is_a_profile_whose_numbers_have_a_source() {
    let origin = Origin::of_path("203.0.113.7", "2026-11-27");
    for hidden in [
        "delay = '15ms'\nrate = '20mbit,burst=128KiB'\nqueue = '80ms'\nloss = '2%,burst=4'\njitter = '2ms,normal,half-life=40ms'",
        "delay = '15ms'\npolice = '5mbit,burst=64KiB'\nloss = '1%'\nreorder = '3%'",
        "delay = '1ms'\nrate = '5mbit'\naqm = 'codel'\nduplicate = '1%'",
    ] {
        let text = fit(hidden).to_toml(&origin);
        let spec: LinkSpec = toml_text(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        spec.check()
            .unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(conditions::unfounded(&text), [], "{text}");
    }
}

#[test]
fn flows_that_do_not_wait_for_an_unknown_reason_are_written_with_a_comment() {
    let mut found = fit("delay = '15ms'\npolice = '5mbit,burst=64KiB'");
    for direction in [&mut found.up, &mut found.down] {
        let bottleneck = direction.bottleneck.as_mut().unwrap();
        bottleneck.queue = Some(QueueKind::Unclear { ms: None });
    }
    assert_eq!(kind(&found, Direction::Up), "cannot be distinguished");
    let text = found.to_toml(&Origin::of_path("203.0.113.7", "2026-11-27"));
    let spec: LinkSpec = toml_text(&text).unwrap();
    spec.check().unwrap();
    assert!(text.contains("a policer cannot be distinguished"), "{text}");
}

#[test]
fn the_burst_of_a_policer_that_was_not_visible_is_marked_as_assumed() {
    let mut found = fit("delay = '15ms'\npolice = '5mbit,burst=64KiB'");
    let origin = Origin::of_path("203.0.113.7", "2026-11-27");
    let bursts = |found: &LinkFit| {
        let rows = found.parameters().into_iter();
        let bursts = rows.filter(|row| row.name == "rate burst");
        bursts.map(|row| row.word).collect::<Vec<Option<String>>>()
    };
    assert_eq!(bursts(&found), [None, None]);
    assert!(!found.to_toml(&origin).contains("assumed"));
    for direction in [&mut found.up, &mut found.down] {
        direction.bottleneck.as_mut().unwrap().burst_bytes = None;
    }
    assert_eq!(
        bursts(&found),
        [Some("assumed".to_owned()), Some("assumed".to_owned())]
    );
    let text = found.to_toml(&origin);
    assert!(text.contains(",burst=15140b\""), "{text}");
    assert!(
        text.contains("whose burst was not visible and is assumed"),
        "{text}"
    );
}

#[test]
fn unrelated_clocks_give_half_of_the_round_trip_and_the_same_rate() {
    let mut observed = observe("delay = '20ms'\nrate = '10mbit'\nqueue = '60ms'");
    let sessions = observed.loaded.iter_mut().map(|one| &mut one.probes);
    for session in sessions.chain([&mut observed.idle]) {
        session
            .probes
            .iter_mut()
            .for_each(|probe| probe.one_way_ms = [None; 2]);
    }
    let found = LinkFit::of(&observed);
    assert!(!found.one_way);
    let up = delay(&found, Direction::Up);
    assert!(is_near(up.ms.value, 20.0, 0.1, 0.0), "{up:?}");
    let bottleneck = found.down.bottleneck.as_ref().unwrap();
    assert!(is_near(bottleneck.rate.value, 10e6, 0.0, 0.02));
    assert_eq!(kind(&found, Direction::Down), "fifo", "{bottleneck:?}");
    let evidence = &found.parameters()[0].evidence;
    assert!(evidence.starts_with("half of the round trip"), "{evidence}");
}

#[test]
fn bytes_that_pass_a_token_bucket_faster_are_no_part_of_the_rate() {
    let found = fit("delay = '10ms'\nrate = '20mbit,burst=128KiB'\nqueue = '100ms'");
    for way in DIRECTIONS {
        let bottleneck = found.toward(way).bottleneck.as_ref().unwrap();
        assert!(
            is_near(bottleneck.rate.value, 20e6, 0.0, 0.01),
            "{bottleneck:?}"
        );
        let burst = bottleneck.burst_bytes.unwrap();
        assert!(is_near(burst.value, 131_072.0, 0.0, 0.1), "{burst:?}");
    }
}

#[test]
fn jitter_of_packets_that_keep_their_order_is_neither_a_queue_nor_a_burst() {
    for seed in 1..=4 {
        let path = format!("seed = {seed}\ndelay = '40ms'\njitter = '6ms'");
        let found = fit(&format!("{path}\nrate = '20mbit'\nqueue = '30ms'"));
        for way in DIRECTIONS {
            let bottleneck = found.toward(way).bottleneck.as_ref().unwrap();
            assert_eq!(bottleneck.burst_bytes, None);
            let length = bottleneck.queue.and_then(QueueKind::length).unwrap();
            assert!(length.contains(30.0), "{length:?}");
        }
        let found = fit(&format!("{path}\npolice = '20mbit,burst=64KiB'"));
        for way in DIRECTIONS {
            assert_eq!(kind(&found, way), "policer");
            let bottleneck = found.toward(way).bottleneck.as_ref().unwrap();
            let burst = bottleneck.burst_bytes.unwrap();
            assert!(burst.contains(65_536.0), "{burst:?}");
        }
    }
}

#[test]
fn loads_that_differ_show_a_rate_that_is_not_constant() {
    let mut observed = observe("delay = '10ms'\nrate = '20mbit'\nqueue = '50ms'");
    let evidence = |observed: &PathObservations| {
        let found = LinkFit::of(observed).up.bottleneck.unwrap();
        (found.rate, found.rate_evidence)
    };
    let (_, constant) = evidence(&observed);
    assert!(!constant.contains("not constant"), "{constant}");
    let mut loads = observed.loaded.iter_mut();
    let gentle = loads.find(|one| one.intensity == Intensity::Gentle);
    gentle.unwrap().load.bytes *= 0.8;
    let (rate, varying) = evidence(&observed);
    assert!(varying.contains("not constant"), "{varying}");
    assert!(rate.contains(16e6) && rate.contains(20e6), "{rate:?}");
}

#[test]
fn a_load_that_the_path_carried_before_the_others_changes_nothing() {
    let mut path = Path::new("delay = '20ms'\nrate = '20mbit'\nqueue = '100ms'\nloss = '1%'");
    let probed_s = plan::probed_s(TIME_S);
    let mut observed = path.observe(probed_s);
    let found = LinkFit::of(&observed);
    assert_eq!(kind(&found, Direction::Up), "fifo");
    let carried = path.loaded(Direction::Up, Intensity::Gentle, 15e6, probed_s);
    observed.loaded.insert(0, carried);
    assert_eq!(LinkFit::of(&observed), found);
}

#[test]
fn a_queue_that_never_became_full_is_at_least_as_long_as_it_was() {
    let found = fit("delay = '10ms'\nrate = '5mbit'\nqueue = '20s'");
    let bottleneck = found.up.bottleneck.unwrap();
    let Some(QueueKind::Fifo { ms, is_least: true }) = bottleneck.queue else {
        panic!("{bottleneck:?}");
    };
    assert!(ms.value > 1000.0 && ms.value < 20_000.0, "{ms:?}");
}

#[test]
fn loads_without_probes_show_the_rate_and_nothing_else() {
    let mut observed = observe("delay = '10ms'\nrate = '20mbit'\nqueue = '50ms'\nloss = '1%'");
    observed.idle = ProbeSession::default();
    let loads = observed
        .loaded
        .iter()
        .filter(|one| one.intensity == Intensity::Strong);
    observed.loaded = loads
        .map(|one| LoadedSession::unprobed(one.direction, one.load))
        .collect();
    let found = LinkFit::of(&observed);
    for way in DIRECTIONS {
        let fit = found.toward(way);
        assert_eq!((&fit.delay, &fit.loss), (&None, &None));
        let bottleneck = fit.bottleneck.as_ref().unwrap();
        assert_eq!(bottleneck.queue, None);
        // Neither the loss of 1 % nor the bytes of the probes are known.
        assert!(
            is_near(bottleneck.rate.value, 20e6, 0.0, 0.025),
            "{bottleneck:?}"
        );
    }
    let origin = Origin::of_path("203.0.113.7", "2026-11-27");
    let text = found.to_toml(&origin);
    let keys: Vec<&str> = text
        .lines()
        .filter_map(|line| Some(line.split_once(" = ")?.0))
        .collect();
    assert_eq!(keys, ["rate", "rate"], "{text}");
}

#[test]
fn loads_without_probes_show_no_queue_if_the_idle_path_was_probed() {
    let mut observed = observe("delay = '10ms'\nrate = '20mbit'\nqueue = '50ms'");
    let loads = observed.loaded.iter();
    let unprobed = loads.map(|one| LoadedSession::unprobed(one.direction, one.load));
    observed.loaded = unprobed.collect();
    let found = LinkFit::of(&observed);
    for way in DIRECTIONS {
        assert_eq!(kind(&found, way), "none");
        assert!(found.toward(way).bottleneck.is_some());
    }
}
