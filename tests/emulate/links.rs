//! A box of many links: each has its own interfaces and conditions, and all share one forwarder or several.

mod soak;

use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Lines, PipeReader, Write as _};
use std::net::UdpSocket;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use caps::Capability;
use netio::cpu;
use netio::netns::NetNs;
use nix::fcntl::{FcntlArg, fcntl};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::NamedTempFile;

use test_support::api::{self, Answer, Listening};
use test_support::process::{
    ends_with, farwire, has, ip, run, run_in, stderr, stdout, succeeds_in, uninterrupted, wait_for,
};
use test_support::state::State;
use test_support::wan_box::WanBox;
use test_support::{nft, powerless};

/// A datagram that has not arrived by then is lost: no box here holds one for that long.
const SILENCE: Duration = Duration::from_secs(2);

/// Clients, the interfaces of a box, and servers. Link N is between `xN` and `yN` in the middle; their other ends have the
/// addresses 1 and 2 of a separate network for each link.
pub(super) struct Street {
    clients: NetNs,
    pub(super) middle: NetNs,
    servers: NetNs,
    links: usize,
}

impl Street {
    pub(super) fn build(links: usize) -> Result<Self> {
        let street = Self {
            clients: NetNs::create()?,
            middle: NetNs::create()?,
            servers: NetNs::create()?,
            links,
        };
        let (mut cables, mut up) = (String::new(), String::new());
        let (mut clients, mut servers) = (String::new(), String::new());
        for link in 0..links {
            for (side, far, batch) in [
                ('x', &street.clients, &mut clients),
                ('y', &street.servers, &mut servers),
            ] {
                writeln!(cables, "{}", street.cable(link, side, far))?;
                writeln!(up, "link set {side}{link} up")?;
                writeln!(
                    batch,
                    "{}\nlink set {side}{link} up",
                    own_address(link, side)
                )?;
            }
        }
        for ns in [&street.clients, &street.middle, &street.servers] {
            ns.write_sysctl("net/ipv6/conf/default/disable_ipv6", "1")?;
        }
        batch(&street.middle, &(cables + &up))?;
        batch(&street.clients, &clients)?;
        batch(&street.servers, &servers)?;
        Ok(street)
    }

    fn cable(&self, link: usize, side: char, far: &NetNs) -> String {
        let path = format!(
            "/proc/{}/fd/{}",
            std::process::id(),
            far.as_fd().as_raw_fd()
        );
        format!("link add {side}{link} type veth peer name {side}{link} netns {path}")
    }

    fn states(&self) -> Result<Vec<(String, State)>> {
        let names = (0..self.links).flat_map(|link| ['x', 'y'].map(|side| format!("{side}{link}")));
        names
            .map(|name| Ok((name.clone(), State::of(&self.middle, &name)?)))
            .collect()
    }

    /// Sends datagrams over a link and returns how many arrive.
    fn send(&self, link: usize, count: usize) -> Result<usize> {
        let (client, server) = self.sockets(link)?;
        for _ in 0..count {
            client.send(&[7; 100])?;
        }
        let arrives = |_: &usize| uninterrupted(|| server.recv(&mut [0; 200])).is_ok();
        Ok((0..count).take_while(arrives).count())
    }

    /// Binds a socket at the client's end of a link and one at the server's.
    fn sockets(&self, link: usize) -> Result<(UdpSocket, UdpSocket)> {
        let bind = |ns: &NetNs, number| {
            ns.run(|| UdpSocket::bind((address(link, number), 0)))?
                .map_err(anyhow::Error::from)
        };
        let (client, server) = (bind(&self.clients, 1)?, bind(&self.servers, 2)?);
        server.set_read_timeout(Some(SILENCE))?;
        client.connect(server.local_addr()?)?;
        Ok((client, server))
    }

