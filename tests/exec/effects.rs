//! Effects of the link on packets beside delay and loss, as the command behind it sees them.

use std::fs;

use anyhow::{Context, Result, ensure};
use tempfile::NamedTempFile;

use test_support::process::{self, has};
use test_support::suite::{Need, Suite};
use test_support::wan_box::Summary;
use test_support::{FAR_ENDS, far_ends_of_effects};

const WGET: [Need; 2] = [Need::Namespaces, Need::Tool("wget")];

/// The bytes of a SYN of TCP over IPv6 with all its options, at L2. Packets without data, such as a FIN, are not ECN-capable (RFC 3168, 6.1), so
/// that a queue drops them where it would mark.
const LONGEST_WITHOUT_DATA: u64 = 14 + 40 + 60;

/// Conditions by which ping(8) receives all answers: after its last request it waits two of its round trips.
const LONG_ROUND_TRIP: &str = "down = { delay = '200ms' }";

#[test_support::tests]
fn add(suite: &mut Suite) {
    for (address, host) in FAR_ENDS.into_iter().zip(["10.77.0.2", "[fd77::2]"]) {
        for aqm in ["codel,ecn", "fq_codel", "dualpi2", "red,ecn"] {
            suite.serial(
                format!("{aqm} marks what comes from {address} and drops no data"),
                &WGET,
                move || {
                    let down = marks(host, aqm)?.down;
                    let dropped: u64 = down.dropped.values().sum();
                    // The end of a connection may be on its way when the command ends.
                    let packets = dropped + down.held_at_end;
                    let bytes = down.bytes - down.delivered_bytes;
                    ensure!(bytes <= packets * LONGEST_WITHOUT_DATA, "{down:?}");
                    Ok(())
                },
            );
        }
        // The parameters make it mark within a second; from 10 % on it drops.
        let pie = "pie,ecn,target=2ms,tupdate=2ms,max_burst=2ms";
        suite.serial(
            format!("pie,ecn marks what comes from {address}, and its counts add up"),
            &WGET,
            move || {
                let down = marks(host, pie)?.down;
                let dropped: u64 = down.dropped.values().sum();
                ensure!(
                    down.packets == down.delivered + dropped + down.held_at_end
                        && down.queue_full() == 0,
                    "{down:?}"
                );
                Ok(())
            },
        );
    }
}

/// The output of a shell behind a link.
pub(crate) struct Run {
    pub(crate) said: String,
    pub(crate) summary: Summary,
    pub(crate) packet_log: String,
}

impl Run {
    /// Runs `script` behind the link of `file`; `$farwire` is the program.
    pub(crate) fn of(file: &str, script: &str) -> Result<Self> {
        let link = NamedTempFile::with_suffix(".toml")?;
        fs::write(link.path(), file)?;
        let (json, log) = (NamedTempFile::new()?, NamedTempFile::new()?);
        let mut command = process::farwire();
        command.arg("exec").arg("--link").arg(link.path());
        command.arg("--json").arg(json.path());
        command.arg("--packet-log").arg(log.path());
        command.env("farwire", process::program());
        command.args(["--", "sh", "-c", script]);
        let output = process::run(&mut command)?;
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said).into_owned();
        let summary = fs::read(json.path()).context(said.clone())?;
        Ok(Self {
            summary: serde_json::from_slice(&summary).context(said.clone())?,
            packet_log: fs::read_to_string(log.path())?,
            said,
        })
    }
}

/// A line of the packet log.
struct Row {
    arrival: u64,
    verdict: String,
    changes: String,
    /// The due time of a packet that was due to leave.
    due: Option<u64>,
}

