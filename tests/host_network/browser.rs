//! Chromium with its sandbox, and Firefox, on the host's network behind a link, as an ordinary user runs them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::{end, farwire_of_user_1001, of_user_1001, serve_folder};
use crate::page::browser::Browser;
use test_support::blocks::{self, Block};
use test_support::host::{Host, OTHER, serve_text};
use test_support::powerless;
use test_support::process::{self, farwire, has, ip, stdout, succeeded, succeeds, succeeds_in};
use test_support::wan_box::Summary;

const PAGE: &str = "docs/guides/browser.md";
/// The port of the driver behind the link, and the same one of the host.
const PORT: &str = "9515";
/// The title of the page, and the milliseconds from the request to the first byte of the answer, which a round trip precedes.
const TITLE_AND_ROUND_TRIP: &str = "
    const [page] = performance.getEntriesByType('navigation');
    return [document.title, page.responseStart - page.requestStart];";
/// The greatest error of a difference of two times of a page in Chromium, in ms (W3C, "High Resolution Time", section 7).
const CHROMIUM_ERROR_MS: f64 = 0.2;
/// The same in Firefox: each time is rounded to 1 ms, and varied within that (its preferences `privacy.reduceTimerPrecision` and
/// `privacy.resistFingerprinting.reduceTimerPrecision.jitter`).
const FIREFOX_ERROR_MS: f64 = 2.0;

/// Starts Chromium and its driver behind a link with these options, on the network of the calling thread.
fn browser_behind(directory: &Path, options: &[&str], arguments: &[&str]) -> Result<Browser> {
    let mut driver = farwire_of_user_1001(directory)?;
    let port = format!("{PORT}:localhost:{PORT}");
    driver.args(["exec", "--net", "host", "-p", &port]);
    driver.args(options).args(["--", "chromedriver"]);
    driver.arg(format!("--port={PORT}"));
    Browser::by(driver, directory, arguments)
}

/// Opens the pages at `urls`, which have the title `shop`, over the link of the API at `at` with one delay and then with another
/// one. Each answer must take a round trip, except for the error of the browser's times.
fn opens_pages_while_the_link_changes(
    browser: &Browser,
    at: &str,
    urls: &[String],
    error_ms: f64,
) -> Result<()> {
    for (delay, least_ms) in [("20ms", 40.0), ("60ms", 120.0)] {
        succeeds(farwire().args(["set", "link", "--at", at, "--delay", delay]))?;
        for url in urls {
            // Another address each time, so that no cache answers.
            browser.open(&format!("{url}?{delay}"))?;
            let found = browser.run(TITLE_AND_ROUND_TRIP)?;
            let took = found[1].as_f64().context("no time")?;
            ensure!(
                found[0] == "shop" && took >= least_ms - error_ms,
                "{url} with a delay of {delay}: {found}"
            );
        }
    }
    Ok(())
}

#[test_support::test(
    HostNetwork,
    Root,
    OrdinaryUser,
    Tool("unshare"),
    Tool("setpriv"),
    Tool("python3"),
    Tool("chromium"),
    Tool("chromedriver")
)]
fn chromium_in_its_sandbox_loads_pages_through_a_link_that_is_changed_meanwhile() -> Result<()> {
    let host = Host::start(false)?;
    let pages = shop("page.html")?;
    let (mut near, near_port) = serve_folder(host.own(), "127.0.0.1", pages.path())?;
    let (mut far, far_port) = serve_folder(host.other(), OTHER[0], pages.path())?;
    let urls = [
        format!("http://host.farwire.internal:{near_port}/page.html"),
        format!("http://{}:{far_port}/page.html", OTHER[0]),
    ];
    let directory = tempfile::tempdir()?;
    let at = format!("unix:{}", directory.path().join("socket").display());
    let tried = host.own().run(|| -> Result<()> {
        let options = ["--delay", "20ms", "--listen", &at];
        let browser = browser_behind(directory.path(), &options, &["--disable-quic"])?;
        opens_pages_while_the_link_changes(&browser, &at, &urls, CHROMIUM_ERROR_MS)?;
        browser.end()
    });
    for server in [&mut near, &mut far] {
        server.kill()?;
        server.wait()?;
    }
    tried?
}

/// Returns a folder with a page of this name, whose title is `shop`.
fn shop(name: &str) -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join(name), "<title>shop</title>")?;
    Ok(folder)
}

/// Writes `text` to a program that everybody may run.
fn write_program(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text)?;
    let everybody = fs::Permissions::from_mode(0o755);
    Ok(fs::set_permissions(path, everybody)?)
}

