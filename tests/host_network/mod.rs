//! With `--net host`, the command reaches what the host reaches, through the link.

mod browser;
mod quic;
mod soak;

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use netio::netns::NetNs;
use netio::replaced_files::{ReplacedFile, replace_files};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use test_support::far_end::FarEnd;
use test_support::host::{Host, OTHER, serve_names, serve_text, serve_text_at};
use test_support::powerless::farwire_unprivileged;
use test_support::process::{self, ends_with, has, stderr, stdout};
use test_support::wan_box::Summary;

/// The exit code of farwire's own failures.
const FAILED: i32 = 125;

#[test_support::test(HostNetwork, Tool("curl"))]
fn the_loopback_of_the_host_and_other_machines_are_reached_through_the_link() -> Result<()> {
    let host = Host::start(true)?;
    let [v4, v6] = OTHER;
    let near = serve_text(host.own(), "127.0.0.1", "near ")?;
    let near_v6 = serve_text(host.own(), "::1", "near6 ")?;
    let far = serve_text(host.other(), v4, "far ")?;
    let far_v6 = serve_text(host.other(), v6, "far6 ")?;
    let urls = format!(
        "http://host.farwire.internal:{near}/ http://host.farwire.internal:{near_v6}/ \
         http://{v4}:{far}/ http://[{v6}]:{far_v6}/"
    );
    let line = format!("curl -sS -g --max-time 60 -w '%{{time_connect}}\\n' {urls}");
    let output = exec(&host, &["--delay", "20ms"], &line)?;
    let said = stderr(&output);
    ensure!(!said.contains("no default route"), "{said}");
    let text = stdout(&process::succeeded(output)?);
    let answers: Vec<_> = text.lines().map(|line| line.split_once(' ')).collect();
    ensure!(answers.len() == 4, "{text}");
    for (answer, right) in answers.into_iter().zip(["near", "near6", "far", "far6"]) {
        let (served, seconds) = answer.context("no answer")?;
        // A connection takes a round trip, and no packet leaves before it is due.
        ensure!(served == right && seconds.parse::<f64>()? >= 0.04, "{text}");
    }
    Ok(())
}

#[test_support::test(HostNetwork, Tool("ping"))]
fn pings_of_another_machine_are_counted_by_the_link_and_its_loss_is_that_of_ping() -> Result<()> {
    let host = Host::start(false)?;
    // Ping waits two of its round trips for the last answer.
    let line = format!("ping -q -c 40 -i 0.02 -W 5 {}; true", OTHER[0]);
    let link = ["--up-loss", "50%", "--down-delay", "1s"];
    let directory = tempfile::tempdir()?;
    let json = directory.path().join("summary.json");
    let json = json.to_str().context("a path of UTF-8")?;
    let output = exec(&host, &[&link[..], &["--json", json]].concat(), &line);
    let output = process::succeeded(output?)?;
    has(&stderr(&output), "no default route for IPv6")?;
    let text = stdout(&output);
    let summary: Summary = serde_json::from_slice(&fs::read(json)?)?;
    let received = summary.down.delivered;
    ensure!(received > 0 && received < 40, "{summary:?}");
    has(
        &text,
        format!("40 packets transmitted, {received} received"),
    )
}

#[test_support::test(HostNetwork, Root)]
fn a_host_that_allows_no_pings_says_so_at_the_start() -> Result<()> {
    let host = Host::start(false)?;
    let words = "the command can ping only the far end";
    let said = stderr(&process::succeeded(exec(&host, &[], "true")?)?);
    ensure!(!said.contains(words), "{said}");
    host.own()
        .write_sysctl("net/ipv4/ping_group_range", "1 0")?;
    let said = stderr(&process::succeeded(exec(&host, &[], "true")?)?);
    has(&said, words)
}

#[test_support::test(HostNetwork, Tool("curl"))]
fn a_port_of_the_host_is_at_the_commands_localhost_and_crosses_the_link() -> Result<()> {
    let host = Host::start(false)?;
    let port = serve_text(host.own(), "127.0.0.1", "near ")?;
    let line = format!(
        "curl -sS --max-time 60 http://localhost:{port}/ http://127.0.0.1:{port}/; \
         curl -sS --max-time 60 http://localhost:9/ 2>&1"
    );
    let port = port.to_string();
    let options = ["--host-port", port.as_str(), "--json", "-"];
    let output = exec(&host, &options, &line)?;
    let text = stdout(&output);
    has(&text, "near near ")?;
    // Only the port that was named leads to the host.
    has(&text, "port 9")?;
    let summary = text.lines().skip_while(|line| !line.starts_with('{'));
    let summary: Summary = serde_json::from_str(&summary.collect::<String>())?;
    ensure!(summary.up.delivered >= 6, "{summary:?}");
    Ok(())
}