impl Run {
    /// Returns the outcomes of the packets that went up, in the order of arrival, without link control.
    fn rows_up(&self) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for line in self.packet_log.lines().filter(|line| line.contains(",up,")) {
            let columns: Vec<&str> = line.split(',').collect();
            let [_, _, _, arrival, verdict, changes, due, ..] = columns[..] else {
                anyhow::bail!("{line}");
            };
            rows.push(Row {
                arrival: arrival.parse()?,
                verdict: verdict.to_owned(),
                changes: changes.to_owned(),
                due: due.parse().ok(),
            });
        }
        rows.retain(|row| row.verdict != "link_control");
        rows.sort_by_key(|row| row.arrival);
        Ok(rows)
    }

    /// Returns the arrival and due time of each packet that went up, in nanoseconds, in the order of departure.
    fn times_up(&self) -> Result<Vec<(u64, u64)>> {
        let mut times = Vec::new();
        for row in self.packet_log.lines().filter(|row| row.contains(",up,")) {
            let columns: Vec<&str> = row.split(',').collect();
            if let [_, _, _, arrival, "delivered", _, due, ..] = columns[..] {
                times.push((arrival.parse()?, due.parse()?));
            }
        }
        Ok(times)
    }
}

#[test_support::test(serial, each(far_ends_of_effects()), Namespaces, Tool("ping"))]
fn a_packet_that_the_link_copies_comes_twice(address: &str) -> Result<()> {
    let script = format!("ping -n -c 5 -i 0.02 {address}");
    let Run { said, summary, .. } = Run::of("up = { duplicate = '100%' }", &script)?;
    // The end of the command may cut off the last packets.
    ensure!(said.matches("(DUP!)").count() >= 4, "{said}");
    let (up, down) = (&summary.up, &summary.down);
    ensure!(up.copies == up.packets && up.packets >= 5, "{summary:?}");
    ensure!(down.packets == up.delivered, "{summary:?}");
    ensure!(up.own_losses() + down.own_losses() == 0, "{summary:?}");
    Ok(())
}

#[test_support::test(serial, each(far_ends_of_effects()), Namespaces, Tool("ping"))]
fn a_sender_is_told_what_is_too_long(address: &str) -> Result<()> {
    for link in ["[[stages]]\nkind = 'mtu'\nmtu = 1400", "path_mtu = 1400"] {
        sender_is_told(link, address)?;
    }
    Ok(())
}

fn sender_is_told(link: &str, address: &str) -> Result<()> {
    // Each ping ends at its error; the second one follows the first.
    let ping = format!("ping -n -M do -c 1 -W 20 -s 1400 {address}");
    let script = format!("{ping}; {ping}");
    let Run { said, summary, .. } = Run::of(link, &script)?;
    // The ICMP answer stops the first ping; the MTU that the kernel learnt from it stops the second one.
    ensure!(
        said.contains("mtu = 1400") || said.contains("mtu=1400"),
        "{said}"
    );
    has(&said, "essage too long")?;
    let up = &summary.up;
    ensure!(up.packets == 1 && up.replies == 1, "{summary:?}");
    ensure!(up.dropped.get("too_big") == Some(&1), "{summary:?}");
    Ok(())
}

/// An ICMP checksum covers everything behind the IP header, so every corrupted packet is detected.
#[test_support::test(serial, each(far_ends_of_effects()), Namespaces, Tool("ping"))]
fn what_the_link_corrupts_has_a_wrong_checksum(address: &str) -> Result<()> {
    let probe = format!("$farwire measure probe {address} --quiet -c 20 -i 2ms -W 1s");
    let script =
        format!("ping -n -c 5 -i 0.02 -W 1 {address}; {probe}; cat /proc/net/snmp /proc/net/snmp6");
    let Run { said, summary, .. } = Run::of("down = { corrupt = '100%' }", &script)?;
    let (icmp, udp) = wrong_checksums(&said, address)?;
    ensure!(icmp >= 5, "{icmp} wrong ICMP checksums: {said}");
    ensure!(udp > 0, "no wrong UDP checksum: {said}");
    let down = &summary.down;
    ensure!(
        down.edited == down.packets && icmp + udp <= down.edited,
        "{icmp} and {udp} of {summary:?}"
    );
    Ok(())
}