#[test_support::test(
    All,
    HostNetwork,
    Root,
    OrdinaryUser,
    Tool("unshare"),
    Tool("setpriv"),
    Tool("firefox-esr")
)]
fn firefox_with_a_new_profile_opens_a_page_behind_the_link() -> Result<()> {
    let host = Host::start(false)?;
    let port = serve_text(host.own(), "127.0.0.1", "shop")?;
    let directory = tempfile::tempdir()?;
    let [picture, json] = ["picture.png", "summary"].map(|name| directory.path().join(name));
    let line =
        r#"firefox-esr --headless --no-remote --profile "$(mktemp -d)" --screenshot "$0" "$1""#;
    let mut command = farwire_of_user_1001(directory.path())?;
    command.args(["exec", "--net", "host", "--rule"]);
    command.arg(format!("tcp port {port}: delay=5ms"));
    command.arg("--json").arg(&json);
    command.args(["--", "sh", "-c", line]).arg(&picture);
    command.arg(format!("http://host.farwire.internal:{port}/"));
    succeeds_in(host.own(), &mut command)?;
    let summary: Summary = serde_json::from_slice(&fs::read(json)?)?;
    let rules = &summary.up.rules;
    // These are the packets of a handshake, of a request and of its acknowledgement.
    let is_asked = rules.len() == 1 && rules[0].delivered >= 4;
    ensure!(is_asked && picture.is_file(), "{summary:?}");
    Ok(())
}

#[test_support::test(
    All,
    HostNetwork,
    Root,
    OrdinaryUser,
    Tool("unshare"),
    Tool("setpriv"),
    Tool("python3"),
    Tool("firefox-esr"),
    Peer("geckodriver")
)]
fn firefox_loads_a_page_through_a_link_that_is_changed_meanwhile() -> Result<()> {
    let host = Host::start(false)?;
    let pages = shop("page.html")?;
    let (mut server, port) = serve_folder(host.own(), "127.0.0.1", pages.path())?;
    let urls = [format!("http://host.farwire.internal:{port}/page.html")];
    let directory = tempfile::tempdir()?;
    let at = format!("unix:{}", directory.path().join("socket").display());
    let slow = directory.path().join("slow-firefox");
    let link = format!("--delay 20ms --listen '{at}' -p 2828:localhost:2828");
    let exec = format!("'{}' exec --net host {link}", process::program());
    write_program(
        &slow,
        &format!("#!/bin/sh\nexec {exec} -- firefox-esr \"$@\"\n"),
    )?;
    let tried = host.own().run(|| -> Result<()> {
        let mut driver = of_user_1001(directory.path(), process::peer("geckodriver"))?;
        driver.args(["--port=0", "--marionette-port=2828"]);
        let browser = Browser::firefox(driver, &slow)?;
        opens_pages_while_the_link_changes(&browser, &at, &urls, FIREFOX_ERROR_MS)?;
        browser.end()
    });
    end(&mut server, Signal::SIGKILL)?;
    tried?
}