    /// Sends `count` numbered datagrams over a link and returns the numbers of those that arrive.
    fn numbers(&self, link: usize, count: u32) -> Result<Vec<u32>> {
        let (client, server) = self.sockets(link)?;
        // A datagram of the other direction first, so that no datagram waits for an address.
        server.send_to(&[0], client.local_addr()?)?;
        client.set_read_timeout(Some(SILENCE))?;
        uninterrupted(|| client.recv(&mut [0]))?;
        for number in 0..count {
            // Neighbours of different lengths do not leave together in a train.
            let bytes = [number.to_be_bytes(), [0; 4]].concat();
            client.send(&bytes[..if number % 2 == 0 { 4 } else { 8 }])?;
        }
        server.set_read_timeout(Some(Duration::from_millis(20)))?;
        let (mut arrived, mut bytes) = (Vec::new(), [0; 4]);
        // The link keeps the order. After the last of these datagrams, others follow until one of them arrives.
        for _ in 0..1_000 {
            while uninterrupted(|| server.recv(&mut bytes)).is_ok() {
                match u32::from_be_bytes(bytes) {
                    number if number < count => arrived.push(number),
                    _ => return Ok(arrived),
                }
            }
            client.send(&count.to_be_bytes())?;
        }
        bail!("nothing passes link {link}")
    }

    /// Sends over a link until something arrives, because a carrier settles some time after an interface is up.
    fn await_passage(&self, link: usize) -> Result<()> {
        wait_for(&format!("link {link} to pass something"), || {
            Ok((self.send(link, 1)? == 1).then_some(()))
        })
    }
}

fn address(link: usize, number: usize) -> String {
    format!("10.{}.{}.{number}", 1 + link / 200, link % 200)
}

fn own_address(link: usize, side: char) -> String {
    let number = if side == 'x' { 1 } else { 2 };
    format!("address add {}/24 dev {side}{link}", address(link, number))
}

/// Executes all `lines` with ip(8) in `ns`.
fn batch(ns: &NetNs, lines: &str) -> Result<()> {
    let mut file = NamedTempFile::new()?;
    file.write_all(lines.as_bytes())?;
    ip(ns, &format!("-batch {}", file.path().display())).map(drop)
}

/// Writes a file of links with these conditions.
pub(super) fn file(links: impl IntoIterator<Item = &'static str>) -> Result<NamedTempFile> {
    let mut file = NamedTempFile::new()?;
    for (number, link) in links.into_iter().enumerate() {
        writeln!(
            file,
            "[[links]]\na = 'x{number}'\nb = 'y{number}'\nlink = {{ {link} }}\n"
        )?;
    }
    Ok(file)
}

#[test_support::test(Namespaces, Tool("ip"))]
fn each_of_many_links_has_conditions_counters_and_draws_of_its_own() -> Result<()> {
    let street = Street::build(4)?;
    let half = "loss = '50%', seed = 3";
    let links = file(["delay = '1ms'", half, half, "loss = '100%'"])?;
    let wan = WanBox::start_links(&street.middle, links.path())?;
    let arrived = [
        street.send(0, 100)?,
        street.send(1, 100)?,
        street.send(2, 100)?,
    ];
    ensure!(street.send(3, 5)? == 0 && arrived[0] == 100, "{arrived:?}");
    let told = wan.stop_links()?;
    let delivered = |link: usize| usize::try_from(told[link].up.delivered).unwrap_or(0);
    ensure!(
        (0..3).all(|link| delivered(link) == arrived[link]),
        "{arrived:?}, {told:?}"
    );
    ensure!(
        told.iter().map(|of| of.up.packets).eq([100, 100, 100, 5]),
        "{told:?}"
    );
    ensure!(told[3].up.lost() == 5, "{told:?}");
    ensure!(told.iter().all(|of| of.down.packets == 0), "{told:?}");
    // The links have one seed but different losses: with 100 packets these nearly always differ, and with this seed they do.
    ensure!(arrived[1] != arrived[2], "{arrived:?}");
    Ok(())
}

