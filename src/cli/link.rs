//! The LINK arguments that `exec` and `emulate` share.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use model::{BitsPerSec, Factor, Nanos, Probability, QueueLimit};

use crate::toml_file;
use record::link_spec::{Direction, LinkSpec, ToffeeSpec};

/// Conditions of the link; what is named here overrides what `--link FILE` says.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Link")]
pub(crate) struct LinkArgs {
    /// Propagation delay, one way, in each direction: 20ms, 500us
    #[arg(long, value_name = "TIME")]
    delay: Option<Nanos>,
    /// Random loss in each direction: 1%
    #[arg(long, value_name = "PERCENT")]
    loss: Option<Probability>,
    /// Bottleneck of each direction, counting L2 bytes without FCS: 10mbit, 1gbit
    #[arg(long, value_name = "RATE")]
    rate: Option<BitsPerSec>,
    /// Waiting room of the bottleneck: 100pkt, 64KiB, 50ms [default: 100ms at the rate]
    #[arg(long, value_name = "LIMIT")]
    queue: Option<QueueLimit>,
    /// Delay that grows with the packet: microseconds = L2 bytes / FACTOR
    #[arg(long, value_name = "FACTOR")]
    size_delay: Option<Factor>,
    /// Seed of every random draw [default: 1]
    #[arg(long, value_name = "NUMBER")]
    seed: Option<u64>,
    /// TOFFEE-Mocha's box, one server for both directions: delay=1ms,dynamic=1,drop=2,queue=1000pkt
    #[arg(long, value_name = "KEY=VALUE,...")]
    toffee: Option<ToffeeSpec>,
    /// Conditions from a TOML file
    #[arg(long, value_name = "FILE.toml")]
    link: Option<PathBuf>,

    /// --delay from client to server (IF_A to IF_B) only
    #[arg(long, value_name = "TIME")]
    up_delay: Option<Nanos>,
    /// --loss from client to server only
    #[arg(long, value_name = "PERCENT")]
    up_loss: Option<Probability>,
    /// --rate from client to server only
    #[arg(long, value_name = "RATE")]
    up_rate: Option<BitsPerSec>,
    /// --queue from client to server only
    #[arg(long, value_name = "LIMIT")]
    up_queue: Option<QueueLimit>,
    /// --size-delay from client to server only
    #[arg(long, value_name = "FACTOR")]
    up_size_delay: Option<Factor>,

    /// --delay from server to client (IF_B to IF_A) only
    #[arg(long, value_name = "TIME")]
    down_delay: Option<Nanos>,
    /// --loss from server to client only
    #[arg(long, value_name = "PERCENT")]
    down_loss: Option<Probability>,
    /// --rate from server to client only
    #[arg(long, value_name = "RATE")]
    down_rate: Option<BitsPerSec>,
    /// --queue from server to client only
    #[arg(long, value_name = "LIMIT")]
    down_queue: Option<QueueLimit>,
    /// --size-delay from server to client only
    #[arg(long, value_name = "FACTOR")]
    down_size_delay: Option<Factor>,
}

impl LinkArgs {
    /// The conditions in effect: the file's, overridden by the flags, checked.
    ///
    /// # Errors
    /// A file that cannot be read or is wrong, or conditions that contradict each other.
    pub(crate) fn to_spec(&self) -> Result<LinkSpec> {
        let file = match &self.link {
            Some(file) => toml_file::read_link(file)?,
            None => LinkSpec::default(),
        };
        let spec = LinkSpec {
            fluctuation: file.fluctuation,
            delay: self.delay.or(file.delay),
            loss: self.loss.or(file.loss),
            rate: self.rate.or(file.rate),
            queue: self.queue.or(file.queue),
            size_delay: self.size_delay.or(file.size_delay),
            toffee: self.toffee.clone().or(file.toffee),
            seed: self.seed.or(file.seed),
            up: Direction {
                delay: self
                    .up_delay
                    .or(file.up.delay.filter(|_| self.delay.is_none())),
                loss: self
                    .up_loss
                    .or(file.up.loss.filter(|_| self.loss.is_none())),
                rate: self
                    .up_rate
                    .or(file.up.rate.filter(|_| self.rate.is_none())),
                queue: self
                    .up_queue
                    .or(file.up.queue.filter(|_| self.queue.is_none())),
                size_delay: self
                    .up_size_delay
                    .or(file.up.size_delay.filter(|_| self.size_delay.is_none())),
            },
            down: Direction {
                delay: self
                    .down_delay
                    .or(file.down.delay.filter(|_| self.delay.is_none())),
                loss: self
                    .down_loss
                    .or(file.down.loss.filter(|_| self.loss.is_none())),
                rate: self
                    .down_rate
                    .or(file.down.rate.filter(|_| self.rate.is_none())),
                queue: self
                    .down_queue
                    .or(file.down.queue.filter(|_| self.queue.is_none())),
                size_delay: self
                    .down_size_delay
                    .or(file.down.size_delay.filter(|_| self.size_delay.is_none())),
            },
        };
        spec.check().context("the link's conditions")?;
        Ok(spec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Program {
        #[command(flatten)]
        link: LinkArgs,
    }

    fn parse(line: &str) -> Result<LinkSpec> {
        Program::try_parse_from(line.split_whitespace())?
            .link
            .to_spec()
    }

    #[test]
    fn flags_become_conditions() {
        let spec =
            parse("x --delay 20ms --loss 1% --rate 10mbit --down-rate 2mbit --seed 7").unwrap();
        let hop = spec.to_hop("box").unwrap();
        assert_eq!(hop.up.rate.unwrap().rate, "10mbit".parse().unwrap());
        assert_eq!(hop.down.rate.unwrap().rate, "2mbit".parse().unwrap());
        assert_eq!(spec.seed(), 7);
    }

    #[test]
    fn a_flag_overrides_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("slow.toml");
        std::fs::write(&file, "delay = '20ms'\nloss = '1%'\n").unwrap();
        let spec = parse(&format!("x --delay 5ms --link {}", file.display())).unwrap();
        assert_eq!(spec.delay, Some("5ms".parse().unwrap()));
        assert_eq!(spec.loss, Some("1%".parse().unwrap()));
    }

    #[test]
    fn contradictions_and_bad_units_are_refused() {
        assert!(format!("{:#}", parse("x --queue 10pkt").unwrap_err()).contains("needs a rate"));
        assert!(parse("x --delay 20").is_err());
        assert!(parse("x --loss 101%").is_err());
        assert!(parse("x --toffee drop=0").is_err());
    }
}
