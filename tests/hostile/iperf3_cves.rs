//! The inputs behind iperf3's published vulnerabilities, against the far end and the client. `docs/iperf3-cves.md` describes
//! the effect of each.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::process::Output;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use socket2::SockRef;

use test_support::far_end::FarEnd;
use test_support::process::{self, farwire, has, stderr};
use test_support::raw::{self, state};
use test_support::suite::Suite;
use test_support::usage::Usage;

/// A vulnerability, the input behind it, and the test.
type Tried = (&'static str, &'static str, fn() -> Result<()>);

/// Each vulnerability, its input, and the test.
const KNOWN: [Tried; 17] = [
    ("CVE-2016-4303", "broken UTF-16 in texts", broken_utf16),
    ("CVE-2016-4303", "the same to a client", || {
        to_client(BROKEN_UTF16, "cannot be read")
    }),
    (
        "CVE-2023-7250",
        "less than was announced",
        less_than_announced,
    ),
    ("CVE-2023-38403", "a length that wraps", || {
        lengths_refused(&[u32::MAX, u32::MAX - 1, 1 << 31])
    }),
    ("CVE-2023-38403", "the same to a client", || {
        to_client_bytes(&u32::MAX.to_be_bytes(), "1 to 262144 are allowed")
    }),
    ("CVE-2024-26306", "an encrypted password", || {
        token_unread(&[&"QUJD".repeat(86)])
    }),
    ("CVE-2024-53580", "values of other types", other_types),
    ("CVE-2024-53580", "the same to a client", || {
        let results = [r#"{"cpu_util_total":"x"}"#, "[]", "null", "7"];
        to_client(&results, "cannot be read")
    }),
    ("CVE-2025-54349", "a password as long as the key", || {
        token_unread(&[&"QUJD".repeat(85), &"QUJD".repeat(171)])
    }),
    ("CVE-2025-54350", "what is not base 64", || {
        token_unread(&["", "=", "====", "*", "QUJ", "QU JD", "\u{0}", "ÄÖÜ"])
    }),
    ("CVE-2025-54351", "datagrams longer than the block", || {
        let counted = udp_test(r#"{"udp":true,"len":16,"skip_rx_copy":true}"#, 60_000)?;
        ensure!(counted["packets"] == 1, "{counted}");
        Ok(())
    }),
    ("CVE-2026-71217", "parameters out of range", out_of_range),
    ("CVE-2026-71218", "the announcement of a long text", || {
        lengths_refused(&[8193, 1 << 20, 1 << 30, (1 << 31) - 1])
    }),
    (
        "CVE-2026-101276",
        "a test that outlasts its limit",
        outlasts_its_limit,
    ),
    ("CVE-2026-101283", "a password longer than the key", || {
        token_unread(&[&"QUJD".repeat(1900)])
    }),
    ("CVE-2026-102253", "a block of no bytes", || {
        let params = r#"{"udp":true,"len":0,"gro":1,"gso":1,"gso_dg_size":0,"gso_bf_size":0}"#;
        let counted = udp_test(params, 16)?;
        ensure!(counted["bytes"] == 16, "{counted}");
        Ok(())
    }),
    ("CVE-2026-102253", "a block of less than none", || {
        params_refused(&[r#"{"udp":true,"len":-16}"#])
    }),
];

/// Escapes without their second half, or without all four digits.
const BROKEN_UTF16: &[&str] = &[
    r#"{"tcp":true,"title":"\ud800"}"#,
    r#"{"tcp":true,"title":"\ud800\ud800"}"#,
    r#"{"tcp":true,"title":"\udc00\ud800"}"#,
    r#"{"tcp":true,"title":"\ud8"}"#,
    r#"{"tcp":true,"congestion":"\u12"#,
    r#"{"tcp":true,"congestion":"\"#,
];
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Half of the time for which the far end waits for a message; it refuses input earlier than that.
const BEFORE_ANY_TIMEOUT: Duration = Duration::from_secs(5);
/// `IERECVPARAMS` and `IESERVERTESTDURATIONEXPIRED` of iperf3, after the state.
const BAD_PARAMETERS: [u8; 9] = [state::SERVER_ERROR, 0, 0, 0, 114, 0, 0, 0, 0];
const TOO_MUCH_MEMORY: [u8; 9] = [state::SERVER_ERROR, 0, 0, 0, 8, 0, 0, 0, 0];
const EXPIRED: [u8; 9] = [state::SERVER_ERROR, 0, 0, 0, 160, 0, 0, 0, 0];

#[test_support::tests]
fn add(suite: &mut Suite) {
    for (cve, input, test) in KNOWN {
        suite.test(format!("{cve}: {input}"), &[], test);
    }
}

/// The page lists exactly the vulnerabilities that are tried here.
#[test_support::test]
fn every_vulnerability_in_the_docs_is_tried() -> Result<()> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/iperf3-cves.md");
    let page = fs::read_to_string(page)?;
    let rows = page.lines().filter_map(|line| line.strip_prefix("| CVE-"));
    let listed = rows.filter_map(|row| Some(format!("CVE-{}", row.split_once(' ')?.0)));
    let tried = KNOWN.iter().map(|(cve, ..)| (*cve).to_owned());
    let (listed, tried): (BTreeSet<_>, BTreeSet<_>) = (listed.collect(), tried.collect());
    ensure!(listed == tried, "listed {listed:?}, tried {tried:?}");
    Ok(())
}

/// Runs `send` against a far end. Afterwards an ordinary client must complete its test, and the far end must keep nothing.
fn to_far_end(options: &[&str], send: impl FnOnce(SocketAddr) -> Result<()>) -> Result<()> {
    let far_end = FarEnd::start(farwire().arg("serve").args(options))?;
    let before = Usage::of_idle_far_end(far_end.pid())?;
    let address = far_end.address("iperf3")?;
    send(address)?;
    completes(address)?;
    before.await_return(far_end.pid()).map(drop)
}

/// Checks that an ordinary client completes its test.
fn completes(address: SocketAddr) -> Result<()> {
    let port = address.port().to_string();
    let mut client = farwire();
    client.args(["measure", "tcp", "127.0.0.1", "-p", &port, "-n", "100K"]);
    process::succeeds(&mut client)?;
    Ok(())
}

/// Opens a control connection that sends a new cookie and `bytes`, and is asked for its parameters.
fn begin(address: SocketAddr, bytes: &[u8]) -> Result<(TcpStream, [u8; 37])> {
    static TESTS: AtomicU64 = AtomicU64::new(0);
    let cookie = raw::cookie(TESTS.fetch_add(1, Ordering::Relaxed));
    let mut control = raw::connect(HERE, address)?;
    control.write_all(&cookie)?;
    control.write_all(bytes)?;
    expect(&mut control, &[state::PARAM_EXCHANGE])?;
    Ok((control, cookie))
}

fn expect(control: &mut TcpStream, states: &[u8]) -> Result<()> {
    for wanted in states {
        let [came] = raw::read(control).with_context(|| format!("state {wanted} was due"))?;
        ensure!(came == *wanted, "state {came} came, {wanted} was due");
    }
    Ok(())
}

/// Checks that these parameters are refused immediately and the connection is closed.
fn refused(address: SocketAddr, bytes: &[u8], answer: [u8; 9]) -> Result<()> {
    let (mut control, _) = begin(address, bytes)?;
    control.set_read_timeout(Some(BEFORE_ANY_TIMEOUT))?;
    let mut came = [0; 9];
    control.read_exact(&mut came).context("a refusal was due")?;
    let sent = String::from_utf8_lossy(bytes);
    ensure!(came == answer, "{came:?} to {sent:?}");
    ensure!(
        raw::rest(&mut control).is_empty(),
        "more than a refusal to {sent:?}"
    );
    Ok(())
}

fn params_refused(texts: &[&str]) -> Result<()> {
    to_far_end(&[], |address| {
        let refuse = |text: &&str| refused(address, &raw::framed(text.as_bytes()), BAD_PARAMETERS);
        texts.iter().try_for_each(refuse)
    })
}

fn lengths_refused(lengths: &[u32]) -> Result<()> {
    to_far_end(&[], |address| {
        let refuse = |length: &u32| refused(address, &length.to_be_bytes(), BAD_PARAMETERS);
        lengths.iter().try_for_each(refuse)
    })
}

fn broken_utf16() -> Result<()> {
    params_refused(BROKEN_UTF16)
}

/// Checks that these parameters are accepted: the far end asks for the streams.
fn understood(address: SocketAddr, params: &Value) -> Result<()> {
    let (mut control, _) = begin(address, &raw::framed(params.to_string().as_bytes()))?;
    expect(&mut control, &[state::CREATE_STREAMS]).with_context(|| params.to_string())
}

/// There is no authentication, so the value of a password changes nothing.
fn token_unread(tokens: &[&str]) -> Result<()> {
    to_far_end(&[], |address| {
        for token in tokens {
            understood(address, &json!({"tcp": true, "authtoken": token}))?;
        }
        Ok(())
    })
}

fn other_types() -> Result<()> {
    to_far_end(&[], |address| {
        for key in [
            "time",
            "num",
            "omit",
            "parallel",
            "len",
            "bandwidth",
            "fqrate",
            "window",
            "MSS",
            "TOS",
        ] {
            for value in [json!("1"), json!([]), json!({}), json!(true), json!(1.5)] {
                let params = json!({"tcp": true, key: value}).to_string();
                refused(address, &raw::framed(params.as_bytes()), BAD_PARAMETERS)?;
            }
        }
        for key in [
            "tcp",
            "udp",
            "reverse",
            "bidirectional",
            "nodelay",
            "congestion",
        ] {
            for value in [json!([]), json!({}), json!(1.5), Value::Null] {
                let params = json!({"sctp": true, key: value}).to_string();
                refused(address, &raw::framed(params.as_bytes()), BAD_PARAMETERS)?;
            }
        }
        for text in ["null", "7", "\"\"", "[]", "[{}]", "", "{"] {
            refused(address, &raw::framed(text.as_bytes()), BAD_PARAMETERS)?;
        }
        // Ignored keys may have any type.
        for key in [
            "authtoken",
            "title",
            "extra_data",
            "client_version",
            "server_affinity",
        ] {
            understood(address, &json!({"tcp": true, key: [{}]}))?;
        }
        Ok(())
    })
}

fn out_of_range() -> Result<()> {
    to_far_end(&[], |address| {
        for (key, value) in [
            ("parallel", json!(0)),
            ("parallel", json!(-1)),
            ("parallel", json!(129)),
            ("parallel", json!(1 << 31)),
            ("parallel", json!(1e300)),
            ("len", json!(-1)),
            ("len", json!((1 << 20) + 1)),
            ("len", json!(1_u64 << 40)),
            ("window", json!(-1)),
            ("window", json!((512 << 20) + 1)),
            ("MSS", json!(1 << 16)),
            ("time", json!(-1)),
            ("time", json!(86_401)),
            ("omit", json!(601)),
            ("num", json!(-2)),
            ("TOS", json!(256)),
        ] {
            let params = json!({"tcp": true, key: value}).to_string();
            refused(address, &raw::framed(params.as_bytes()), BAD_PARAMETERS)?;
        }
        // Each is within its range, but together they exceed what a test may have.
        let params = json!({"tcp": true, "parallel": 128, "window": 512 << 20}).to_string();
        refused(address, &raw::framed(params.as_bytes()), TOO_MUCH_MEMORY)
    })
}

/// Clients that stop in the middle of a message delay no others, and are disconnected.
fn less_than_announced() -> Result<()> {
    to_far_end(&["--idle-timeout", "5s"], |address| {
        // The cookies differ from those of other tests.
        let other = |number: u64| raw::cookie(1000 + number);
        let length = [&other(1)[..], &[0, 0]].concat();
        let text = [&other(2)[..], &[0, 0, 0, 100], b"{\"tcp\":"].concat();
        let mut held = Vec::new();
        for words in [&b""[..], &other(0)[..36], &length, &text] {
            let mut client = raw::connect(HERE, address)?;
            client.write_all(words)?;
            held.push(client);
        }
        // Stop in the middle of the results.
        let (mut control, cookie) = begin(address, &raw::framed(br#"{"tcp":true,"num":1000}"#))?;
        expect(&mut control, &[state::CREATE_STREAMS])?;
        let mut stream = raw::connect(HERE, address)?;
        stream.write_all(&cookie)?;
        expect(&mut control, &[state::TEST_START, state::TEST_RUNNING])?;
        control.write_all(&[state::TEST_END])?;
        expect(&mut control, &[state::EXCHANGE_RESULTS])?;
        control.write_all(&[0, 0, 1, 0, b'{'])?;
        held.push(control);
        completes(address)?;
        for mut client in held {
            let mut rest = Vec::new();
            let ended = client.read_to_end(&mut rest);
            ensure!(
                ended.is_ok(),
                "it is waited for without end: {ended:?} after {rest:?}"
            );
        }
        Ok(())
    })
}

/// The far end writes to streams that nobody reads, until its time limit for the test is over.
fn outlasts_its_limit() -> Result<()> {
    let params = br#"{"tcp":true,"reverse":true,"num":1000000000000,"parallel":4}"#;
    to_far_end(&["--max-duration", "1s"], |address| {
        let (mut control, cookie) = begin(address, &raw::framed(params))?;
        expect(&mut control, &[state::CREATE_STREAMS])?;
        let mut streams = Vec::new();
        for _ in 0..4 {
            let mut stream = raw::connect(HERE, address)?;
            stream.write_all(&cookie)?;
            streams.push(stream);
        }
        expect(&mut control, &[state::TEST_START, state::TEST_RUNNING])?;
        let came = raw::rest(&mut control);
        ensure!(came == EXPIRED, "{came:?}");
        Ok(())
    })
}

/// Runs a UDP test with these parameters and one datagram of `size` bytes; returns the far end's results for the stream.
fn udp_test(params: &str, size: usize) -> Result<Value> {
    let mut counted = Value::Null;
    to_far_end(&[], |address| {
        let (mut control, _) = begin(address, &raw::framed(params.as_bytes()))?;
        expect(&mut control, &[state::CREATE_STREAMS])?;
        let stream = greet(address)?;
        expect(&mut control, &[state::TEST_START, state::TEST_RUNNING])?;
        let mut datagram = vec![0; size];
        // The header: seconds, microseconds, number.
        datagram[11] = 1;
        stream.send(&datagram)?;
        control.write_all(&[state::TEST_END])?;
        expect(&mut control, &[state::EXCHANGE_RESULTS])?;
        let results = json!({
            "cpu_util_total": 0, "cpu_util_user": 0, "cpu_util_system": 0,
            "sender_has_retransmits": -1,
            "streams": [{"id": 1, "bytes": size, "retransmits": -1, "jitter": 0, "errors": 0,
                "packets": 1}],
        });
        control.write_all(&raw::framed(results.to_string().as_bytes()))?;
        let theirs: Value = serde_json::from_str(&raw::read_text(&mut control)?)?;
        expect(&mut control, &[state::DISPLAY_RESULTS])?;
        control.write_all(&[state::DONE])?;
        counted = theirs["streams"][0].clone();
        Ok(())
    })?;
    Ok(counted)
}

/// Opens a UDP stream, as iperf3 3.12 and later do.
fn greet(address: SocketAddr) -> Result<UdpSocket> {
    let stream = raw::datagrams(HERE, address)?;
    stream.send(b"9876")?;
    let mut answer = [0; 4];
    process::uninterrupted(|| stream.recv(&mut answer))?;
    ensure!(&answer == b"6789", "{answer:?} to a greeting");
    Ok(stream)
}

/// Runs a client against a server that sends each of these texts as results; the client must print `words`.
fn to_client(results: &[&str], words: &str) -> Result<()> {
    let send = |text: &&str| to_client_bytes(&raw::framed(text.as_bytes()), words);
    results.iter().try_for_each(send)
}

fn to_client_bytes(results: &[u8], words: &str) -> Result<()> {
    let listener = TcpListener::bind((HERE, 0))?;
    // On Linux this time-out also applies to accept(2).
    SockRef::from(&listener).set_read_timeout(Some(process::PATIENCE))?;
    let port = listener.local_addr()?.port().to_string();
    let output = thread::scope(|scope| {
        let server = scope.spawn(|| serve_once(&listener, results));
        let mut client = farwire();
        client.args(["measure", "tcp", "127.0.0.1", "-p", &port, "-n", "100K"]);
        let output: Result<Output> = process::run(&mut client);
        server.join().expect("the server does not panic")?;
        output
    })?;
    let said = stderr(&output);
    ensure!(output.status.code() == Some(1), "{output:?}");
    has(&said, words)?;
    Ok(())
}

/// Plays an iperf3 server for one test, up to its results.
fn serve_once(listener: &TcpListener, results: &[u8]) -> Result<()> {
    let (mut control, _) = listener.accept()?;
    let _: [u8; 37] = raw::read(&mut control)?;
    control.write_all(&[state::PARAM_EXCHANGE])?;
    raw::read_text(&mut control)?;
    control.write_all(&[state::CREATE_STREAMS])?;
    let (mut stream, _) = listener.accept()?;
    let swallowing = thread::spawn(move || raw::rest(&mut stream));
    control.write_all(&[state::TEST_START, state::TEST_RUNNING])?;
    expect(&mut control, &[state::TEST_END])?;
    control.write_all(&[state::EXCHANGE_RESULTS])?;
    raw::read_text(&mut control)?;
    control.write_all(results)?;
    // Wait for the client's end, which must not depend on the end of this server.
    raw::rest(&mut control);
    drop(swallowing.join());
    Ok(())
}