/// Starts a box whose standard error is a pipe of one page, and kills it as soon as it forwards. Returns the lines that it and its
/// holder write after that.
fn killed_with_a_pipe_of_one_page(street: &Street) -> Result<Lines<BufReader<PipeReader>>> {
    let links = file(vec![""; street.links])?;
    let (reader, writer) = std::io::pipe()?;
    fcntl(&reader, FcntlArg::F_SETPIPE_SZ(4096))?;
    let mut command = farwire();
    command.args(["emulate", "--links"]).arg(links.path());
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(writer);
    let mut wan = street.middle.run(|| command.spawn())??;
    drop(command);
    let mut lines = BufReader::new(reader).lines();
    await_line(&mut lines, "until a signal")?;
    wan.kill()?;
    wan.wait()?;
    Ok(lines)
}

/// Reads lines up to the first one that contains `text`.
fn await_line(lines: &mut Lines<BufReader<PipeReader>>, text: &str) -> Result<()> {
    let found = lines.find(|line| !matches!(line, Ok(line) if !line.contains(text)));
    found.with_context(|| format!("the output ended without `{text}`"))??;
    Ok(())
}

#[test_support::test(Namespaces, Tool("ip"))]
fn the_holder_sets_all_interfaces_down_though_nobody_reads_what_it_says() -> Result<()> {
    let street = Street::build(40)?;
    let _unread = killed_with_a_pipe_of_one_page(&street)?;
    wait_for("all interfaces to be down", || {
        let states = street.states()?;
        Ok(states.iter().all(|(_, state)| !state.is_up()).then_some(()))
    })
}

#[test_support::test(Namespaces, Tool("ip"))]
fn the_holder_has_set_all_interfaces_down_before_its_first_line() -> Result<()> {
    let street = Street::build(40)?;
    let mut lines = killed_with_a_pipe_of_one_page(&street)?;
    await_line(&mut lines, "the emulator has died")?;
    // One request for all interfaces leaves a holder that has not finished no time.
    let up = ip(&street.middle, "-oneline link show up type veth")?;
    ensure!(up.is_empty(), "{up}");
    Ok(())
}

#[test_support::test(Namespaces, Tool("ip"))]
fn each_of_many_links_is_captured_into_a_file_of_its_own() -> Result<()> {
    let street = Street::build(2)?;
    let links = file(["delay = '1ms'", "loss = '100%'"])?;
    let folder = tempfile::tempdir()?;
    let prefix = folder.path().join("seen").display().to_string();
    let options = ["--pcap", &prefix, "--pcap-filter", "udp", "--threads", "2"];
    let wan = WanBox::start_links_with(&street.middle, links.path(), &options)?;
    ensure!(street.send(0, 10)? == 10 && street.send(1, 5)? == 0);
    let told = wan.stop_links()?;
    for (number, expected) in [(10, 10), (5, 0)].into_iter().enumerate() {
        let capture = told[number].capture.as_ref();
        let capture = capture.with_context(|| format!("{told:?}"))?;
        ensure!((capture.a, capture.b) == expected, "{number}: {capture:?}");
        let file = format!("{prefix}-x{number}-y{number}.pcapng");
        let bytes = fs::read(&file).with_context(|| file.clone())?;
        // The magic number of a section header, and both ends by name.
        ensure!(bytes.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]), "{file}");
        for end in ['x', 'y'] {
            let name = format!("{end}{number}");
            let is_it = |part: &[u8]| part == name.as_bytes();
            ensure!(bytes.windows(name.len()).any(is_it), "{file}: no {name}");
        }
    }
    let mut both = farwire();
    both.args(["emulate", "--pcap", "-", "--links"])
        .arg(links.path());
    let refused = run(&mut both)?;
    ends_with(
        &refused,
        2,
        "each link has a file of its own: name a PREFIX",
    )?;
    Ok(())
}

