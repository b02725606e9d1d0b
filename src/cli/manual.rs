//! Facts about every command that its help and its manual page share: examples, exit status, environment, files.

type Rows = &'static [(&'static str, &'static str)];

/// The parts of a command's help and manual page other than its options.
#[derive(Debug)]
pub(crate) struct Facts {
    /// A purpose and a command line each. Every line parses.
    pub(crate) examples: Rows,
    /// Exit codes and their meanings.
    pub(crate) exit_status: Rows,
    /// Environment variables and their uses.
    pub(crate) environment: Rows,
    /// Paths and their contents.
    pub(crate) files: Rows,
    /// Manual pages besides farwire(1) and those of the commands below this one: "farwire-run(1)".
    pub(crate) see_also: &'static [&'static str],
}

/// The facts of a command by its full name: "farwire measure ping".
pub(crate) fn facts(name: &str) -> &'static Facts {
    let found = ALL.iter().find(|(known, _)| *known == name);
    found.map_or(&NONE, |(_, facts)| facts)
}

/// Facts of a command that has none: clap's `help`.
static NONE: Facts = Facts {
    examples: &[],
    exit_status: DONE,
    environment: &[],
    files: &[],
    see_also: &[],
};

/// The folders of profiles.
const PROFILE_FILES: Rows = &[
    (
        "./profiles/NAME.toml",
        "A profile of the working directory.",
    ),
    (
        "~/.config/farwire/profiles/NAME.toml",
        "A profile of the user.",
    ),
];
const PROFILES_OF_USER: (&str, &str) = (
    "XDG_CONFIG_HOME",
    "The directory that is used in place of ~/.config.",
);

const DONE: Rows = &[
    ("0", "The command did what was asked."),
    (
        "1",
        "The command failed, for example because output could not be written.",
    ),
    ("2", "An argument is wrong."),
];
const MEASURED: Rows = &[
    ("0", "The measurement succeeded."),
    (
        "1",
        "The measurement failed; the cause is on standard error.",
    ),
    ("2", "An argument is wrong."),
    (
        "3",
        "This machine lacks something that the measurement needs.",
    ),
];
const EXPERIMENT: Rows = &[
    ("0", "All runs took place, and all expectations are met."),
    (
        "1",
        "An expectation is not met, a run failed or is invalid, or a signal ended the experiment.",
    ),
    ("2", "The scenario or an argument is wrong."),
    (
        "3",
        "This machine lacks something that the experiment needs; `farwire doctor` says what.",
    ),
];
const API_CLIENT: Rows = &[
    ("0", "The running farwire did what was asked."),
    ("1", "No farwire answers at that address, or it failed."),
    (
        "2",
        "An argument is wrong, or the running farwire refuses the request.",
    ),
];

const COLOURS: (&str, &str) = ("NO_COLOR", "Without colours if it is set and not empty.");
const COLUMNS: (&str, &str) = (
    "COLUMNS",
    "Width of tables on a terminal, in place of the terminal's own width.",
);
const TOKEN: (&str, &str) = (
    "FARWIRE_TOKEN",
    "Full-access token of --listen, in place of --token-file.",
);
const READ_TOKEN: (&str, &str) = (
    "FARWIRE_READ_TOKEN",
    "Read-only token of --listen, in place of --read-token-file.",
);
const CLIENT_TOKEN: (&str, &str) = (
    "FARWIRE_TOKEN",
    "Token for the running farwire, in place of --token-file.",
);
const RUNTIME: (&str, &str) = (
    "XDG_RUNTIME_DIR",
    "Its subdirectory farwire holds the default sockets of --listen.",
);
const SOCKETS: (&str, &str) = (
    "$XDG_RUNTIME_DIR/farwire/NAME.sock",
    "Default socket of --listen; for root /run/farwire/NAME.sock.",
);
const RECORD: (&str, &str) = (
    "out/NAME/record.jsonl",
    "The record: the plan, the machine and every run with its samples.",
);
const REPORT: (&str, &str) = ("out/NAME/report.html", "The report, with charts.");
const RUNS: (&str, &str) = (
    "out/NAME/runs.csv",
    "Every run that counts, with all figures, one per line.",
);
const SAMPLES: (&str, &str) = (
    "out/NAME/samples.csv",
    "Every sample that counts, one per line.",
);