/// The test of the page runs as it is, except for the port of its server. It fails unless Firefox waits for a round trip with the delay
/// that was set, and then with the changed one.
#[test_support::test(
    All,
    HostNetwork,
    Tool("python3"),
    Tool("firefox-esr"),
    Peer("geckodriver"),
    PythonTool("bin/pytest"),
    PythonTool("bin/playwright")
)]
fn the_pages_test_with_selenium_sees_both_delays_in_firefox() -> Result<()> {
    let host = Host::start(false)?;
    let directory = shop("index.html")?;
    let (mut server, port) = serve_folder(host.own(), "127.0.0.1", directory.path())?;
    let page = process::root().join(PAGE);
    let blocks = blocks::of(PAGE, &fs::read_to_string(page)?)?;
    for name in ["slow-firefox", "test_firefox.py"] {
        let is_this = |block: &&Block| block.file.as_deref() == Some(name);
        let block = blocks.iter().find(is_this);
        let block = block.with_context(|| format!("{PAGE} has no {name}"))?;
        let text = block.text.replace(":8000/", &format!(":{port}/"));
        write_program(&directory.path().join(name), &text)?;
    }
    let geckodriver = process::peer("geckodriver");
    let programs = [Path::new(process::program()), geckodriver.as_path()];
    let folders = programs.into_iter().filter_map(Path::parent);
    let usual = std::env::var_os("PATH").unwrap_or_default();
    let folders = folders
        .map(Path::to_path_buf)
        .chain(std::env::split_paths(&usual));
    let path = std::env::join_paths(folders)?;
    let mut pytest = powerless::plain_user(process::python_tool("bin/pytest"))?;
    pytest
        .args(["-q", "-p", "no:cacheprovider", "test_firefox.py"])
        .current_dir(directory.path())
        .env("PATH", path)
        .env("PYTHONPATH", process::root().join("python"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("HOME", directory.path());
    let output = process::run_in(host.own(), &mut pytest);
    end(&mut server, Signal::SIGKILL)?;
    has(&stdout(&succeeded(output?)?), "1 passed")
}

/// The function `gathered` returns the description of `peer` with all its addresses.
const GATHERED: &str = "
    const gathered = (peer) => new Promise((done) => {
        const look = () => peer.iceGatheringState === 'complete' && done(peer.localDescription.sdp);
        peer.onicegatheringstatechange = look;
        look();
    });";
/// The number of messages, each of which is longer than half a packet.
const MESSAGES: u64 = 200;

#[test_support::test(
    HostNetwork,
    Root,
    OrdinaryUser,
    Tool("unshare"),
    Tool("setpriv"),
    Tool("ip"),
    Tool("chromium"),
    Tool("chromedriver")
)]
fn messages_of_webrtc_meet_the_loss_of_the_link() -> Result<()> {
    let host = Host::start(false)?;
    // A browser takes the address from which it would reach the internet.
    ip(host.other(), "route add default via 192.0.2.1")?;
    // Its addresses stay addresses: nobody here answers multicast DNS.
    let arguments = ["--disable-features=WebRtcHideLocalIpsWithMdns"];
    let [own, other] = [tempfile::tempdir()?, tempfile::tempdir()?];
    let json = own.path().join("summary.json");
    let options = ["--up-loss", "5%", "--json"];
    let options = [&options[..], &[json.to_str().context("a path of UTF-8")?]].concat();
    let near = host
        .own()
        .run(|| browser_behind(own.path(), &options, &arguments))??;
    let far = host
        .other()
        .run(|| Browser::start_with(other.path(), &arguments))??;
    let of_near = |script: String| -> Result<Value> { host.own().run(|| near.run(&script))? };
    let of_far = |script: String| -> Result<Value> { host.other().run(|| far.run(&script))? };
    let offer = of_near(format!(
        "{GATHERED} return (async () => {{
            window.peer = new RTCPeerConnection();
            window.lossy = peer.createDataChannel('lossy', {{ ordered: false, maxRetransmits: 0 }});
            window.sure = peer.createDataChannel('sure');
            window.opened = Promise.all([lossy, sure].map((channel) =>
                new Promise((done) => {{ channel.onopen = done; }})));
            await peer.setLocalDescription();
            return gathered(peer);
        }})();"
    ))?;
    let answer = of_far(format!(
        "{GATHERED} return (async () => {{
            window.peer = new RTCPeerConnection();
            [window.received, window.isEnded] = [0, false];
            peer.ondatachannel = ({{ channel }}) => {{
                channel.onmessage = () => {{
                    if (channel.label === 'sure') window.isEnded = true; else window.received += 1;
                }};
            }};
            await peer.setRemoteDescription({{ type: 'offer', sdp: {offer} }});
            await peer.setLocalDescription();
            return gathered(peer);
        }})();"
    ))?;
    // The script of a driver has little time, so it only begins this.
    of_near(format!(
        "window.sending = (async () => {{
            await peer.setRemoteDescription({{ type: 'answer', sdp: {answer} }});
            await opened;
            for (let sent = 0; sent < {MESSAGES}; sent++) lossy.send('x'.repeat(1000));
            while (lossy.bufferedAmount > 0) await new Promise((done) => setTimeout(done, 10));
            sure.send('end');
        }})();"
    ))?;
    host.other().run(|| far.wait("window.isEnded"))??;
    let received = of_far("return window.received;".to_owned())?;
    let received = received.as_u64().context("no number")?;
    host.own().run(move || near.end())??;
    host.other().run(move || far.end())??;
    let summary: Summary = serde_json::from_slice(&fs::read(json)?)?;
    let lost = MESSAGES - received;
    // A packet may have parts of several messages, and SCTP gives up all messages in flight when its timer expires.
    ensure!(
        received > 0 && lost > 0 && summary.up.lost() > 0,
        "{received} received: {summary:?}"
    );
    Ok(())
}