/// One thread has a link, and the other one has two.
#[test_support::test(Namespaces, Tool("ip"))]
fn each_of_many_links_is_logged_in_a_file_of_its_own() -> Result<()> {
    let street = Street::build(3)?;
    let links = file(["delay = '1ms'", "loss = '100%'", ""])?;
    let folder = tempfile::tempdir()?;
    let log = folder.path().join("packets.csv").display().to_string();
    let options = ["--packet-log", &log, "--threads", "2"];
    let wan = WanBox::start_links_with(&street.middle, links.path(), &options)?;
    let arrived = [street.send(0, 10)?, street.send(1, 5)?, street.send(2, 3)?];
    ensure!(arrived == [10, 0, 3], "{arrived:?}");
    let told = wan.stop_links()?;
    let expected = [(10, "delivered"), (5, "loss"), (3, "delivered")];
    for (link, (count, verdict)) in expected.into_iter().enumerate() {
        let file = folder.path().join(format!("packets-x{link}-y{link}.csv"));
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let lines = text.lines().skip(1).count() as u64;
        let summary = told[link].packet_log.as_ref();
        ensure!(
            summary.is_some_and(|of| of.lines == lines),
            "{link}: {summary:?}, {text}"
        );
        let datagrams = text.lines().filter(|row| row.contains(",udp,"));
        ensure!(datagrams.clone().count() == count, "{link}: {text}");
        let source = format!(",udp,{},", address(link, 1));
        for row in datagrams {
            let is_own = row.contains(",up,") && row.contains(&source);
            ensure!(is_own && row.contains(&format!(",{verdict},")), "{row}");
        }
    }
    Ok(())
}

#[test_support::test(Namespaces, Tool("ip"))]
fn the_same_seeds_lose_the_same_packets_whatever_the_number_of_threads() -> Result<()> {
    const COUNT: u32 = 100;
    let street = Street::build(3)?;
    let links = file([
        "up = { loss = '30%' }, seed = 3",
        "up = { loss = '30%' }, seed = 3",
        "up = { loss = '20%,burst=3' }, delay = '2ms', seed = 7",
    ])?;
    let cpu = cpu::allowed()?[0].to_string();
    let pass = |threads: &str| -> Result<(Vec<Vec<u32>>, Vec<u64>)> {
        let options = ["--threads", threads, "--cpus", &cpu];
        let wan = WanBox::start_links_with(&street.middle, links.path(), &options)?;
        let arrived: Vec<_> = (0..3)
            .map(|link| street.numbers(link, COUNT))
            .collect::<Result<_>>()?;
        let names = wan.thread_names()?;
        let forwarders = names.iter().filter(|name| name.starts_with("forwarder"));
        ensure!(forwarders.count().to_string() == threads, "{names:?}");
        let told = wan.stop_links()?;
        // Each link has its own counters, wherever it ran.
        for (link, (of, arrived)) in told.iter().zip(&arrived).enumerate() {
            let after = of.up.packets - u64::from(COUNT);
            let delivered = of.up.delivered;
            ensure!(
                delivered > arrived.len() as u64 && delivered <= arrived.len() as u64 + after,
                "{link}: {of:?}"
            );
            ensure!(of.up.own_losses() == 0, "{link}: {of:?}");
        }
        Ok((arrived, told.iter().map(|of| of.ring_bytes).collect()))
    };
    let (alone, rings) = pass("1")?;
    let shared = rings[0];
    ensure!(rings == [shared; 3]);
    for link in &alone {
        ensure!(link.len() > 40 && link.len() < 98, "{}", link.len());
    }
    ensure!(alone[0] != alone[1]);
    // The two interfaces of a link that is alone on its thread have separate rings.
    for (threads, sets) in [("2", [2, 1, 1]), ("3", [2, 2, 2])] {
        let (arrived, rings) = pass(threads)?;
        ensure!(arrived == alone, "{threads} threads");
        ensure!(rings == sets.map(|sets| sets * shared), "{rings:?}");
    }
    Ok(())
}

/// The flood has fewer frames than the rings hold.
#[test_support::test(Namespaces, Tool("ip"))]
fn quiet_links_beside_a_flooded_one_lose_nothing() -> Result<()> {
    check_between_quiet_links("delay = '1ms'", 12_000, &[])
}