#[test_support::test(HostNetwork, Tool("curl"))]
fn a_service_of_the_host_that_listens_on_v6_alone_is_relayed_where_the_host_has_ipv6() -> Result<()>
{
    let host = Host::start(true)?;
    let port = serve_text(host.own(), "::1", "near6 ")?.to_string();
    let line = format!("curl -sS --max-time 60 http://127.0.0.1:{port}/");
    let output = exec(&host, &["--host-port", port.as_str()], &line)?;
    has(&stdout(&process::succeeded(output)?), "near6 ")?;
    let without = Host::start(false)?;
    let serve = || -> Result<String> {
        let port = serve_text(without.own(), "::1", "near6 ")?;
        Ok(port.to_string())
    };
    let ports = [serve()?, serve()?];
    let options = ports.iter().flat_map(|port| ["--host-port", port]);
    let output = exec(&without, &options.collect::<Vec<_>>(), "true")?;
    let said = stderr(&output);
    for port in ports {
        let words = format!("--host-port {port}: the service of this host listens on ::1 alone");
        has(&said, words)?;
    }
    Ok(())
}

#[test_support::test(HostNetwork, Tool("curl"))]
fn a_service_of_the_host_that_begins_to_listen_on_v6_after_the_start_is_relayed() -> Result<()> {
    let host = Host::start(true)?;
    let mut command = farwire_unprivileged()?;
    command
        .args(["exec", "--net", "host", "--host-port", "8000", "--"])
        .args(["sh", "-c"])
        .arg("echo runs; read go; curl -sS --max-time 60 http://127.0.0.1:8000/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut farwire = host.own().run(|| command.spawn())??;
    let mut runs = [0; 5];
    let output = farwire.stdout.as_mut().context("no output")?;
    output.read_exact(&mut runs)?;
    serve_text_at(host.own(), "[::1]:8000".parse()?, "late ")?;
    let mut input = farwire.stdin.take().context("no input")?;
    input.write_all(b"go\n")?;
    let output = process::succeeded(farwire.wait_with_output()?)?;
    has(&stdout(&output), "late ")
}

#[test_support::test(HostNetwork, Tool("curl"), Tool("python3"))]
fn a_download_over_a_short_queue_says_why_it_is_slow_and_a_long_queue_helps() -> Result<()> {
    let host = Host::start(false)?;
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("large"), vec![0; 1_500_000])?;
    let (mut server, port) = serve_folder(host.own(), "127.0.0.1", folder.path())?;
    let advice = "--down-queue 4MiB";
    for (options, seconds, is_advised) in [
        (&["--down-rate", "5mbit"][..], 3, true),
        (&["--down-rate", "5mbit", "--down-queue", "4MiB"], 60, false),
    ] {
        let line = format!(
            "curl -4 -sS --max-time {seconds} http://host.farwire.internal:{port}/large | wc -c"
        );
        let output = exec(&host, options, &line)?;
        let (said, fetched) = (stderr(&output), stdout(&output));
        ensure!(said.contains(advice) == is_advised, "{options:?}: {said}");
        ensure!(is_advised || fetched.trim() == "1500000", "{fetched}{said}");
    }
    end(&mut server, Signal::SIGKILL)
}

