//! iperf3's own client as an instrument, by its JSON (`-J`).

mod figures;
pub(super) mod report;

use std::net::SocketAddr;

use anyhow::{Result, ensure};

use super::launch::{Output, Tool};
use super::streams::{StreamTest, StreamTool, word, words};
use crate::endpoint::{CONNECT_TIMEOUT, Local};
use crate::iperf3::plan::{Plan, Protocol, Until, Way};
use record::Measurement;

/// The iperf3 on PATH.
#[derive(Debug)]
pub(crate) struct Iperf3;

impl StreamTool for Iperf3 {
    fn tool(&self) -> Result<Tool> {
        Tool::find("iperf3", "--version", "iperf3")
    }

    fn port(&self) -> u16 {
        5201
    }

    fn check(&self, plan: &Plan) -> Result<()> {
        if let Until::For(time) = plan.until {
            ensure!(
                time.subsec_nanos() == 0,
                "iperf3 tests for whole seconds, not for {time:?}"
            );
        }
        Ok(())
    }

    fn server_arguments(&self, _target: SocketAddr, _plan: &Plan) -> Option<Vec<String>> {
        None
    }

    fn arguments(&self, test: &StreamTest<'_>) -> Result<Vec<String>> {
        let plan = test.plan;
        let (time, bytes) = match plan.until {
            Until::For(time) => (word(time.as_secs()), None),
            Until::Bytes(bytes) => (None, word(bytes)),
        };
        let (address, interface) = match test.local {
            Some(Local::Address(address)) => (word(address), None),
            Some(Local::Interface(name)) => (None, word(name)),
            None => (None, None),
        };
        // Unless told, it sends 1 Mbit/s of datagrams; 0 is as fast as it goes.
        let unlimited = (plan.protocol == Protocol::Udp).then_some(0);
        let connect_timeout = test.connect_timeout.unwrap_or(CONNECT_TIMEOUT);
        let mut arguments = vec!["-J".to_owned()];
        arguments.extend(words([
            ("-c", word(test.target.ip())),
            ("-p", word(test.target.port())),
            ("-t", time),
            ("-n", bytes),
            ("-O", word(plan.omit.as_secs())),
            ("-i", word(plan.interval.as_secs_f64())),
            ("-P", word(plan.parallel)),
            ("-b", plan.bitrate.or(unlimited).and_then(word)),
            ("-l", plan.length.and_then(word)),
            ("-w", plan.window.and_then(word)),
            ("-M", plan.mss.and_then(word)),
            ("-S", plan.tos.and_then(word)),
            ("-C", plan.congestion.clone()),
            ("-B", address),
            ("--bind-dev", interface),
            (
                "--connect-timeout",
                word(connect_timeout.as_millis().max(1)),
            ),
        ]));
        for (flag, wanted) in [
            ("-u", plan.protocol == Protocol::Udp),
            ("-R", plan.way == Way::Down),
            ("--bidir", plan.way == Way::Both),
            ("-N", plan.no_delay),
        ] {
            arguments.extend(wanted.then(|| flag.to_owned()));
        }
        Ok(arguments)
    }

    fn parse(&self, output: &Output, plan: &Plan) -> Measurement {
        report::parse(output, plan)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::streams::command_line;
    use super::super::streams::tests::plan;
    use super::*;

    fn options(test: &StreamTest<'_>) -> String {
        command_line(&Iperf3, test).unwrap().join(" ")
    }

    #[test]
    fn a_plan_becomes_iperf3_s_options() {
        let plan = Plan {
            parallel: 4,
            congestion: Some("cubic".to_owned()),
            bitrate: Some(5_000_000),
            ..plan(Protocol::Udp, Way::Down)
        };
        let local = "lo".parse().unwrap();
        let arguments = options(&StreamTest {
            local: Some(&local),
            connect_timeout: Some(Duration::from_millis(500)),
            ..StreamTest::new("[::1]:5201".parse().unwrap(), &plan)
        });
        for wanted in [
            "-c ::1 -p 5201 -t 2 -O 0 -i 1 -P 4 -b 5000000 -C cubic",
            "--bind-dev lo --connect-timeout 500",
            "-u -R",
        ] {
            assert!(arguments.contains(wanted), "{arguments}");
        }
    }

    #[test]
    fn datagrams_without_a_rate_go_as_fast_as_they_can() {
        let target = "127.0.0.1:5201".parse().unwrap();
        let udp = plan(Protocol::Udp, Way::Up);
        let udp = Plan {
            bitrate: None,
            ..udp
        };
        assert!(options(&StreamTest::new(target, &udp)).contains("-b 0"));
        let tcp = plan(Protocol::Tcp, Way::Up);
        assert!(!options(&StreamTest::new(target, &tcp)).contains("-b"));
    }

    #[test]
    fn a_part_of_a_second_is_refused() {
        let plan = Plan {
            until: Until::For(Duration::from_millis(1500)),
            ..plan(Protocol::Tcp, Way::Up)
        };
        let error = Iperf3.check(&plan).unwrap_err().to_string();
        assert!(error.contains("whole seconds, not for 1.5s"), "{error}");
    }
}
