//! The privileges of the program while it serves strangers, and those of a command that it starts.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use netio::bed::{Bed, BedConfig};
use netio::sandbox::Capability;
use netio::userns::Privilege;
use serde_json::json;

use test_support::far_end::FarEnd;
use test_support::powerless;
use test_support::process::{self, farwire, has, stderr};
use test_support::wan_box::WanBox;

#[test_support::test]
fn serve_has_no_capability_no_new_privileges_and_a_filter_in_every_thread_while_it_serves()
-> Result<()> {
    serves_confined(farwire())
}

#[test_support::test]
fn so_it_has_when_a_plain_user_runs_it() -> Result<()> {
    serves_confined(powerless::farwire_unprivileged()?)
}

/// The privileges of one thread in /proc: the lines of its status by their names.
type Status = BTreeMap<String, String>;

/// Reads the statuses of all threads of the process `pid`.
fn threads(pid: u32) -> Result<Vec<Status>> {
    let mut all = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end meanwhile.
        if let Ok(status) = fs::read_to_string(task?.path().join("status")) {
            all.push(parse(&status));
        }
    }
    all.retain(|status| !has_ended(status));
    ensure!(!all.is_empty(), "process {pid} has no threads");
    Ok(all)
}

fn parse(status: &str) -> Status {
    let lines = status.lines().filter_map(|line| line.split_once(':'));
    let trimmed = |(name, value): (&str, &str)| (name.to_owned(), value.trim().to_owned());
    lines.map(trimmed).collect()
}

/// Returns whether the thread has ended. The kernel keeps its number a moment longer, but it has no filter any more.
fn has_ended(status: &Status) -> bool {
    let state = status.get("State").map_or("", String::as_str);
    state.starts_with(['Z', 'X'])
}

/// Checks that threads have exactly these capabilities, no_new_privs and a filter.
fn ensure_confined(threads: &[Status], capabilities: &[Capability]) -> Result<()> {
    let bits = capabilities.iter().fold(0, |bits, c| bits | c.bitmask());
    let (kept, none) = (format!("{bits:016x}"), format!("{:016x}", 0));
    for status in threads {
        for (name, wanted) in [
            ("CapEff", &kept),
            ("CapPrm", &kept),
            ("CapInh", &none),
            ("CapAmb", &none),
            ("NoNewPrivs", &"1".to_owned()),
            ("Seccomp", &"2".to_owned()),
        ] {
            ensure!(
                status.get(name) == Some(wanted),
                "not {name} {wanted}: {status:?}"
            );
        }
    }
    Ok(())
}

/// A download that continues until it is dropped.
fn under_load(far_end: &FarEnd) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(far_end.address("http")?)?;
    stream.write_all(b"GET /seconds/60 HTTP/1.1\r\nHost: x\r\n\r\n")?;
    stream.read_exact(&mut [0; 100_000])?;
    Ok(stream)
}

fn serves_confined(mut command: Command) -> Result<()> {
    let far_end = FarEnd::start(command.arg("serve"))?;
    let _client = under_load(&far_end)?;
    process::succeeds(
        farwire()
            .args(["measure", "tcp", "-t", "1"])
            .arg(address(&far_end, "iperf3")?),
    )?;
    ensure_confined(&threads(far_end.pid())?, &[])
}

#[test_support::test(Root)]
fn as_root_serve_goes_on_as_nobody_or_as_whom_it_is_told_without_roots_groups() -> Result<()> {
    for (option, user) in [
        (None, "nobody"),
        (Some("nobody"), "nobody"),
        (Some("root"), "root"),
    ] {
        let mut command = farwire();
        command.arg("serve");
        if let Some(name) = option {
            command.args(["--user", name]);
        }
        let far_end = FarEnd::start(&mut command)?;
        let known = nix::unistd::User::from_name(user)?.context(user)?;
        let uid = known.uid.as_raw().to_string();
        let all = threads(far_end.pid())?;
        ensure_confined(&all, &[])?;
        for status in &all {
            let uids: Vec<&str> = status["Uid"].split_whitespace().collect();
            ensure!(uids == [uid.as_str(); 4], "not user {user}: {status:?}");
            ensure!(user == "root" || status["Groups"].is_empty(), "{status:?}");
            ensure!(status["CapBnd"] == format!("{:016x}", 0), "{status:?}");
        }
    }
    Ok(())
}

#[test_support::test]
fn serve_keeps_everything_when_it_is_told_so() -> Result<()> {
    let far_end = FarEnd::start(farwire().args(["serve", "--no-sandbox"]))?;
    let own = parse(&fs::read_to_string("/proc/self/status")?);
    for status in threads(far_end.pid())? {
        for name in ["Uid", "CapEff", "NoNewPrivs", "Seccomp"] {
            ensure!(status[name] == own[name], "{name}: {status:?}");
        }
    }
    Ok(())
}