#[test_support::test(HostNetwork, Tool("git"), Tool("python3"), PythonTool("bin/pip"))]
fn git_and_pip_fetch_from_a_server_of_the_host_through_the_link() -> Result<()> {
    let host = Host::start(false)?;
    let directory = tempfile::tempdir()?;
    let prepare = "\
        set -e; export HOME=$PWD GIT_CONFIG_GLOBAL=/dev/null; \
        git init --quiet tree; echo content >tree/file; git -C tree add file; \
        git -C tree -c user.name=a -c user.email=a@example.invalid commit --quiet -m first; \
        git clone --quiet --bare tree repository.git; git -C repository.git update-server-info; \
        mkdir -p simple/sample; cd simple/sample; python3 -c \"$WHEEL\"";
    let wheel = "
import zipfile
info = 'sample-1.0.dist-info/'
with zipfile.ZipFile('sample-1.0-py3-none-any.whl', 'w') as wheel:
    wheel.writestr('sample.py', 'content = 1')
    wheel.writestr(info + 'METADATA', 'Metadata-Version: 2.1\\nName: sample\\nVersion: 1.0\\n')
    wheel.writestr(info + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: test\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')
    wheel.writestr(info + 'RECORD', ''.join(name + ',,\\n' for name in wheel.namelist()))
";
    let mut sh = Command::new("sh");
    sh.args(["-c", prepare]).env("WHEEL", wheel);
    process::succeeds(sh.current_dir(directory.path()))?;
    let (mut server, port) = serve_folder(host.own(), "127.0.0.1", directory.path())?;
    let url = format!("http://host.farwire.internal:{port}");
    let pip = process::python_tool("bin/pip");
    let line = format!(
        "set -e; export HOME=$PWD GIT_CONFIG_GLOBAL=/dev/null; \
         git clone --quiet {url}/repository.git cloned; cat cloned/file; \
         {} install --quiet --isolated --no-cache-dir --disable-pip-version-check --target installed \
         --index-url {url}/simple/ --trusted-host host.farwire.internal sample; cat installed/sample.py",
        pip.display()
    );
    let mut command = farwire_unprivileged()?;
    command.args([
        "exec", "--net", "host", "--delay", "5ms", "--json", "summary",
    ]);
    command.args(["--", "sh", "-c", &line]);
    let output = process::run_in(host.own(), command.current_dir(directory.path()));
    let ended = server.kill().and_then(|()| server.wait());
    let output = process::succeeded(output?)?;
    ended?;
    has(&stdout(&output), "content\ncontent = 1")?;
    let summary = fs::read(directory.path().join("summary"))?;
    let summary: Summary = serde_json::from_slice(&summary)?;
    ensure!(summary.up.delivered > 20, "{summary:?}");
    Ok(())
}

#[test_support::test(HostNetwork, Tool("python3"))]
fn a_port_of_the_command_is_published_on_the_host() -> Result<()> {
    let fetched = fetch_published(&["-p", "8080:80"], &["80"])?;
    has(&fetched, "published")
}

#[test_support::test(HostNetwork, Tool("python3"))]
fn a_port_of_the_commands_localhost_is_published_without_the_link() -> Result<()> {
    let options = ["--loss", "100%", "-p", "8080:localhost:80"];
    let fetched = fetch_published(&options, &["--bind", "127.0.0.1", "80"])?;
    has(&fetched, "published")
}

#[test_support::test(HostNetwork, Tool("getent"))]
fn names_are_looked_up_through_the_link_also_at_a_resolver_of_the_loopback() -> Result<()> {
    for (resolver, is_own) in [("127.0.0.1", true), (OTHER[0], false)] {
        let host = Host::start(false)?;
        let ns = if is_own { host.own() } else { host.other() };
        serve_names(ns, resolver, [198, 51, 100, 7])?;
        let mut command = farwire_unprivileged()?;
        command.args(["exec", "--net", "host", "--json", "-", "--"]);
        command.args(["getent", "ahostsv4", "page.example"]);
        let text = format!("nameserver {resolver}\n");
        let file = ReplacedFile::new(Path::new("/etc/resolv.conf"), text)?;
        replace_files(&mut command, vec![file]);
        let text = stdout(&process::succeeds_in(host.own(), &mut command)?);
        has(&text, "198.51.100.7")?;
        let summary = text.lines().skip_while(|line| !line.starts_with('{'));
        let summary: Summary = serde_json::from_str(&summary.collect::<String>())?;
        ensure!(summary.up.delivered > 0, "{summary:?}");
    }
    Ok(())
}

#[test_support::test(HostNetwork, Tool("getent"))]
fn a_resolver_that_does_not_answer_is_named_when_the_command_fails() -> Result<()> {
    let host = Host::start(false)?;
    let silent = host.own().run(|| UdpSocket::bind("127.0.0.1:53"))??;
    let run = |line: &str| -> Result<Output> {
        let mut command = farwire_unprivileged()?;
        command.args(["exec", "--net", "host", "--", "sh", "-c", line]);
        let text = "nameserver 127.0.0.1\noptions timeout:1 attempts:3\n";
        let file = ReplacedFile::new(Path::new("/etc/resolv.conf"), text)?;
        replace_files(&mut command, vec![file]);
        process::run_in(host.own(), &mut command)
    };
    let words = "no resolver of this host has answered (127.0.0.1)";
    ends_with(&run("getent ahostsv4 page.example")?, 2, words)?;
    let unneeded = stderr(&process::succeeded(run("true")?)?);
    ensure!(!unneeded.contains(words), "{unneeded}");
    // Where nothing listens, the refusal comes immediately, as the failure of the command does.
    drop(silent);
    ends_with(&run("exit 7")?, 7, words).map(drop)
}

#[test_support::test(HostNetwork, Tool("ping"))]
fn the_commands_resolv_conf_is_for_it_alone_and_the_far_end_is_still_there() -> Result<()> {
    let host = Host::start(false)?;
    let before = fs::read_to_string("/etc/hosts")?;
    let line = "grep -c host.farwire.internal /etc/hosts; ping -q -c 1 $FARWIRE_SERVER; \
                ls -d /proc/self/fd";
    let text = stdout(&process::succeeded(exec(&host, &[], line)?)?);
    has(&text, "1\n")?;
    has(&text, "1 received")?;
    has(&text, "/proc/self/fd")?;
    ensure!(fs::read_to_string("/etc/hosts")? == before);
    Ok(())
}

/// A client that tries only the first address would otherwise wait for a service that listens at 127.0.0.1 alone.
#[test_support::test(HostNetwork, Tool("getent"))]
fn the_name_of_the_host_yields_its_ipv4_address_first() -> Result<()> {
    let host = Host::start(true)?;
    let lookup = exec(&host, &[], "getent ahosts host.farwire.internal");
    let text = stdout(&process::succeeded(lookup?)?);
    let mut addresses: Vec<&str> = text
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    addresses.dedup();
    ensure!(addresses == ["10.77.255.1", "fec0:0:0:77::1"], "{text}");
    Ok(())
}

#[test_support::test(
    HostNetwork,
    Root,
    OrdinaryUser,
    Tool("unshare"),
    Tool("setpriv"),
    Tool("curl")
)]
fn a_user_other_than_0_reaches_the_host_as_itself() -> Result<()> {
    let host = Host::start(false)?;
    let port = serve_text(host.own(), "127.0.0.1", "near")?;
    let directory = tempfile::tempdir()?;
    let line = format!("id -u; curl -sS --max-time 60 http://host.farwire.internal:{port}/");
    let mut command = farwire_of_user_1001(directory.path())?;
    command.args(["exec", "--net", "host", "--", "sh", "-c", &line]);
    let output = process::succeeds_in(host.own(), &mut command)?;
    ensure!(stdout(&output) == "1001\nnear", "{output:?}");
    Ok(())
}