const LINK_PAGES: &[&str] = &[
    "farwire-exec(1)",
    "farwire-emulate(1)",
    "farwire-link(1)",
    "farwire-profiles(1)",
    "farwire-trace(1)",
    "tc-netem(8)",
];
const EXPERIMENT_PAGES: &[&str] = &[
    "farwire-run(1)",
    "farwire-report(1)",
    "farwire-compare(1)",
    "farwire-merge(1)",
    "farwire-submit(1)",
];
const LIVE_PAGES: &[&str] = &[
    "farwire-exec(1)",
    "farwire-emulate(1)",
    "farwire-links(1)",
    "farwire-set(1)",
];
const MEASURE_PAGES: &[&str] = &[
    "farwire-measure(1)",
    "farwire-serve(1)",
    "farwire-calibrate(1)",
];

const fn instrument(examples: Rows) -> Facts {
    Facts {
        examples,
        exit_status: MEASURED,
        environment: &[COLOURS, COLUMNS],
        files: &[],
        see_also: MEASURE_PAGES,
    }
}

static ALL: &[(&str, Facts)] = &[
    (
        "farwire",
        Facts {
            examples: &[
                (
                    "Ping through 20 ms of delay and 1 % loss in each direction",
                    "farwire exec --delay 20ms --loss 1% -- ping -c 5 10.77.0.2",
                ),
                (
                    "Connect two Ethernet interfaces through a slow satellite link",
                    "farwire emulate eth1 eth2 --profile geo-satellite",
                ),
                (
                    "Run an experiment and write its report",
                    "farwire run scenarios/bufferbloat.toml",
                ),
                ("Check what this machine supports", "farwire doctor"),
            ],
            exit_status: &[
                ("0", "The command did what was asked."),
                (
                    "1",
                    "A run or a measurement failed, or an expectation is not met.",
                ),
                ("2", "An argument or an input file is wrong."),
                (
                    "3",
                    "This machine lacks something; `farwire doctor` says what.",
                ),
                (
                    "125, 126, 127",
                    "`farwire exec` alone: farwire failed, or the command cannot be run or found.",
                ),
            ],
            environment: &[COLOURS, COLUMNS, TOKEN, READ_TOKEN, RUNTIME],
            files: &[RECORD, SOCKETS],
            see_also: &[
                "farwire-exec(1)",
                "farwire-emulate(1)",
                "farwire-run(1)",
                "farwire-measure(1)",
                "farwire-doctor(1)",
                "tc-netem(8)",
                "iperf3(1)",
            ],
        },
    ),
    (
        "farwire run",
        Facts {
            examples: &[
                (
                    "Run an experiment into out/bufferbloat",
                    "farwire run scenarios/bufferbloat.toml",
                ),
                (
                    "Show the plan and its duration without running it",
                    "farwire run --check scenarios/bufferbloat.toml",
                ),
                (
                    "Continue an interrupted experiment",
                    "farwire run --resume out/bufferbloat",
                ),
                (
                    "Run the third of 16 shards",
                    "farwire run scenarios/bufferbloat.toml --shard 3/16",
                ),
            ],
            exit_status: EXPERIMENT,
            environment: &[COLOURS, COLUMNS, TOKEN, READ_TOKEN, RUNTIME],
            files: &[
                RECORD,
                REPORT,
                RUNS,
                SAMPLES,
                (
                    "out/NAME/artifacts/",
                    "Output of external tools, CSV files and captures of the runs.",
                ),
                (
                    "out/index.html",
                    "The reports of several scenarios that ran together.",
                ),
                (
                    "PREFIX/share/farwire/scenarios/",
                    "The scenarios that ship. PREFIX is /usr for packages, else /usr/local.",
                ),
                SOCKETS,
            ],
            see_also: EXPERIMENT_PAGES,
        },
    ),
    (
        "farwire exec",
        Facts {
            examples: &[
                (
                    "Ping through 20 ms of delay and 1 % loss in each direction",
                    "farwire exec --delay 20ms --loss 1% -- ping -c 5 10.77.0.2",
                ),
                (
                    "Fill a bottleneck that has a short queue",
                    "farwire exec --rate 10mbit --queue 50ms -- farwire measure tcp 10.77.0.2",
                ),
                (
                    "Open a shell that reaches this machine's network through a mobile network",
                    "farwire exec --net host --profile mobile",
                ),
                (
                    "Download from a web server at the far end, with the download limited to 2 Mbit/s",
                    "farwire exec --down-rate 2mbit --far 'python3 -m http.server 80' -- wget http://10.77.0.2/",
                ),
            ],
            exit_status: &[
                (
                    "0-255",
                    "The exit code of the command; 128 plus the signal's number if a signal ended it.",
                ),
                (
                    "125",
                    "farwire failed, an argument is wrong, or a rule matched no packet (--require-hits).",
                ),
                ("126, 127", "The command cannot be run, or cannot be found."),
            ],
            environment: &[
                (
                    "SHELL",
                    "The shell that runs without a command; /bin/sh if it is not set.",
                ),
                (
                    "FARWIRE_SERVER",
                    "Set for the command: the IPv4 address of the far end, 10.77.0.2. Your shell expands $FARWIRE_SERVER before farwire starts: \
                     write `sh -c '... $FARWIRE_SERVER'`, or 10.77.0.2.",
                ),
                TOKEN,
                READ_TOKEN,
                RUNTIME,
            ],
            files: &[SOCKETS],
            see_also: &[
                "farwire-emulate(1)",
                "farwire-link(1)",
                "farwire-measure(1)",
                "farwire-profiles(1)",
                "tc-netem(8)",
            ],
        },
    ),
    (
        "farwire emulate",
        Facts {
            examples: &[
                (
                    "Connect two interfaces through a slow, lossy link",
                    "farwire emulate eth1 eth2 --delay 300ms --up-rate 2mbit --down-rate 20mbit --loss 0.5%",
                ),
                (
                    "Let everything pass if farwire ends",
                    "farwire emulate eth1 eth2 --delay 20ms --on-exit bridge",
                ),
                (
                    "Put a running container behind a link",
                    "farwire emulate --container web --delay 50ms",
                ),
                (
                    "Undo what a killed farwire left on the interfaces",
                    "farwire emulate --restore",
                ),
            ],
            exit_status: &[
                (
                    "0",
                    "A signal ended the emulation, and the interfaces are restored.",
                ),
                (
                    "1",
                    "The emulation failed, or an interface could not be restored.",
                ),
                (
                    "2",
                    "An argument or a file is wrong, or an interface cannot be used.",
                ),
                (
                    "3",
                    "This machine lacks something, for example the privileges.",
                ),
            ],
            environment: &[
                TOKEN,
                READ_TOKEN,
                RUNTIME,
                (
                    "NOTIFY_SOCKET, WATCHDOG_USEC",
                    "Set by systemd: farwire reports when it is ready and that it is alive.",
                ),
            ],
            files: &[
                (
                    "/run/farwire/NUMBER-INDEX.json",
                    "Journal of the changes to an interface, which --restore undoes.",
                ),
                (
                    "/run/farwire/interfaces.lock",
                    "Empty file whose bytes are locked for the interfaces in use.",
                ),
                SOCKETS,
            ],
            see_also: LINK_PAGES,
        },
    ),
    (
        "farwire links",
        Facts {
            examples: &[
                (
                    "List the links of the farwire that runs on this machine",
                    "farwire links",
                ),
                (
                    "List the links whose names contain `eth7`",
                    "farwire links eth7",
                ),
                (
                    "List the links of a farwire at another address",
                    "farwire links --at http://127.0.0.1:7700/#token=0123456789abcdef",
                ),
                ("Write the list as JSON", "farwire links --json -"),
            ],
            exit_status: API_CLIENT,
            environment: &[CLIENT_TOKEN, RUNTIME],
            files: &[SOCKETS],
            see_also: LIVE_PAGES,
        },
    ),
    (
        "farwire set",
        Facts {
            examples: &[
                (
                    "Add 2 % loss to the link named `link`; its other conditions stay",
                    "farwire set link --loss 2%",
                ),
                (
                    "Give it this delay and no other condition",
                    "farwire set link --replace --delay 100ms",
                ),
                (
                    "Change the rate for one minute",
                    "farwire set link --rate 1mbit --for 60s",
                ),
                ("End that lease early", "farwire set link --revert"),
            ],
            exit_status: API_CLIENT,
            environment: &[CLIENT_TOKEN, RUNTIME],
            files: &[SOCKETS],
            see_also: LIVE_PAGES,
        },
    ),
    (
        "farwire serve",
        Facts {
            examples: &[
                (
                    "Answer every instrument on the usual ports",
                    "farwire serve",
                ),
                (
                    "Answer one network only, and log every test as JSON",
                    "farwire serve --allow 192.0.2.0/24 --json tests.jsonl",
                ),
                (
                    "Show the running tests on this terminal",
                    "farwire serve --tui",
                ),
                (
                    "Export counters for Prometheus, and the running tests as JSON",
                    "farwire serve --metrics 127.0.0.1:9100",
                ),
            ],
            exit_status: &[
                ("0", "A signal ended serve."),
                ("1", "serve failed."),
                ("2", "An argument is wrong, or a port is in use."),
                (
                    "3",
                    "This machine does not let farwire give up its privileges.",
                ),
            ],
            environment: &[
                (
                    "FARWIRE_TOKEN",
                    "Token of --metrics; required for an address other than loopback.",
                ),
                (
                    "NOTIFY_SOCKET",
                    "Set by systemd: farwire reports when it is ready.",
                ),
            ],
            files: &[],
            see_also: MEASURE_PAGES,
        },
    ),
    (
        "farwire fit",
        Facts {
            examples: &[
                (
                    "Measure the path to a host that runs farwire serve, and write its link",
                    "farwire fit 192.0.2.1",
                ),
                (
                    "Spend less time and fewer bytes on it",
                    "farwire fit 192.0.2.1 --time 30s --budget 100mb",
                ),
                (
                    "Keep the link as a profile",
                    "farwire fit 192.0.2.1 --profile office",
                ),
                (
                    "Fit two sessions of ping -D, and state the spread between them",
                    "farwire fit morning.txt evening.txt --out both",
                ),
            ],
            exit_status: MEASURED,
            environment: &[COLOURS, COLUMNS, PROFILES_OF_USER],
            files: &[
                (
                    "fit-HOST/link.toml",
                    "The link: a file of conditions, with the interval of each number.",
                ),
                ("fit-HOST/report.txt", "The tables that the terminal shows."),
                (
                    "fit-HOST/report.html",
                    "The same tables, and drawings of the path beside the link.",
                ),
                (
                    "fit-HOST/fit.json",
                    "The parameters with their evidence, and the comparison.",
                ),
                (
                    "fit-HOST/observations.json",
                    "What was observed, which farwire fit can fit again.",
                ),
            ],
            see_also: &[
                "farwire-serve(1)",
                "farwire-measure(1)",
                "farwire-exec(1)",
                "farwire-profiles(1)",
            ],
        },
    ),
    (
        "farwire measure",
        Facts {
            examples: &[
                (
                    "Measure TCP throughput to an iperf3 or farwire server",
                    "farwire measure tcp 192.0.2.1",
                ),
                (
                    "Measure the one-way delay and loss of a path",
                    "farwire measure probe 192.0.2.1",
                ),
                (
                    "Find the capacity of a path",
                    "farwire measure capacity 192.0.2.1",
                ),
                (
                    "Measure the round-trip time to any host",
                    "farwire measure ping 192.0.2.1 -c 100 -i 100ms",
                ),
            ],
            exit_status: MEASURED,
            environment: &[COLOURS, COLUMNS],
            files: &[],
            see_also: &[
                "farwire-serve(1)",
                "farwire-calibrate(1)",
                "iperf3(1)",
                "ping(8)",
            ],
        },
    ),
    (
        "farwire measure ping",
        instrument(&[
            ("Send 10 echo requests", "farwire measure ping 192.0.2.1"),
            (
                "Send 1,000 requests of 1,200 bytes, one every 10 ms",
                "farwire measure ping 192.0.2.1 -c 1000 -i 10ms -s 1200",
            ),
            (
                "Measure with the ping on PATH",
                "farwire measure ping 192.0.2.1 --tool ping",
            ),
        ]),
    ),
    (
        "farwire measure connect",
        instrument(&[
            (
                "Connect to port 80 ten times",
                "farwire measure connect 192.0.2.1",
            ),
            (
                "Connect to port 443, 100 times, every 100 ms",
                "farwire measure connect example.org:443 -c 100 -i 100ms",
            ),
            (
                "Write the result as JSON",
                "farwire measure connect 192.0.2.1:22 --json -",
            ),
        ]),
    ),
    (
        "farwire measure tls",
        instrument(&[
            ("Time 10 handshakes", "farwire measure tls example.org"),
            (
                "Resume sessions",
                "farwire measure tls example.org --resume",
            ),
            (
                "Offer HTTP/2 first",
                "farwire measure tls 192.0.2.1:8443 --server-name example.org --alpn h2,http/1.1",
            ),
        ]),
    ),
    (
        "farwire measure http",
        instrument(&[
            (
                "Download 100 MB from farwire serve",
                "farwire measure http http://192.0.2.1:8080/bytes/100000000",
            ),
            (
                "Download for 10 seconds",
                "farwire measure http http://192.0.2.1:8080/seconds/60 --duration 10s",
            ),
            (
                "Fetch 200 small files over 6 connections",
                "farwire measure http http://192.0.2.1:8080 --count 200 --sizes lognormal:20kb,1",
            ),
        ]),
    ),
    (
        "farwire measure capacity",
        instrument(&[
            (
                "Find the capacity from the server to here",
                "farwire measure capacity 192.0.2.1",
            ),
            (
                "Find the capacity from here to the server",
                "farwire measure capacity 192.0.2.1 --up",
            ),
            (
                "Search for 30 seconds",
                "farwire measure capacity 192.0.2.1 --time 30s",
            ),
        ]),
    ),
    (
        "farwire measure pingpong",
        instrument(&[
            (
                "Exchange messages of 1 byte",
                "farwire measure pingpong 192.0.2.1",
            ),
            (
                "Compare sizes, over UDP",
                "farwire measure pingpong 192.0.2.1 --udp --size 1..1024",
            ),
            (
                "Repeat the published table of nettest",
                "farwire measure pingpong 192.0.2.1 --sweep nettest",
            ),
        ]),
    ),
    (
        "farwire measure blast",
        instrument(&[
            ("Send messages of 1 byte", "farwire measure blast 192.0.2.1"),
            (
                "Compare three sizes",
                "farwire measure blast 192.0.2.1 --size 64,1KiB,64KiB --count 10000",
            ),
            (
                "Repeat the published table of nettest",
                "farwire measure blast 192.0.2.1 --sweep nettest",
            ),
        ]),
    ),
    (
        "farwire measure transfer",
        instrument(&[
            (
                "Transfer 10 MiB in blocks of 8 KiB",
                "farwire measure transfer 192.0.2.1",
            ),
            (
                "Compare eight block sizes",
                "farwire measure transfer 192.0.2.1 --sweep",
            ),
            (
                "Send a file",
                "farwire measure transfer 192.0.2.1 --file disk.img --block 64KiB",
            ),
        ]),
    ),
    (
        "farwire measure tcp",
        instrument(&[
            ("Send for 10 seconds", "farwire measure tcp 192.0.2.1"),
            (
                "Receive over four streams with cubic",
                "farwire measure tcp 192.0.2.1 -P 4 -R -C cubic",
            ),
            (
                "Send in both directions and leave out the first 2 seconds",
                "farwire measure tcp 192.0.2.1 --bidir -O 2 -t 30",
            ),
            (
                "Measure with the iperf3 on PATH",
                "farwire measure tcp 192.0.2.1 --tool iperf3",
            ),
        ]),
    ),
    (
        "farwire measure quality",
        instrument(&[
            (
                "Find out whether the path to a far end is bloated",
                "farwire measure quality 192.0.2.1",
            ),
            (
                "Measure for a minute and show every figure",
                "farwire measure quality 192.0.2.1 --time 60s --details",
            ),
            (
                "Try it on an emulated link whose queue holds a second",
                "farwire exec --delay 10ms --rate 10mbit --queue 1s -- farwire measure quality 10.77.0.2",
            ),
        ]),
    ),
    (
        "farwire measure probe",
        instrument(&[
            (
                "Send 500 probes, one every 10 ms",
                "farwire measure probe 192.0.2.1",
            ),
            (
                "Compare an idle path with one under three TCP streams",
                "farwire measure probe 192.0.2.1 --under tcp:3",
            ),
            (
                "Probe beside downloads and uploads that use BBR",
                "farwire measure probe 192.0.2.1 --under tcp:4,both,congestion=bbr",
            ),
            (
                "Write every probe as CSV",
                "farwire measure probe 192.0.2.1 -c 5000 -i 1ms --csv probes.csv",
            ),
        ]),
    ),
    (
        "farwire measure udp",
        instrument(&[
            (
                "Send 1 Mbit/s for 10 seconds",
                "farwire measure udp 192.0.2.1",
            ),
            (
                "Send 50 Mbit/s in both directions",
                "farwire measure udp 192.0.2.1 -b 50M --bidir",
            ),
            (
                "Receive datagrams of 200 bytes, marked as voice",
                "farwire measure udp 192.0.2.1 -R -l 200 --dscp ef",
            ),
        ]),
    ),
    (
        "farwire calibrate",
        Facts {
            examples: &[
                (
                    "Calibrate this machine in about five minutes",
                    "farwire calibrate --quick",
                ),
                (
                    "Show the plan and its duration",
                    "farwire calibrate --check",
                ),
                (
                    "Use a grid of your own",
                    "farwire calibrate grid.toml --out out/mine",
                ),
            ],
            exit_status: &[
                (
                    "0",
                    "The intervals of every instrument contain the truth in at least 90 % of its cells.",
                ),
                (
                    "1",
                    "The intervals of an instrument contain the truth in fewer cells, a run failed, or a signal ended the calibration.",
                ),
                ("2", "The grid or an argument is wrong."),
                (
                    "3",
                    "This machine lacks something that the calibration needs; `farwire doctor` says what.",
                ),
            ],
            environment: &[COLOURS, COLUMNS],
            files: &[
                RECORD,
                ("out/NAME/calibration.md", "The calibration report."),
                ("out/NAME/calibration.json", "The same as JSON."),
            ],
            see_also: &["farwire-measure(1)", "farwire-run(1)", "farwire-doctor(1)"],
        },
    ),
    (
        "farwire report",
        Facts {
            examples: &[
                (
                    "Show the report of an experiment",
                    "farwire report out/bufferbloat",
                ),
                (
                    "Write it as Markdown",
                    "farwire report out/bufferbloat --format md --out report.md",
                ),
                (
                    "Write every chart as an SVG file",
                    "farwire report out/bufferbloat --figures figures",
                ),
                (
                    "Show the averages over the tests of a far end",
                    "farwire report tests.jsonl",
                ),
            ],
            exit_status: DONE,
            environment: &[COLOURS, COLUMNS],
            files: &[RECORD],
            see_also: EXPERIMENT_PAGES,
        },
    ),
    (
        "farwire compare",
        Facts {
            examples: &[
                (
                    "Compare an experiment with an earlier one",
                    "farwire compare out/before out/after",
                ),
                (
                    "Accept changes up to 10 %",
                    "farwire compare out/before out/after --threshold 10%",
                ),
                (
                    "Compare every figure and write the result as JSON",
                    "farwire compare out/before out/after --all --json -",
                ),
                (
                    "Find out how two congestion controls differ",
                    "farwire compare out/cubic out/bbr --by congestion",
                ),
            ],
            exit_status: &[
                (
                    "0",
                    "No figure got worse by more than the threshold; with --by, every comparison was made.",
                ),
                (
                    "1",
                    "A figure got worse, or too few data exist to decide (see --allow-missing).",
                ),
                (
                    "2",
                    "A record cannot be read, the records do not belong together, or an argument is wrong.",
                ),
            ],
            environment: &[COLOURS, COLUMNS],
            files: &[RECORD],
            see_also: EXPERIMENT_PAGES,
        },
    ),
    (
        "farwire merge",
        Facts {
            examples: &[
                (
                    "Join two shards",
                    "farwire merge out/x-1-of-2 out/x-2-of-2 --out out/x",
                ),
                (
                    "Replace an earlier result",
                    "farwire merge out/x-1-of-2 out/x-2-of-2 --out out/x --overwrite",
                ),
                (
                    "List missing runs as JSON",
                    "farwire merge out/x-1-of-2 --out out/x --json -",
                ),
            ],
            exit_status: &[
                ("0", "No run is missing, and all expectations are met."),
                (
                    "1",
                    "A run is missing, failed or is invalid, or an expectation is not met.",
                ),
                (
                    "2",
                    "A record cannot be read, the records do not belong together, or an argument is wrong.",
                ),
            ],
            environment: &[COLOURS],
            files: &[RECORD],
            see_also: EXPERIMENT_PAGES,
        },
    ),
    (
        "farwire submit",
        Facts {
            examples: &[
                (
                    "Run an experiment with Slurm and wait for the report",
                    "farwire submit --slurm --out /shared/x scenarios/bufferbloat.toml",
                ),
                (
                    "Print the batch script",
                    "farwire submit --slurm --out /shared/x --print scenarios/bufferbloat.toml",
                ),
                ("Show the progress", "farwire submit --status /shared/x"),
                ("Cancel the tasks", "farwire submit --cancel /shared/x"),
            ],
            exit_status: &[
                (
                    "0",
                    "All runs took place and all expectations are met; with --detach, the shards are submitted.",
                ),
                (
                    "1",
                    "An expectation is not met, runs are missing, or a task was cancelled.",
                ),
                ("2", "The scenario or an argument is wrong."),
                ("3", "Slurm does not answer, or no node can run the shards."),
            ],
            environment: &[
                (
                    "SBATCH_PARTITION",
                    "Slurm partition, in place of --partition.",
                ),
                COLOURS,
                COLUMNS,
            ],
            files: &[
                (
                    "DIR/record.jsonl, DIR/report.html",
                    "The joined record and its report.",
                ),
                ("DIR/shards/", "The records of the shards."),
                (
                    "DIR/nodes/NODE.cannot",
                    "The reason why a node is left out; remove the file when the node is repaired.",
                ),
            ],
            see_also: EXPERIMENT_PAGES,
        },
    ),
    (
        "farwire view",
        Facts {
            examples: &[
                (
                    "Show the reports in out/ at http://127.0.0.1:7700",
                    "farwire view",
                ),
                (
                    "Show the records of another directory",
                    "farwire view /srv/records",
                ),
                ("Use a free port", "farwire view --listen 127.0.0.1:0"),
            ],
            exit_status: DONE,
            environment: &[],
            files: &[RECORD],
            see_also: EXPERIMENT_PAGES,
        },
    ),
    (
        "farwire link",
        Facts {
            examples: &[
                (
                    "Show the effect of a bottleneck and a delay",
                    "farwire link --rate 10mbit --delay 20ms",
                ),
                (
                    "Show the effect of jitter that keeps the order of packets",
                    "farwire link --delay 50ms --jitter 5ms,normal",
                ),
                (
                    "Write conditions as options of tc-netem(8)",
                    "farwire link --delay 20ms --loss 1% --as-netem",
                ),
                (
                    "Convert a script of tc's commands to a link file",
                    "farwire link --from-tc shape.sh > shape.toml",
                ),
            ],
            exit_status: &[
                ("0", "The conditions are shown."),
                (
                    "1",
                    "With --as-netem: netem has no options for some of the conditions. With --from-tc: some lines have no equivalent.",
                ),
                ("2", "A condition or another argument is wrong."),
            ],
            environment: &[COLOURS, COLUMNS],
            files: &[],
            see_also: &[
                "farwire-exec(1)",
                "farwire-emulate(1)",
                "farwire-theory(1)",
                "farwire-profiles(1)",
                "tc(8)",
                "tc-netem(8)",
            ],
        },
    ),
    (
        "farwire theory",
        Facts {
            examples: &[
                (
                    "Show the goodput that Gigabit Ethernet allows",
                    "farwire theory",
                ),
                (
                    "Find the limit of a TCP transfer",
                    "farwire theory --rate 100mbit --rtt 20ms --window 256KiB --loss 0.1%",
                ),
                (
                    "Explain a measured goodput",
                    "farwire theory --rate 100mbit --measured 93.5mbit",
                ),
                ("Compare message sizes", "farwire theory --size 1..1024"),
            ],
            exit_status: DONE,
            environment: &[COLOURS, COLUMNS],
            files: &[],
            see_also: &["farwire-link(1)", "farwire-measure(1)"],
        },
    ),
    (
        "farwire trace",
        Facts {
            examples: &[
                ("Describe a trace", "farwire trace drive.csv"),
                (
                    "Convert a Mahimahi trace to a table with a rate for each second",
                    "farwire trace cell.down --to csv --every 1s --out cell.csv",
                ),
                (
                    "Cut the second minute out of a trace, with half the rate",
                    "farwire trace drive.csv --from 1min --until 2min --scale-rate 0.5 --to csv --out minute.csv",
                ),
                (
                    "Make a trace from a column of throughput for each second",
                    "farwire trace samples.csv --from-samples DL_Mbps --to csv --out drive.csv",
                ),
            ],
            exit_status: DONE,
            environment: &[COLOURS, COLUMNS],
            files: &[],
            see_also: LINK_PAGES,
        },
    ),
    (
        "farwire profiles",
        Facts {
            examples: &[
                ("List the profiles", "farwire profiles"),
                ("Print the file of a profile", "farwire profiles mobile"),
                (
                    "Make a profile, and use it",
                    "farwire profiles new office --delay 7ms --rate 50mbit",
                ),
                (
                    "Check that every number has a source",
                    "farwire profiles check",
                ),
            ],
            exit_status: DONE,
            environment: &[COLUMNS, PROFILES_OF_USER],
            files: PROFILE_FILES,
            see_also: LINK_PAGES,
        },
    ),
    (
        "farwire profiles new",
        Facts {
            examples: &[
                (
                    "Make a profile from conditions",
                    "farwire profiles new office --delay 7ms --rate 50mbit --queue 100ms",
                ),
                (
                    "Build on another profile",
                    "farwire profiles new commuter --profile mobile --loss 2%,burst=20 --about 'A phone in a train'",
                ),
                (
                    "Make a profile from a link file",
                    "farwire profiles new lab --link lab.toml --profiles profiles",
                ),
            ],
            exit_status: DONE,
            environment: &[PROFILES_OF_USER],
            files: PROFILE_FILES,
            see_also: &["farwire-profiles(1)", "farwire-link(1)"],
        },
    ),
    (
        "farwire profiles check",
        Facts {
            examples: &[
                (
                    "Check all profiles that you wrote",
                    "farwire profiles check",
                ),
                ("Check one of them", "farwire profiles check office"),
                (
                    "Check the profiles of a project",
                    "farwire profiles check --profiles profiles",
                ),
            ],
            exit_status: &[
                (
                    "0",
                    "Every profile can be read, and every number has a source or is marked as assumed.",
                ),
                (
                    "1",
                    "A profile has a problem, which the output names with its line.",
                ),
                ("2", "An argument is wrong."),
            ],
            environment: &[PROFILES_OF_USER],
            files: PROFILE_FILES,
            see_also: &["farwire-profiles(1)"],
        },
    ),
    (
        "farwire doctor",
        Facts {
            examples: &[
                ("Check this machine", "farwire doctor"),
                ("Write the checks as JSON", "farwire doctor --json -"),
                (
                    "Check for a script, without output",
                    "farwire doctor --json /dev/null",
                ),
            ],
            exit_status: &[
                ("0", "Everything that farwire needs is there."),
                ("3", "Something that farwire needs is missing."),
            ],
            environment: &[COLUMNS],
            files: &[],
            see_also: &[
                "farwire-exec(1)",
                "farwire-emulate(1)",
                "user_namespaces(7)",
            ],
        },
    ),
    (
        "farwire completions",
        Facts {
            examples: &[
                (
                    "Install the completions of bash",
                    "farwire completions bash > ~/.local/share/bash-completion/completions/farwire",
                ),
                (
                    "Install the completions of fish",
                    "farwire completions fish > ~/.config/fish/completions/farwire.fish",
                ),
                ("Print the completions of zsh", "farwire completions zsh"),
            ],
            exit_status: DONE,
            environment: &[],
            files: &[],
            see_also: &[],
        },
    ),
    (
        "farwire man",
        Facts {
            examples: &[
                (
                    "Write every manual page into a directory",
                    "farwire man --out ~/.local/share/man/man1",
                ),
                ("Print the page of farwire", "farwire man"),
                ("Read it", "farwire man | man -l -"),
            ],
            exit_status: DONE,
            environment: &[],
            files: &[],
            see_also: &["man(1)"],
        },
    ),
    (
        "farwire schema",
        Facts {
            examples: &[
                (
                    "Write the schema of scenario files for an editor",
                    "farwire schema > scenario.schema.json",
                ),
                (
                    "Write the OpenAPI document of --listen",
                    "farwire schema --openapi > openapi.json",
                ),
                ("Print the schema", "farwire schema"),
            ],
            exit_status: DONE,
            environment: &[],
            files: &[],
            see_also: &["farwire-run(1)", "farwire-links(1)"],
        },
    ),
];