/// Returns the kernel's count of ICMP and UDP packets with a wrong checksum, for the address's version of IP.
fn wrong_checksums(said: &str, address: &str) -> Result<(u64, u64)> {
    Ok(if address.contains(':') {
        let counter = |name: &str| -> Result<u64> {
            let line = said.lines().find(|line| line.starts_with(name));
            let value = line.and_then(|line| line.split_whitespace().last());
            Ok(value.context(name.to_owned())?.parse()?)
        };
        (counter("Icmp6InCsumErrors")?, counter("Udp6InCsumErrors")?)
    } else {
        let counter = |protocol: &str| -> Result<u64> {
            let mut rows = said.lines().filter(|line| line.starts_with(protocol));
            let (names, values) = (rows.next(), rows.next());
            let (names, values) = names.zip(values).context(protocol.to_owned())?;
            let mut both = names.split(' ').zip(values.split(' '));
            let found = both.find(|(name, _)| *name == "InCsumErrors");
            Ok(found.context("InCsumErrors")?.1.parse()?)
        };
        (counter("Icmp: ")?, counter("Udp: ")?)
    })
}

#[test_support::test(serial, each(far_ends_of_effects()), Namespaces)]
fn bursts_of_losses_are_counted(address: &str) -> Result<()> {
    let script = format!("$farwire measure probe {address} --quiet -c 200 -i 1ms");
    let link = "[[stages]]\nkind = 'gemodel'\np = '5%'\nr = '30%'\ndirection = 'up'";
    let Run { said, summary, .. } = Run::of(link, &script)?;
    let up = &summary.up;
    ensure!(up.packets >= 200 && up.lost() > 0, "{summary:?}{said}");
    let gone = up.delivered + up.lost() + up.held_at_end;
    ensure!(gone == up.packets && up.own_losses() == 0, "{summary:?}");
    Ok(())
}

#[test_support::test(serial, each(far_ends_of_effects()), Namespaces)]
fn free_jitter_reorders_and_what_comes_behind_it_keeps_that_order(address: &str) -> Result<()> {
    let script = format!("$farwire measure probe {address} --quiet -c 200 -i 1ms");
    let link = "up = { delay = '10ms', jitter = '8ms,free' }\n\
                [[stages]]\nkind = 'delay'\nname = 'far'\ndelay = '1ms'\ndirection = 'up'\nplace = 'last'";
    let run = Run::of(link, &script)?;
    let log = &run.packet_log;
    let times = run.times_up()?;
    ensure!(times.len() >= 200, "{}", run.said);
    // Lines are in the order of departure.
    ensure!(!times.is_sorted(), "{log}");
    ensure!(
        times
            .iter()
            .all(|(arrival, due)| (3_000_000..=19_000_000).contains(&(due - arrival))),
        "{log}"
    );
    Ok(())
}

#[test_support::test(serial, each(far_ends_of_effects()), Namespaces)]
fn netem_delays_loses_copies_and_lets_overtake_as_its_options_say(address: &str) -> Result<()> {
    let script = format!("$farwire measure probe {address} --quiet -c 400 -i 1ms");
    let link = "[up]\nnetem = 'limit 500 delay 10ms 8ms loss 5% duplicate 5% reorder 10% gap 2'";
    let run = Run::of(link, &script)?;
    let up = &run.summary.up;
    ensure!(up.packets >= 400 && up.own_losses() == 0, "{}", run.said);
    // 5 % of 400 are 20; allow five standard errors to either side.
    ensure!((1..42).contains(&up.lost()), "{up:?}");
    ensure!((1..42).contains(&up.copies), "{up:?}");
    ensure!(up.queue_full() == 0, "{up:?}");
    let gone = up.delivered + up.lost() + up.held_at_end;
    ensure!(gone == up.packets + up.copies, "{up:?}");
    let waits = run.times_up()?.into_iter();
    let waits: Vec<u64> = waits.map(|(arrival, due)| due - arrival).collect();
    let undelayed = waits.iter().filter(|wait| **wait < 2_000_000).count();
    let delayed = waits
        .iter()
        .filter(|wait| (2_000_000..18_000_000).contains(*wait))
        .count();
    // At most every second packet may skip the delay, and a tenth of these do.
    ensure!((1..100).contains(&undelayed), "{}", run.packet_log);
    ensure!(undelayed + delayed == waits.len(), "{}", run.packet_log);
    Ok(())
}