#[test_support::test(HostNetwork)]
fn a_host_that_lacks_something_is_refused_with_the_way_round() -> Result<()> {
    let refused = |ns: &NetNs, options: &[&str], path: Option<&Path>, words: &str| {
        let mut command = farwire_unprivileged()?;
        command.args(["exec", "--net", "host"]).args(options);
        if let Some(path) = path {
            command.env("PATH", path);
        }
        command.args(["--", "true"]);
        let output = process::run_in(ns, &mut command)?;
        ends_with(&output, FAILED, words).map(drop)
    };
    let host = Host::start(false)?;
    let own = host.own();
    let empty = tempfile::tempdir()?;
    refused(own, &[], Some(empty.path()), "install the package passt")?;
    let old = empty.path().join("pasta");
    fs::write(&old, "#!/bin/sh\necho '--userns --netns'\n")?;
    fs::set_permissions(&old, fs::Permissions::from_mode(0o755))?;
    let words = "is too old (--userns --netns): it has no option --no-netns-quit";
    refused(own, &[], Some(empty.path()), words)?;
    let mut doctor = farwire_unprivileged()?;
    doctor
        .args(["doctor", "--json", "-"])
        .env("PATH", empty.path());
    let output = process::run_in(own, &mut doctor)?;
    let text = stdout(&output);
    let found: Value = serde_json::from_str(&text)?;
    let checks = found["checks"].as_array().context("no checks")?;
    let pasta = checks.iter().find(|check| check["name"] == "pasta");
    let pasta = pasta.context("no check of pasta")?;
    ensure!(pasta["verdict"] == "degraded", "{pasta}");
    has(pasta["found"].as_str().context("no words")?, words)?;
    let cannot = found["cannot"].as_array().context("no uses")?;
    ensure!(cannot.iter().any(|of| of == "exec --net host"), "{text}");
    let failing = "#!/bin/sh\ncase $1 in --help) exec /usr/bin/pasta --help;; --version) ;; \
                   *) echo no luck; exit 1;; esac\n";
    let real = which::which("pasta")?.display().to_string();
    fs::write(&old, failing.replace("/usr/bin/pasta", &real))?;
    refused(own, &[], Some(empty.path()), "pasta failed: no luck")?;
    refused(&NetNs::create()?, &[], None, "has no default route")?;
    let taken = own.run(|| TcpListener::bind("127.0.0.1:0"))??;
    let at = taken.local_addr()?.port();
    let port = format!("{at}:80");
    let words = format!("-p: another program uses 127.0.0.1:{at}: choose another port");
    refused(own, &["-p", port.as_str()], None, &words)?;
    refused(own, &["-p", "80"], None, "such as 8080:80")?;
    let mut command = farwire_unprivileged()?;
    let output = process::run(command.args(["exec", "--host-port", "80", "--", "true"]))?;
    ends_with(&output, FAILED, "--net").map(drop)
}