#[test_support::test]
fn serve_tells_the_service_manager_that_it_is_ready_and_goes_on() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let path = directory.path().join("notify");
    let manager = UnixDatagram::bind(&path)?;
    // `serve` may continue as another user.
    for open in [directory.path(), &path] {
        fs::set_permissions(open, fs::Permissions::from_mode(0o777))?;
    }
    let mut command = farwire();
    let far_end = FarEnd::start(command.arg("serve").env("NOTIFY_SOCKET", &path))?;
    let mut said = [0; 256];
    manager.set_read_timeout(Some(process::PATIENCE))?;
    let length = process::uninterrupted(|| manager.recv(&mut said))?;
    let said = String::from_utf8_lossy(&said[..length]);
    has(&said, "READY=1")?;
    let _client = under_load(&far_end)?;
    Ok(())
}

#[test_support::test]
fn a_user_that_is_not_there_is_refused() -> Result<()> {
    let output = process::run(farwire().args(["serve", "--user", "no-such-user"]))?;
    ensure!(output.status.code() == Some(2), "{output:?}");
    ensure!(
        said(&output).contains("`no-such-user`: there is no such user"),
        "{output:?}"
    );
    Ok(())
}

#[test_support::test(Namespaces, Tool("iperf3"))]
fn a_port_that_takes_a_privilege_is_served_by_who_has_dropped_it_udp_too() -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let ports = [
        "--iperf3-port",
        "501",
        "--messages-port",
        "502",
        "--capacity-port",
        "503",
    ];
    let mut command = farwire();
    command
        .arg("serve")
        .args(ports)
        .args(["--http-port", "80", "--stamp-port", "862"]);
    let far_end = bed
        .server()
        .run(|| FarEnd::start_where_told(&mut command))??;
    ensure_confined(
        &threads(far_end.pid())?,
        &[Capability::CAP_NET_BIND_SERVICE],
    )?;
    for line in [
        "iperf3 -c 10.77.0.2 -p 501 -u -b 10M -t 1 -R",
        "iperf3 -c 10.77.0.2 -p 501 -n 1M",
    ] {
        let mut words = line.split(' ');
        let mut client = Command::new(words.next().context("a program")?);
        let output = process::run_in(bed.server(), client.args(words))?;
        ensure!(output.status.success(), "{line}: {output:?}");
    }
    let pingpong = [
        "measure",
        "pingpong",
        "10.77.0.2:502",
        "--udp",
        "--count",
        "3",
    ];
    process::succeeds_in(bed.server(), farwire().args(pingpong))?;
    Ok(())
}

/// Sends a cookie and the parameters like iperf3's client, which itself would refuse earlier (`iperf_api.c`).
#[test_support::test]
fn a_congestion_control_that_the_far_end_does_not_have_is_refused_and_the_kernel_never_asked_for_it()
-> Result<()> {
    let far_end = FarEnd::start(farwire().arg("serve"))?;
    let at: SocketAddr = far_end.address("iperf3")?;
    let mut cookies = 0;
    let mut asks_for = |name: &str| -> Result<Vec<u8>> {
        cookies += 1;
        let mut client = TcpStream::connect(at)?;
        client.set_read_timeout(Some(process::PATIENCE))?;
        client.write_all(format!("{cookies:0>36}\0").as_bytes())?;
        let mut state = [0];
        client.read_exact(&mut state)?;
        ensure!(state == [9], "not PARAM_EXCHANGE but {state:?}");
        let parameters = json!({
            "tcp": true, "omit": 0, "time": 1, "num": 0, "blockcount": 0, "parallel": 1, "reverse": true, "len": 1000,
            "pacing_timer": 1000, "client_version": "3.12", "congestion": name,
        });
        let text = parameters.to_string();
        client.write_all(&u32::try_from(text.len())?.to_be_bytes())?;
        client.write_all(text.as_bytes())?;
        client.read_exact(&mut state)?;
        let mut rest = [0; 8];
        if state == [0xfe] {
            client.read_exact(&mut rest)?;
        }
        Ok([&state[..], &rest].concat())
    };
    // It receives SERVER_ERROR, IESETCONGESTION and ENOENT immediately, before there is a stream.
    let refused = [0xfe, 0, 0, 0, 134, 0, 0, 0, 2];
    for name in ["vegas-stranger", "../../x"] {
        let answer = asks_for(name)?;
        ensure!(answer == refused, "{name}: {answer:?}");
    }
    let allowed = fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control")?;
    for name in allowed.split_whitespace() {
        let answer = asks_for(name)?;
        ensure!(answer[0] == 10, "{name}, not CREATE_STREAMS: {answer:?}");
    }
    Ok(())
}