/// All packets of one link become due at the same instant, many times the number that can leave within the limit. A host that
/// runs the forwarder for less than half of the time makes them late instead, and nothing is lost.
#[test_support::test(Namespaces, Tool("ip"))]
fn a_link_that_must_send_too_much_takes_no_packet_of_the_others() -> Result<()> {
    let slot = "stages = [{ kind = 'duplicate', name = 'twice', direction = 'up', duplicate = '100%' }, \
                { kind = 'duplicate', name = 'again', direction = 'up', duplicate = '100%' }, \
                { kind = 'slots', direction = 'up', min = '400ms' }]";
    check_between_quiet_links(slot, 4_000, &["--late-limit", "1ms"])
}

/// Sends `packets` through a link with the conditions `busy`, and meanwhile 100 through each of two others beside it. Checks the losses
/// of the busy link, and that the others lost nothing.
fn check_between_quiet_links(busy: &'static str, packets: u32, options: &[&str]) -> Result<()> {
    let street = Street::build(3)?;
    let links = file(["delay = '1ms'", busy, ""])?;
    let wan = WanBox::start_links_with(&street.middle, links.path(), options)?;
    thread::scope(|scope| -> Result<()> {
        let busy = scope.spawn(|| street.numbers(1, packets));
        for _ in 0..100 {
            ensure!(street.send(0, 1)? == 1 && street.send(2, 1)? == 1);
        }
        busy.join().expect("the sender does not panic").map(drop)
    })?;
    let told = wan.stop_links()?;
    let up = &told[1].up;
    let lost = |cause: &str| {
        let all = up.emulator_lost.iter();
        all.filter(|of| of.cause == cause)
            .map(|of| of.count)
            .sum::<u64>()
    };
    let [late, unread] = ["overload", "intake overload"].map(lost);
    ensure!(late + unread == up.own_losses(), "{up:?}");
    // Frames that the link left in the ring are none of its packets.
    ensure!(
        up.packets + up.copies == up.delivered + late + up.held_at_end,
        "{up:?}"
    );
    for link in [0, 2] {
        let up = &told[link].up;
        ensure!(
            (up.packets, up.delivered, up.own_losses()) == (100, 100, 0),
            "{link}: {up:?}"
        );
    }
    Ok(())
}

#[test_support::test(Namespaces, Tool("ip"))]
fn forty_links_leave_their_interfaces_as_they_were() -> Result<()> {
    let street = Street::build(40)?;
    let before = street.states()?;
    let links = file((0..40).map(|_| "delay = '1ms'"))?;
    let wan = WanBox::start_links(&street.middle, links.path())?;
    ensure!(
        nft::tables(&street.middle)?.len() == 1,
        "one table for all interfaces"
    );
    for link in [0, 27, 39] {
        street.await_passage(link)?;
    }
    let told = wan.stop_links()?;
    ensure!(told.len() == 40 && told[27].up.delivered > 0 && told[28].up.packets == 0);
    ensure!(nft::tables(&street.middle)?.is_empty(), "tables are left");
    for (name, state) in before {
        state.check_same(&street.middle, &name)?;
    }
    Ok(())
}

#[test_support::test(Namespaces, Tool("ip"))]
fn an_interface_of_one_link_of_many_goes_and_comes_back_and_the_others_go_on() -> Result<()> {
    let street = Street::build(3)?;
    let links = file(["", "delay = '1ms'", ""])?;
    let threads = ["--threads", "2"];
    let mut wan = WanBox::start_links_with(&street.middle, links.path(), &threads)?;
    for _ in 0..2 {
        street.await_passage(1)?;
        ip(&street.middle, "link delete x1")?;
        wan.await_line("interface x1 is gone")?;
        ensure!(street.send(0, 3)? == 3 && street.send(2, 3)? == 3);
        batch(&street.middle, &street.cable(1, 'x', &street.clients))?;
        let far = format!("{}\nlink set x1 up", own_address(1, 'x'));
        batch(&street.clients, &far)?;
    }
    street.await_passage(1)?;
    ensure!(street.send(0, 3)? == 3 && street.send(2, 3)? == 3);
    let told = wan.stop_links()?;
    let happened: Vec<_> = told.iter().map(|of| of.interfaces.len()).collect();
    ensure!(happened == [0, 1, 0], "{told:?}");
    let x1 = &told[1].interfaces[0];
    ensure!(
        (x1.name.as_str(), x1.gone, x1.back) == ("x1", 2, 2),
        "{told:?}"
    );
    Ok(())
}