#[test_support::test(serial, each(far_ends_of_effects()), Namespaces, Tool("ping"))]
fn a_copy_is_served_by_the_trace_behind_it(address: &str) -> Result<()> {
    let script = format!("ping -n -c 5 -i 0.02 {address}");
    let link = "up = { duplicate = '100%' }\n\
                [[stages]]\nkind = 'trace'\ntimes = [5]\ndirection = 'up'\nplace = 'last'";
    let run = Run::of(link, &script)?;
    let log = &run.packet_log;
    let up = &run.summary.up;
    ensure!(up.copies == up.packets && up.packets >= 5, "{}", run.said);
    // Both are small enough for one opportunity to send, which comes every 5 ms.
    let is_served = |(arrival, due): &(u64, u64)| due - arrival <= 5_000_000;
    let times = run.times_up()?;
    ensure!(times.len() >= 10 && times.iter().all(is_served), "{log}");
    Ok(())
}

#[test_support::test(serial, each(far_ends_of_effects()), Namespaces, Tool("ping"))]
fn a_stall_ends_when_its_schedule_has_a_rate(address: &str) -> Result<()> {
    let script = format!("ping -n -c 5 -i 0.1 -W 10 {address}");
    let link = "[up]\nrate = '0bit'\nqueue = '100pkt'\nschedule = [{ at = '1s', rate = '1mbit' }]";
    let run = Run::of(link, &script)?;
    let log = &run.packet_log;
    ensure!(run.said.contains("5 received"), "{}", run.said);
    // A ping of 98 bytes or more takes 784 us at that rate.
    let is_served = |(arrival, due): &(u64, u64)| due - arrival >= 784_000;
    let times = run.times_up()?;
    ensure!(times.len() >= 5 && times.iter().all(is_served), "{log}");
    Ok(())
}

/// Counted from the start of the link, the step would be in force before the ping.
#[test_support::test(serial, Namespaces, Tool("ping"))]
fn a_schedule_may_begin_with_the_first_packet() -> Result<()> {
    let script = "sleep 1.2; ping -n -c 1 -W 20 10.77.0.2";
    let link =
        "start = 'first-packet'\n[up]\ndelay = '1ms'\nschedule = [{ at = '1s', delay = '50ms' }]";
    let run = Run::of(link, script)?;
    let times = run.times_up()?;
    let is_first = |(arrival, due): &(u64, u64)| due - arrival == 1_000_000;
    ensure!(!times.is_empty(), "{}", run.said);
    ensure!(times.iter().all(is_first), "{}", run.packet_log);
    Ok(())
}

#[test_support::test(serial, each(far_ends_of_effects()), Namespaces)]
fn a_packet_rate_lets_packets_leave_one_by_one(address: &str) -> Result<()> {
    let script = format!("$farwire measure probe {address} --quiet -c 20 -i 1ms");
    let run = Run::of("up.pps = '100,queue=100pkt'", &script)?;
    let log = &run.packet_log;
    // At 100 packets per second, each takes 10 ms. The time of day, which the log has, is corrected meanwhile.
    let service = 9_900_000;
    let times = run.times_up()?;
    let is_served = |(arrival, due): &(u64, u64)| due - arrival >= service;
    ensure!(times.len() >= 20 && times.iter().all(is_served), "{log}");
    let follows = |pair: &[(u64, u64)]| pair[1].1 - pair[0].1 >= service;
    ensure!(times.windows(2).all(follows), "{log}");
    Ok(())
}

fn marks(host: &str, aqm: &str) -> Result<Summary> {
    // Use two, because a single one that begins slowly (RFC 9406) hardly fills the queue in such a short time.
    let get = format!("wget -q -O /dev/null http://{host}/bytes/1250000");
    let script = format!(
        "echo 1 > /proc/sys/net/ipv4/tcp_ecn; {get} & {get} && wait $! && echo done; cat /proc/net/netstat /proc/net/snmp6"
    );
    let link =
        format!("delay = '5ms'\ndown = {{ rate = '20mbit', queue = '1000pkt', aqm = '{aqm}' }}");
    let Run { said, summary, .. } = Run::of(&link, &script)?;
    has(&said, "done")?;
    let down = &summary.down;
    ensure!(down.marked > 0 && down.marked < down.packets, "{summary:?}");
    let received = if host.starts_with('[') {
        let line = said.lines().find(|line| line.starts_with("Ip6InCEPkts"));
        line.and_then(|line| line.split_whitespace().last())
    } else {
        let mut rows = said.lines().filter(|line| line.starts_with("IpExt: "));
        let both = rows.next().zip(rows.next());
        let column = both.and_then(|(names, values)| {
            let mut both = names.split(' ').zip(values.split(' '));
            both.find(|(name, _)| *name == "InCEPkts")
        });
        column.map(|(_, value)| value)
    };
    let received: u64 = received.context("no count of marks")?.parse()?;
    // The kernel may have joined several packets into one before it counts.
    ensure!(received > 0, "{received} of {summary:?}");
    ensure!(received <= down.marked, "{received} of {summary:?}");
    Ok(summary)
}

