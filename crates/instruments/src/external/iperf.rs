//! iperf 2 as an instrument, by its enhanced reports (`-e`) in bits a second: its CSV (`-y C`) has neither retransmissions nor RTT.

pub(super) mod report;
mod rows;

use std::net::SocketAddr;

use anyhow::{Result, bail, ensure};

use super::launch::{Output, Tool};
use super::streams::{self, StreamTest, StreamTool, word, words};
use crate::endpoint::Local;
use crate::iperf3::plan::{Plan, Protocol, Way};
use record::Measurement;

/// The iperf 2 on PATH.
#[derive(Debug)]
pub(crate) struct Iperf;

impl StreamTool for Iperf {
    fn tool(&self) -> Result<Tool> {
        Tool::find("iperf", "-v", "iperf")
    }

    fn port(&self) -> u16 {
        5001
    }

    fn check(&self, plan: &Plan) -> Result<()> {
        // Its own default is 1 Mbit/s, and it takes a rate of 0 for an endless gap.
        ensure!(
            plan.protocol == Protocol::Tcp || plan.bitrate.is_some(),
            "iperf sends datagrams at a rate only: say which"
        );
        streams::plain_time("iperf", plan).map(drop)
    }

    fn server_arguments(&self, target: SocketAddr, plan: &Plan) -> Option<Vec<String>> {
        let mut arguments = vec!["-s".to_owned()];
        let congestion = plan.congestion.clone().filter(|_| plan.way == Way::Down);
        arguments.extend(words([("-p", word(target.port())), ("-Z", congestion)]));
        for (flag, wanted) in [
            ("-V", target.is_ipv6()),
            ("-u", plan.protocol == Protocol::Udp),
        ] {
            arguments.extend(wanted.then(|| flag.to_owned()));
        }
        Some(arguments)
    }

    fn arguments(&self, test: &StreamTest<'_>) -> Result<Vec<String>> {
        streams::no_connect_timeout("iperf", test)?;
        let (target, plan) = (test.target, test.plan);
        let time = streams::plain_time("iperf", plan)?;
        let address = match test.local {
            Some(Local::Address(address)) => word(address),
            Some(Local::Interface(name)) => {
                bail!("iperf takes an address to bind to, not an interface ({name})")
            }
            None => None,
        };
        ensure!(
            plan.way == Way::Up || plan.congestion.is_none(),
            "iperf's server chooses the congestion control of a reverse test: start it with -Z"
        );
        let mut arguments = vec!["-e".to_owned()];
        arguments.extend(words([
            ("-c", word(target.ip())),
            ("-p", word(target.port())),
            ("-f", word("b")),
            ("-t", word(time.as_secs_f64())),
            ("-i", word(plan.interval.as_secs_f64())),
            ("-P", word(plan.parallel)),
            ("-b", plan.bitrate.and_then(word)),
            ("-l", plan.length.and_then(word)),
            ("-w", plan.window.and_then(word)),
            ("-M", plan.mss.and_then(word)),
            ("-S", plan.tos.and_then(word)),
            ("-Z", plan.congestion.clone()),
            ("-B", address),
        ]));
        for (flag, wanted) in [
            ("-V", target.is_ipv6()),
            ("-u", plan.protocol == Protocol::Udp),
            ("-R", plan.way == Way::Down),
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
    use super::super::streams::command_line;
    use super::super::streams::tests::plan;
    use super::*;

    #[test]
    fn the_sender_is_told_the_congestion_control() {
        let target = "127.0.0.1:5001".parse().unwrap();
        let with = |way| Plan {
            congestion: Some("reno".to_owned()),
            ..plan(Protocol::Tcp, way)
        };
        let client = |way| {
            let plan = with(way);
            let line = command_line(&Iperf, &StreamTest::new(target, &plan));
            line.map(|line| line.join(" "))
        };
        let server = |way| {
            Iperf
                .server_arguments(target, &with(way))
                .unwrap()
                .join(" ")
        };
        assert!(client(Way::Up).unwrap().contains("-Z reno"));
        assert!(!server(Way::Up).contains("-Z"));
        assert!(server(Way::Down).contains("-Z reno"));
        let error = client(Way::Down).unwrap_err().to_string();
        assert!(error.contains("start it with -Z"), "{error}");
    }

    #[test]
    fn datagrams_without_a_rate_are_refused() {
        let udp = plan(Protocol::Udp, Way::Up);
        let plan = |bitrate| Plan {
            bitrate,
            ..udp.clone()
        };
        Iperf.check(&plan(Some(1))).unwrap();
        let error = Iperf.check(&plan(None)).unwrap_err().to_string();
        assert!(error.contains("at a rate only"), "{error}");
    }

    #[test]
    fn an_interface_is_not_an_address() {
        let local = "lo".parse().unwrap();
        let plan = plan(Protocol::Tcp, Way::Up);
        let test = StreamTest {
            local: Some(&local),
            ..StreamTest::new("127.0.0.1:1".parse().unwrap(), &plan)
        };
        let error = command_line(&Iperf, &test);
        assert!(error.unwrap_err().to_string().contains("not an interface"));
    }
}