#[test_support::test(Namespaces, Tool("ip"))]
fn a_killed_box_of_many_links_leaves_all_its_interfaces_down_and_restore_puts_them_back()
-> Result<()> {
    let street = Street::build(12)?;
    // An interface with addresses would not be set down.
    let before = street.states()?;
    let links = file((0..12).map(|_| ""))?;
    let threads = ["--threads", "2"];
    let mut wan = WanBox::start_links_with(&street.middle, links.path(), &threads)?;
    let holder = Pid::from_raw(i32::try_from(wan.holder()?)?);
    wan.end_by(Signal::SIGKILL)?;
    wait_for("the box holder to end", || {
        Ok(kill(holder, None).is_err().then_some(()))
    })?;
    for (name, _) in &before {
        let state = State::of(&street.middle, name)?;
        ensure!(!state.is_up(), "{name}: {state:?}");
        ensure!(!state.is_promiscuous(), "{name}: {state:?}");
    }
    ensure!(nft::tables(&street.middle)?.is_empty(), "tables are left");
    succeeds_in(&street.middle, farwire().args(["emulate", "--restore"]))?;
    for (name, state) in before {
        state.check_same(&street.middle, &name)?;
    }
    Ok(())
}

/// Returns the program with the privileges of a box, which do not include raising the hard limit of descriptors.
/// `limits` has the soft and the hard limit.
fn limited(limits: &str) -> Result<Command> {
    let kept = [Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW];
    let farwire = powerless::farwire_with(&kept)?;
    let mut command = Command::new("prlimit");
    command
        .arg(format!("--nofile={limits}"))
        .arg(farwire.get_program())
        .args(farwire.get_args());
    Ok(command)
}

#[test_support::test(Namespaces, Tool("ip"), Tool("prlimit"))]
fn a_box_checks_the_limit_of_descriptors_before_it_changes_anything_and_keeps_none_for_a_link()
-> Result<()> {
    const LINKS: usize = 40;
    let street = Street::build(LINKS)?;
    let before = street.states()?;
    let links = file([""; LINKS])?;
    let folder = tempfile::tempdir()?;
    let mut command = limited("100:100")?;
    command.args(["emulate", "--links"]).arg(links.path());
    command.arg("--pcap").arg(folder.path().join("seen"));
    let refused = run_in(&street.middle, &mut command)?;
    let cause = "this process may have only 100 (RLIMIT_NOFILE): raise the limit";
    ends_with(&refused, 3, cause)?;
    let said = stderr(&refused);
    ensure!(
        said.lines().count() == 1 && said.contains("40 links: "),
        "{said}"
    );
    for (name, state) in before {
        state.check_same(&street.middle, &name)?;
    }
    let created = fs::read_dir(folder.path())?.count();
    ensure!(created == 0, "{created} captures are left");
    let restored = succeeds_in(&street.middle, farwire().args(["emulate", "--restore"]))?;
    has(&stderr(&restored), "there is nothing to restore")?;
    let wan = WanBox::start_links_as(limited("60:4096")?, &street.middle, links.path())?;
    let open = fs::read_dir(format!("/proc/{}/fd", wan.pid()))?.count();
    ensure!(open < LINKS, "{open} descriptors are open");
    wan.stop_links().map(drop)
}