#[test_support::test(serial, each(far_ends_of_effects()), Namespaces, Tool("ping"))]
fn what_a_bucket_holds_passes_at_once(address: &str) -> Result<()> {
    let script = format!("ping -n -c 5 -s 1400 -i 0.01 {address}");
    let link = format!("up = {{ rate = '100kbit,burst=10kb' }}\n{LONG_ROUND_TRIP}");
    let run = Run::of(&link, &script)?;
    let log = &run.packet_log;
    ensure!(run.said.contains("5 received"), "{}", run.said);
    // Without a bucket, each packet would take 115 ms.
    let times = run.times_up()?;
    ensure!(times.len() >= 5, "{log}");
    ensure!(times.iter().all(|(arrival, due)| arrival == due), "{log}");
    Ok(())
}

#[test_support::test(serial, each(far_ends_of_effects()), Namespaces, Tool("ping"))]
fn a_rate_counts_the_cells_of_a_line(address: &str) -> Result<()> {
    let script = format!("ping -n -c 3 -s 1400 -i 0.1 {address}");
    let link = format!("up = {{ rate = '1mbit', rate_at = 'pppoe-llcsnap' }}\n{LONG_ROUND_TRIP}");
    let run = Run::of(&link, &script)?;
    ensure!(run.said.contains("3 received"), "{}", run.said);
    // 1,442 or 1,462 bytes plus 26 fill 31 cells of 53 bytes, at 8 us for each byte.
    let long = run
        .times_up()?
        .iter()
        .filter(|(arrival, due)| due - arrival == 31 * 53 * 8_000)
        .count();
    ensure!(long >= 3, "{}", run.packet_log);
    Ok(())
}

#[test_support::test(serial, each(far_ends_of_effects()), Namespaces, Tool("ping"))]
fn a_policer_drops_what_exceeds_its_burst_and_its_counts_add_up(address: &str) -> Result<()> {
    // In 50 ms the rate makes room for 63 bytes, which is too little for the second of ten packets.
    let script = format!("ping -n -c 10 -s 1400 -i 0.005 -W 1 {address}; true");
    let run = Run::of("up = { police = '10kbit,burst=2kb' }", &script)?;
    let log = &run.packet_log;
    let up = &run.summary.up;
    let policed = up.dropped.get("policed").copied().unwrap_or(0);
    ensure!(policed >= 8 && up.delivered >= 1, "{:?}", run.summary);
    ensure!(up.packets == up.delivered + policed, "{:?}", run.summary);
    let times = run.times_up()?;
    ensure!(times.iter().all(|(arrival, due)| arrival == due), "{log}");
    Ok(())
}

#[test_support::test(Namespaces, Tool("bash"))]
fn a_drop_head_queue_that_is_full_drops_what_waited_and_its_counts_add_up() -> Result<()> {
    // 100 datagrams arrive together, each takes 21 ms or more, and 5 may wait.
    let script =
        "bash -c 'for n in $(seq 100); do echo > /dev/udp/10.77.0.2/5000; done' 2>/dev/null; true";
    let link = "[up]\nrate = '16kbit'\naqm = 'drop-head'\nqueue = '5pkt'";
    let run = Run::of(link, script)?;
    let up = &run.summary.up;
    let full = up.queue_full();
    ensure!(
        full > 0 && up.dropped.values().sum::<u64>() == full,
        "{:?}",
        run.summary
    );
    ensure!(
        up.packets == up.delivered + full + up.held_at_end,
        "{:?}",
        run.summary
    );
    let rows = run.packet_log.lines().filter(|row| row.contains(",udp,"));
    let mut rows: Vec<Vec<&str>> = rows.map(|row| row.split(',').collect()).collect();
    rows.retain(|columns| columns[1] == "up");
    rows.sort_by_key(|columns| columns[3].to_owned());
    let verdicts: Vec<&str> = rows.iter().map(|columns| columns[4]).collect();
    let last = verdicts.last().context("no datagram")?;
    ensure!(*last != "queue_full", "{verdicts:?}");
    ensure!(verdicts.contains(&"queue_full"), "{verdicts:?}");
    Ok(())
}