#[test_support::test(HostNetwork)]
fn when_pasta_dies_the_command_ends_and_when_farwire_dies_pasta_does() -> Result<()> {
    let host = Host::start(false)?;
    let start = || -> Result<(Child, u32)> {
        let mut command = farwire_unprivileged()?;
        command
            .args(["exec", "--net", "host", "--", "sh", "-c"])
            .arg("echo runs; sleep 600")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = host.own().run(|| command.spawn())??;
        let mut word = [0; 4];
        let stdout = child.stdout.as_mut().context("no output")?;
        stdout.read_exact(&mut word)?;
        let pasta = process::wait_for("pasta", || Ok(pasta_below(child.id())));
        Ok((child, pasta?))
    };
    let (child, pasta) = start()?;
    kill(Pid::from_raw(pasta.try_into()?), Signal::SIGKILL)?;
    ends_with(&child.wait_with_output()?, FAILED, "pasta has ended")?;
    let (mut child, pasta) = start()?;
    end(&mut child, Signal::SIGKILL)?;
    process::wait_for("the end of pasta", || {
        let state = fs::read_to_string(format!("/proc/{pasta}/stat"));
        let is_gone = state.map_or(true, |stat| stat.contains(") Z "));
        Ok(is_gone.then_some(()))
    })
}

#[test_support::test(Namespaces, Tool("ping"), Tool("getent"))]
fn without_it_a_command_that_needs_more_than_the_far_end_is_told_of_it() -> Result<()> {
    let plain = |address: &str| -> Result<String> {
        let mut command = process::farwire();
        command.args(["exec", "--", "ping", "-q", "-c", "1", address]);
        Ok(stderr(&process::run(&mut command)?))
    };
    has(&plain("192.0.2.2")?, "`farwire exec --net host`")?;
    let said = plain("10.77.0.2")?;
    ensure!(!said.contains("--net host"), "{said}");
    let mut lookup = process::farwire();
    lookup.args(["exec", "--", "getent", "ahostsv4", "page.example"]);
    let file = ReplacedFile::new(Path::new("/etc/resolv.conf"), "nameserver 127.0.0.1\n")?;
    replace_files(&mut lookup, vec![file]);
    let said = stderr(&process::run(&mut lookup)?);
    has(
        &said,
        "tried to look up names, but there is no resolver: with `farwire exec --net host`",
    )
}

/// Nobody shapes this path, which sockets of the host carry. The budget does not reach its rate.
#[test_support::test(serial, HostNetwork)]
fn a_path_over_pasta_is_fitted_and_the_link_has_only_what_was_learnt() -> Result<()> {
    let host = Host::start(false)?;
    let mut serve = process::farwire();
    serve.arg("serve");
    let _far_end = host
        .other()
        .run(|| FarEnd::start_where_told(&mut serve))??;
    let directory = tempfile::tempdir()?;
    let line = format!(
        "cd '{}' && '{}' fit {} --time 24s --budget 60mb --no-proof --out pasta --json -",
        directory.path().display(),
        process::program(),
        OTHER[0]
    );
    let output = process::succeeded(exec(&host, &[], &line)?)?;
    let result: Value = serde_json::from_str(&stdout(&output))?;
    let parameters = result["parameters"].as_array().context("no parameters")?;
    let of = |name: &'static str| parameters.iter().filter(move |one| one["name"] == name);
    for delay in of("delay") {
        let ms = delay["value"].as_f64();
        ensure!(ms >= Some(0.0) && ms < Some(10.0), "{delay}");
    }
    let link = fs::read_to_string(directory.path().join("pasta/link.toml"))?;
    let learnt = of("rate")
        .filter(|rate| rate["word"] != "not learnt")
        .count();
    let stated = link.lines().filter(|line| line.starts_with("rate")).count();
    ensure!(
        of("rate").count() == 2 && stated <= learnt,
        "{result}\n{link}"
    );
    Ok(())
}