#[test_support::test(Namespaces, Tool("ip"))]
fn the_api_lists_links_in_parts_and_its_metrics_are_sums_or_those_of_one_link() -> Result<()> {
    let street = Street::build(3)?;
    ip(&street.middle, "link set lo up")?;
    let links = file([""; 3])?;
    let mut command = farwire();
    command.args(["emulate", "--links"]).arg(links.path());
    command.args(api::OPEN);
    let live = street.middle.run(|| Listening::start(&mut command))??;
    let get = |path: &str| -> Result<Answer> { street.middle.run(|| live.get(path))? };
    let names = |part: &Answer| -> Vec<String> {
        let listed = part.body["links"].as_array().into_iter().flatten();
        let name = |link: &Value| link["name"].as_str().map(str::to_owned);
        listed.filter_map(name).collect()
    };
    let first = get("/v1/links?limit=2")?;
    ensure!(names(&first) == ["x0-y0", "x1-y1"], "{first:?}");
    ensure!(
        first.body["next"] == 2 && first.body["total"] == 3,
        "{first:?}"
    );
    let rest = get("/v1/links?offset=2&limit=2")?;
    ensure!(
        names(&rest) == ["x2-y2"] && rest.body["next"].is_null(),
        "{rest:?}"
    );
    let found = get("/v1/links?search=X1")?;
    ensure!(
        names(&found) == ["x1-y1"] && found.body["total"] == 1,
        "{found:?}"
    );
    let list = |text: &str| -> Result<Output> {
        let mut command = farwire();
        command.args(["links", "--at", &live.at.to_string(), text]);
        succeeds_in(&street.middle, &mut command)
    };
    let found = stdout(&list("X1")?);
    ensure!(
        found.starts_with("x1-y1: ") && found.lines().count() == 1,
        "{found}"
    );
    // It is one text, not a text and a parameter.
    let none = list("x1&limit=0")?;
    has(&stderr(&none), "no link has `x1&limit=0` in its name")?;
    ensure!(none.stdout.is_empty(), "{none:?}");
    let refused = get("/v1/links?limit=1001")?;
    ensure!(
        refused.status == 400 && refused.body["field"] == "limit",
        "{refused:?}"
    );
    let sums = get("/metrics")?.text;
    has(&sums, "\nfarwire_links 3.0\n")?;
    has(&sums, "\nfarwire_shared_ring_lost_frames_total 0.0\n")?;
    ensure!(!sums.contains("link=\""), "{sums}");
    let one = get("/metrics?link=x1-y1")?.text;
    has(&one, "farwire_run_valid{link=\"x1-y1\"}")?;
    ensure!(!one.contains("x0-y0"), "{one}");
    live.terminate()
}

#[test_support::test(Namespaces, Tool("ip"))]
fn links_that_cannot_be_are_refused_with_their_line_and_nothing_is_changed() -> Result<()> {
    let street = Street::build(2)?;
    let before = street.states()?;
    let try_out = |text: &str, more: &[&str]| -> Result<String> {
        let mut file = NamedTempFile::new()?;
        file.write_all(text.as_bytes())?;
        let mut command = farwire();
        command
            .args(["emulate", "--links"])
            .arg(file.path())
            .args(more);
        let output = run_in(&street.middle, &mut command)?;
        ensure!(output.status.code() == Some(2), "{output:?}");
        Ok(String::from_utf8(output.stderr)?)
    };
    let one = "[[links]]\na = 'x0'\nb = 'y0'\n";
    let said = try_out(&format!("{one}[[links]]\na = 'x1'\nb = 'x0'\n"), &[])?;
    has(&said, ":6: links 2: b: x0 belongs to another link")?;
    let said = try_out(&format!("{one}[[links]]\na = 'x1'\nb = 'y7'\n"), &[])?;
    has(&said, "there is no interface y7")?;
    let said = try_out(one, &["--delay", "1ms"])?;
    has(&said, "--links: the file sets the conditions of each link")?;
    let said = try_out(one, &["--threads", "0"])?;
    has(&said, "write auto or a number from 1 to 256")?;
    let said = try_out(one, &["--cpus", "5000"])?;
    has(
        &said,
        "processor 5000 is not available to farwire: choose from ",
    )?;
    let said = try_out(one, &["--packet-log", "-"])?;
    has(&said, "each link has a file of its own: name a FILE")?;
    // 10 Gbit/s for a second are 1.25 GB in each direction.
    let long = format!("{one}link = {{ rate = '10gbit', delay = '1s' }}\n");
    let said = try_out(&long, &[])?;
    has(&said, "--held-memory 1GiB: rate times delay")?;
    has(&said, "1250000000 bytes")?;
    for (name, state) in before {
        state.check_same(&street.middle, &name)?;
    }
    Ok(())
}
