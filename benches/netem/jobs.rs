//! The jobs that are compared.

use std::time::Duration;

/// One queueing discipline in the kernel, its equivalent in farwire, and the packets that meet both.
pub(crate) struct Job {
    pub(crate) name: &'static str,
    /// The arguments after `tc qdisc add dev wan`, for each command in turn.
    pub(crate) kernel: &'static [&'static str],
    /// The link file.
    pub(crate) ours: &'static str,
    pub(crate) packets: u32,
    pub(crate) gap: Duration,
    /// The UDP payload, in bytes.
    pub(crate) payload: usize,
    /// The number of source ports, which take turns.
    pub(crate) flows: u16,
    pub(crate) runs: u32,
}

/// The bytes of the headers of Ethernet, IPv4 and UDP.
pub(crate) const HEADERS: usize = 14 + 20 + 8;

/// The job that measures the time of a packet without any discipline; it comes first.
pub(crate) const NOTHING: &str = "nothing";

/// Makes a job with 2,000 packets a second of 242 bytes at L2. The guest cannot send twice as many, and is late before that.
const fn effect(name: &'static str, kernel: &'static [&'static str], ours: &'static str) -> Job {
    Job {
        name,
        kernel,
        ours,
        packets: 100_000,
        gap: Duration::from_micros(500),
        payload: 200,
        flows: 1,
        runs: 1,
    }
}

/// Makes a job with 12 Mbit/s of four flows, for 10 s, into 10 Mbit/s.
const fn queue(name: &'static str, kernel: &'static [&'static str], ours: &'static str) -> Job {
    Job {
        name,
        kernel,
        ours,
        packets: 15_000,
        gap: Duration::from_nanos(666_667),
        payload: 958,
        flows: 4,
        runs: 5,
    }
}

macro_rules! netems {
    ($($name:literal: $options:literal,)+) => {
        /// netem's options: all kinds of them, alone and together.
        pub(crate) const NETEMS: &[Job] = &[
            effect(NOTHING, &[], ""),
            $(effect($name, &[concat!("root netem ", $options)], concat!("up.netem = \"", $options, "\"")),)+
        ];
    };
}

netems! {
    "delay": "delay 10ms",
    "uniform": "delay 10ms 2ms",
    "correlated": "delay 10ms 2ms 75%",
    "normal": "delay 10ms 2ms distribution normal",
    "pareto": "delay 10ms 2ms distribution pareto",
    "paretonormal": "delay 10ms 2ms distribution paretonormal",
    "loss": "loss 5%",
    "loss-correlated": "loss 10% 25%",
    "gemodel": "loss gemodel 1% 10% 70% 0.1%",
    "state": "loss state 1% 60% 20% 80% 0.5%",
    "duplicate": "duplicate 3%",
    "duplicate-correlated": "delay 5ms duplicate 20% 50%",
    "reorder": "delay 5ms reorder 25% 50% gap 2",
    "limit": "limit 8 delay 5ms",
    "rate": "limit 200 rate 4mbit 20",
    "slot": "slot 5ms 10ms packets 20",
    "all": "delay 10ms 1ms distribution normal loss 2% duplicate 1% reorder 10%",
}

/// Queues behind the same token bucket.
pub(crate) const AQMS: &[Job] = &[
    queue(
        "codel",
        &[
            BUCKET,
            "parent 1:1 handle 2: codel limit 1000 target 5ms interval 100ms noecn",
        ],
        "up.rate = \"10mbit,burst=3000b\"\nup.queue = \"1000pkt\"\nup.aqm = \"codel,noecn\"",
    ),
    queue(
        "fq_codel",
        &[
            BUCKET,
            "parent 1:1 handle 2: fq_codel limit 1000 flows 1024 quantum 1514 target 5ms interval 100ms noecn",
        ],
        "up.rate = \"10mbit,burst=3000b\"\nup.queue = \"1000pkt\"\nup.aqm = \"fq_codel,noecn\"",
    ),
    queue(
        "pie",
        &[
            BUCKET,
            "parent 1:1 handle 2: pie limit 1000 target 15ms tupdate 15ms noecn",
        ],
        "up.rate = \"10mbit,burst=3000b\"\nup.queue = \"1000pkt\"\nup.aqm = \"pie,noecn\"",
    ),
];

const BUCKET: &str = "root handle 1: tbf rate 10mbit burst 3000 limit 10000000";