/// Runs `line` in a shell on the network of `host`, as a user without privileges.
fn exec(host: &Host, options: &[&str], line: &str) -> Result<Output> {
    let mut command = farwire_unprivileged()?;
    command.args(["exec", "--net", "host"]).args(options);
    command.args(["--", "sh", "-c", line]);
    process::run_in(host.own(), &mut command)
}

/// Returns the program under test as user 1001 runs it, whose home is `directory`.
fn farwire_of_user_1001(directory: &Path) -> Result<Command> {
    of_user_1001(directory, process::program())
}

/// Returns a program as user 1001 runs it, whose home is `directory`. On a machine where the device of taps belongs to root
/// alone, as it does without udev, the user gets one for everybody.
fn of_user_1001(directory: &Path, program: impl AsRef<OsStr>) -> Result<Command> {
    const USER: u32 = 1001;
    let script = "mknod $0/tun c 10 200 && chmod 666 $0/tun && mount --bind $0/tun /dev/net/tun && \
                  exec setpriv --reuid 1001 --regid 1001 --clear-groups \"$@\"";
    chown(directory, Some(USER), Some(USER))?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]);
    command.arg(directory).arg(program);
    command.env("HOME", directory).env("TMPDIR", directory);
    Ok(command)
}

/// Serves the files in `folder` at a free port of `address` in `ns` until the process is killed. Returns it and its port.
fn serve_folder(ns: &NetNs, address: &str, folder: &Path) -> Result<(Child, u16)> {
    let script = "
import functools, http.server, sys
files = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1])
server = http.server.ThreadingHTTPServer((sys.argv[2], 0), files)
print(server.server_port, flush=True)
server.serve_forever()
";
    let mut command = Command::new("python3");
    command.args(["-c", script]).arg(folder).arg(address);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(Stdio::null());
    let mut server = ns.run(|| command.spawn())??;
    let stdout = server.stdout.take().context("no output")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    let port = line.trim().parse().context("no port")?;
    Ok((server, port))
}

/// Fetches a page from port 8080 of the host. Behind a link with these options, Python's web server serves it with these
/// arguments.
fn fetch_published(options: &[&str], arguments: &[&str]) -> Result<String> {
    let host = Host::start(false)?;
    let directory = tempfile::tempdir()?;
    fs::write(directory.path().join("page"), "published")?;
    let mut command = farwire_unprivileged()?;
    command
        .args(["exec", "--net", "host"])
        .args(options)
        .args(["--", "python3", "-m", "http.server"])
        .args(arguments)
        .current_dir(directory.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut farwire = host.own().run(|| command.spawn())??;
    let fetched = process::wait_for("the published port", || {
        // The port does not exist before farwire has started. Until the command listens, connections to its address are
        // reset, and those to its localhost wait.
        let fetched = host.own().run(|| fetch("127.0.0.1:8080", "/page"))?;
        Ok(fetched.ok().filter(|text| !text.is_empty()))
    });
    end(&mut farwire, Signal::SIGTERM)?;
    fetched
}

/// Fetches a page, with all headers.
fn fetch(at: &str, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(process::PATIENCE))?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// Sends a signal to a process and waits for its end.
fn end(child: &mut Child, signal: Signal) -> Result<()> {
    kill(Pid::from_raw(child.id().try_into()?), signal)?;
    process::end_of(child).map(drop)
}

/// Returns the descendant of process `ancestor` that is pasta, which is the program passt by another name.
fn pasta_below(ancestor: u32) -> Option<u32> {
    let children = fs::read_to_string(format!("/proc/{ancestor}/task/{ancestor}/children")).ok()?;
    children.split_whitespace().find_map(|child| {
        let child = child.parse().ok()?;
        let own = fs::read_to_string(format!("/proc/{child}/comm")).ok()?;
        if ["pasta", "passt"].iter().any(|name| own.starts_with(name)) {
            Some(child)
        } else {
            pasta_below(child)
        }
    })
}