#[test_support::test(Namespaces, Tool("ping"), Tool("ip"))]
fn emulate_keeps_what_interfaces_take_and_nothing_else_while_it_forwards() -> Result<()> {
    let bed = Bed::build(&BedConfig::default())?;
    let wan = WanBox::start(&bed, "--delay 1ms")?;
    process::succeeds_in(
        bed.client(),
        Command::new("ping").args(["-c1", "10.77.0.2"]),
    )?;
    let all = threads(wan.pid())?;
    ensure!(all.len() > 1, "the forwarder is a thread: {all:?}");
    let mut kept = vec![Capability::CAP_NET_ADMIN, Capability::CAP_NET_RAW];
    // It is needed if RLIMIT_RTPRIO cannot be raised instead, which needs the host's CAP_SYS_RESOURCE.
    let held = u64::from_str_radix(&all[0]["CapEff"], 16)?;
    if held & Capability::CAP_SYS_NICE.bitmask() != 0 {
        kept.push(Capability::CAP_SYS_NICE);
    }
    ensure_confined(&all, &kept)?;
    ensure!(wan.stop()?.up.delivered > 0, "nothing crossed the box");
    Ok(())
}

#[test_support::test(Namespaces)]
fn the_far_end_of_a_test_bed_has_cap_net_admin_alone_and_the_command_what_its_caller_had()
-> Result<()> {
    let directory = tempfile::tempdir()?;
    let pid_file = directory.path().join("go");
    // The command waits until the test has checked its caller's threads.
    let script = format!(
        "while [ ! -e {} ]; do sleep 0.02; done; cat /proc/self/status",
        pid_file.display()
    );
    let child = farwire()
        .args(["exec", "--", "sh", "-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let looked = looked_at(child.id(), &pid_file);
    let output = child.wait_with_output()?;
    looked?;
    let command = parse(std::str::from_utf8(&output.stdout)?);
    ensure!(command["NoNewPrivs"] == "0", "{command:?}");
    ensure!(command["Seccomp"] == "0", "{command:?}");
    let own = parse(&fs::read_to_string("/proc/self/status")?);
    if Privilege::detect() == Privilege::Root {
        for set in ["CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd"] {
            ensure!(command[set] == own[set], "{set}: {command:?}");
        }
    }
    Ok(())
}

/// Checks the threads of `farwire exec` that serve, and lets its command continue.
fn looked_at(pid: u32, go: &Path) -> Result<()> {
    let serving = ["http", "messages", "iperf3", "capacity", "stamp"];
    let found = process::wait_for("the far end", || {
        let all = threads(pid)?;
        let found: Vec<Status> = all
            .into_iter()
            .filter(|status| serving.contains(&status["Name"].as_str()))
            .collect();
        Ok((found.len() == serving.len()).then_some(found))
    });
    fs::write(go, "")?;
    ensure_confined(&found?, &[Capability::CAP_NET_ADMIN])
}

#[test_support::test(Namespaces, Tool("ping"), Tool("iperf3"))]
fn a_plain_users_command_pings_and_sets_any_congestion_control() -> Result<()> {
    for line in [
        "ping -c 1 10.77.0.2",
        "iperf3 -c 10.77.0.2 -n 1M -C cubic",
        "iperf3 -c 10.77.0.2 -n 1M -C cubic -R",
    ] {
        let output = process::run(
            powerless::farwire_unprivileged()?.args(["exec", "--", "sh", "-c", line]),
        )?;
        ensure!(output.status.success(), "{line}: {output:?}");
    }
    Ok(())
}

// As user 0, tcpdump would become another user, whom a user namespace does not have.
#[test_support::test(OrdinaryUser, Tool("tcpdump"), Tool("ping"))]
fn a_plain_users_command_captures_packets() -> Result<()> {
    let line = "tcpdump -c 1 -i any icmp & sleep 0.5; ping -c 3 -i 0.3 10.77.0.2; wait $!";
    process::succeeds(
        powerless::farwire_of_ordinary_user().args(["exec", "--", "sh", "-c", line]),
    )?;
    Ok(())
}

#[test_support::test(Namespaces, Tool("nsenter"))]
fn a_plain_users_command_has_no_privilege_outside() -> Result<()> {
    // The test is in the namespace of farwire's caller.
    let callers = fs::File::open("/proc/self/ns/net")?;
    let line = "nsenter --net=/proc/self/fd/0 true";
    let mut exec = powerless::farwire_unprivileged()?;
    let output = exec
        .args(["exec", "--", "sh", "-c", line])
        .stdin(callers)
        .output()?;
    ensure!(
        !output.status.success(),
        "entered the caller's network: {output:?}"
    );
    ensure!(
        said(&output).contains("Operation not permitted"),
        "{output:?}"
    );
    Ok(())
}

fn address(far_end: &FarEnd, service: &str) -> Result<String> {
    Ok(far_end.address(service)?.to_string())
}

fn said(output: &Output) -> String {
    stderr(output)
}