#[test_support::test(Namespaces, Tool("bash"))]
fn a_class_is_what_its_rule_takes() -> Result<()> {
    let script = "bash -c 'for n in 1 2 3 4 5; do for port in 5000 6000; do echo > /dev/udp/10.77.0.2/$port; done; done' 2>/dev/null; true";
    let link = "[[rules]]\nname = 'voice'\nprotocol = 'udp'\nport = 5000\nup = { loss = '100%' }";
    let Run { summary, said, .. } = Run::of(link, script)?;
    let up = &summary.up;
    let [voice] = &up.rules[..] else {
        anyhow::bail!("{summary:?}")
    };
    ensure!(voice.name == "voice", "{summary:?}{said}");
    ensure!(voice.packets == 5, "{summary:?}{said}");
    ensure!(voice.delivered == 0, "{summary:?}");
    ensure!(voice.dropped.get("loss") == Some(&5), "{summary:?}");
    ensure!(up.packets >= 10 && up.lost() == 5, "{summary:?}");
    Ok(())
}

#[test_support::test(Namespaces, Tool("ping"))]
fn a_gate_opens_when_its_schedule_says_so() -> Result<()> {
    let link = "[[stages]]\nkind = 'gate'\nopen = false\ndirection = 'up'\nschedule = [{ at = '1s', open = true }]";
    let script = "ping -n -c 5 -i 0.1 -W 10 10.77.0.2";
    let run = Run::of(link, script)?;
    let said = &run.said;
    has(said, "5 received")?;
    let mut opened = None;
    for (arrival, due) in run.times_up()? {
        // All waiting packets leave at one instant, and none waits after it.
        let opened = *opened.get_or_insert(due);
        ensure!(due == arrival.max(opened), "{due} in {}", run.packet_log);
    }
    ensure!(opened.is_some(), "{}", run.packet_log);
    Ok(())
}

#[test_support::test(serial, each(far_ends_of_effects()), Namespaces, Tool("ping"))]
fn losses_by_state_number_and_bits_are_those_asked_for(address: &str) -> Result<()> {
    let four_state = "kind = 'four-state'\np13 = '100%'\np31 = '0%'\np32 = '100%'";
    let cases = [
        (four_state, "loss delivered loss delivered loss delivered"),
        (
            "kind = 'indexes'\nindexes = [1, 4]",
            "delivered loss delivered delivered loss delivered",
        ),
        // All 11,552 bits are right in only one of 100,000 packets.
        ("kind = 'ber'\nber = 1e-3", "loss loss loss loss loss loss"),
    ];
    for (stage, expected) in cases {
        let script = format!("ping -n -c 6 -i 0.02 -W 1 -s 1400 {address}");
        let run = Run::of(&format!("[[stages]]\n{stage}\ndirection = 'up'"), &script)?;
        let log = &run.packet_log;
        let verdicts: Vec<String> = run.rows_up()?.into_iter().map(|row| row.verdict).collect();
        ensure!(verdicts.join(" ") == expected, "{stage}: {log}");
        let lost = expected.matches("loss").count() as u64;
        ensure!(run.summary.up.lost() == lost, "{:?}", run.summary);
    }
    Ok(())
}

#[test_support::test(serial, each(far_ends_of_effects()), Namespaces, Tool("ping"))]
fn what_can_be_marked_is_not_lost(address: &str) -> Result<()> {
    // One has ECT(0), one has no ECT.
    let script =
        format!("ping -n -c 4 -i 0.02 -W 1 -Q 2 {address}; ping -n -c 3 -i 0.02 -W 1 {address}");
    let link = format!("up = {{ loss = '100%,ecn' }}\n{LONG_ROUND_TRIP}");
    let run = Run::of(&link, &script)?;
    let log = &run.packet_log;
    has(&run.said, "4 received")?;
    has(&run.said, "0 received")?;
    let rows = run.rows_up()?;
    let words: Vec<&str> = rows.iter().map(|row| row.changes.as_str()).collect();
    ensure!(
        words == ["marked", "marked", "marked", "marked", "", "", ""],
        "{log}"
    );
    let up = &run.summary.up;
    ensure!(up.marked == 4 && up.lost() == 3, "{:?}", run.summary);
    Ok(())
}

#[test_support::test(serial, each(far_ends_of_effects()), Namespaces, Tool("ping"))]
fn packets_overtake_each_other_as_they_should(address: &str) -> Result<()> {
    let ping = format!("ping -n -c 9 -i 0.02 {address}");
    let run = Run::of("up = { delay = '50ms', reorder = '100%,gap=3' }", &ping)?;
    let log = &run.packet_log;
    let rows = run.rows_up()?;
    let undelayed = |row: &Row| row.due.is_some_and(|due| due - row.arrival < 50_000_000);
    let undelayed: Vec<bool> = rows.iter().map(undelayed).collect();
    let third = [false, false, true];
    ensure!(undelayed == [third, third, third].concat(), "{log}");

    let probe = format!("$farwire measure probe {address} --quiet -c 200 -i 1ms");
    let stage = "[[stages]]\nkind = 'reorder'\nshare = '10%'\nextent = 2\ntimeout = '10s'\ndirection = 'up'";
    let run = Run::of(stage, &probe)?;
    // Lines are in the order of departure: a packet that left after a later arrival was held back.
    let (mut passed, mut furthest, mut held) = (Vec::new(), 0, 0);
    for (arrival, _) in run.times_up()? {
        if arrival < furthest {
            let overtaken_by = passed.iter().filter(|passed| **passed > arrival).count();
            ensure!(overtaken_by == 2, "{arrival} by {overtaken_by} in {log}");
            held += 1;
        } else {
            passed.push(arrival);
            furthest = arrival;
        }
    }
    ensure!(held > 5 && passed.len() > 150, "{held} held: {}", run.said);
    Ok(())
}

#[test_support::test(serial, each(far_ends_of_effects()), Namespaces, Tool("ping"))]
fn a_copy_comes_later(address: &str) -> Result<()> {
    let script = format!("ping -n -c 5 -i 0.05 {address}");
    let run = Run::of("up = { duplicate = '100%,delay=20ms' }", &script)?;
    let log = &run.packet_log;
    let rows = run.rows_up()?;
    let (copies, originals): (Vec<&Row>, Vec<&Row>) =
        rows.iter().partition(|row| row.changes == "copy");
    // The end of the command may cut off the last packets.
    ensure!(originals.len() == 5 && copies.len() >= 4, "{log}");
    let is_late = |row: &&Row| row.due.is_some_and(|due| due - row.arrival >= 20_000_000);
    ensure!(
        copies
            .iter()
            .filter(|row| row.verdict == "delivered")
            .all(is_late),
        "{log}"
    );
    ensure!(run.said.contains("(DUP!)"), "{}", run.said);
    Ok(())
}

#[test_support::test(serial, each(far_ends_of_effects()), Namespaces, Tool("ping"))]
fn what_is_corrupted_and_repaired_has_a_right_checksum_and_wrong_data(address: &str) -> Result<()> {
    let probe = format!("$farwire measure probe {address} --quiet -c 20 -i 2ms -W 1s");
    let script = format!(
        "ping -n -c 5 -i 0.02 -W 1 -s 1000 -p ff {address}; {probe}; cat /proc/net/snmp /proc/net/snmp6"
    );
    let link = "down = { corrupt = '100%,bits=2,repair' }";
    let Run { said, summary, .. } = Run::of(link, &script)?;
    has(&said, "wrong data byte")?;
    ensure!(wrong_checksums(&said, address)? == (0, 0), "{said}");
    let down = &summary.down;
    ensure!(down.edited == down.delivered, "{summary:?}");
    ensure!(down.edited >= 25, "{summary:?}");
    Ok(())
}
