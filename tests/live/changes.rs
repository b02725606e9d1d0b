//! Changes take effect, start counters, and revert with their lease.

use std::io::{BufRead as _, BufReader, Write as _};
use std::thread;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use test_support::api::{Answer, Exec, Listening};
use test_support::process;

/// Three pings that are answered, and three that are not.
const PINGS: &str = "ping -q -n -c 3 -i 0.2 -W 20 $FARWIRE_SERVER > /dev/null; echo $?";
const LOST_PINGS: &str = "ping -q -n -c 3 -i 0.2 -W 1 $FARWIRE_SERVER > /dev/null; echo $?";

#[test_support::test(Namespaces, Tool("ping"))]
fn a_loss_that_is_set_is_met_and_its_packets_are_counted_since_then() -> Result<()> {
    let mut exec = Exec::start("--delay 1ms")?;
    ensure!(exec.shell(PINGS)? == "0", "the link lost pings");
    three(&exec, 1, "/up/delivered")?;
    let changed = exec.patch("", r#"{"up": {"loss": "100%"}}"#)?;
    ensure!(changed.status == 200, "{changed:?}");
    ensure!(changed.body["revision"] == 2, "{changed:?}");
    ensure!(changed.head.contains("etag: \"2\""), "{changed:?}");
    ensure!(
        exec.shell(LOST_PINGS)? != "0",
        "pings passed a loss of 100 %"
    );
    let counted = three(&exec, 2, "/up/dropped/loss")?;
    ensure!(counted["up"]["packets"] == 3, "{counted}");
    let back = exec.with_body(
        "PUT /v1/links/link",
        "application/json",
        "\r\nIf-Match: \"2\"",
        r#"{"delay": "1ms"}"#,
    )?;
    ensure!(back.status == 200, "{back:?}");
    ensure!(exec.shell(PINGS)? == "0", "the link still loses pings");
    three(&exec, 3, "/up/delivered")?;
    let history = exec.get("/v1/links/link/history")?.body;
    let says: Option<Vec<&Value>> = history["changes"]
        .as_array()
        .map(|all| all.iter().map(|change| &change["says"]).collect());
    let right = [
        json!("delay 1ms in each direction"),
        json!("delay 1ms in each direction, up loss 100%"),
        json!("delay 1ms in each direction"),
    ];
    ensure!(says == Some(right.iter().collect()), "{history}");
    let delayed = exec.patch("", r#"{"up": {"delay": "30ms"}}"#)?;
    ensure!(delayed.body["revision"] == 4, "{delayed:?}");
    ensure!(exec.shell(PINGS)? == "0", "the link loses pings");
    let counted = three(&exec, 4, "/up/delay/packets")?;
    let mean = |way: &str| counted[way]["delay"]["mean_ms"].as_f64();
    ensure!(mean("up") >= Some(30.0), "{counted}");
    ensure!(mean("down") >= Some(1.0), "{counted}");
    exec.end()
}

#[test_support::test(Namespaces, Tool("ping"))]
fn a_rule_that_is_added_applies_and_its_hits_are_counted() -> Result<()> {
    let mut exec = Exec::start("--delay 1ms")?;
    ensure!(exec.shell(PINGS)? == "0", "the link lost pings");
    let rule = |loss: &str| {
        let rule = json!({"name": "ping", "match": "icmp", "up": {"loss": loss}});
        json!({"rules": [rule]}).to_string()
    };
    let added = exec.patch("", &rule("100%"))?;
    ensure!(added.status == 200, "{added:?}");
    ensure!(exec.shell(LOST_PINGS)? != "0", "the rule did not apply");
    let counted = three(&exec, 2, "/up/rules/0/dropped/loss")?;
    let hits = &counted["up"]["rules"][0];
    ensure!(hits["name"] == "ping" && hits["packets"] == 3, "{counted}");
    let changed = exec.patch("", &rule("0%"))?;
    ensure!(changed.body["revision"] == 3, "{changed:?}");
    ensure!(exec.shell(PINGS)? == "0", "the rule still loses pings");
    three(&exec, 3, "/down/rules/0/packets")?;
    exec.end()
}

#[test_support::test(Namespaces)]
fn set_adds_a_rule_behind_the_others_and_changes_the_one_of_its_name() -> Result<()> {
    let exec = Exec::start("--delay 1ms")?;
    let at = exec.at.to_string();
    for rule in [
        "udp port 53: name=dns loss=5%",
        "tcp: name=web loss=1%",
        "udp port 53: name=dns loss=7%",
    ] {
        let mut set = process::farwire();
        set.args(["set", "link", "--at", &at, "--rule", rule]);
        process::succeeds(set.env_remove("FARWIRE_TOKEN"))?;
    }
    let conditions = exec.link()?["conditions"].clone();
    let rules = json!([
        {"name": "dns", "match": "udp port 53", "loss": "7%"},
        {"name": "web", "match": "tcp", "loss": "1%"},
    ]);
    ensure!(conditions["rules"] == rules, "{conditions}");
    ensure!(conditions["delay"] == "1ms", "{conditions}");
    exec.end()
}

#[test_support::test(Namespaces)]
fn rules_that_several_set_at_the_same_time_are_all_in_force() -> Result<()> {
    const CLIENTS: usize = 8;
    let exec = Exec::start("--delay 1ms")?;
    let at = exec.at.to_string();
    let add = |number: usize| {
        let rule = format!("udp port {}: name=rule-{number} loss=1%", 5000 + number);
        let mut set = process::farwire();
        set.args(["set", "link", "--at", &at, "--rule", &rule]);
        process::succeeds(set.env_remove("FARWIRE_TOKEN"))
    };
    thread::scope(|scope| {
        let add = &add;
        let adding: Vec<_> = (0..CLIENTS)
            .map(|number| scope.spawn(move || add(number)))
            .collect();
        let added = adding
            .into_iter()
            .map(|added| added.join().expect("it does not panic"));
        added.collect::<Result<Vec<_>>>()
    })?;
    let link = exec.link()?;
    let rules = link["conditions"]["rules"].as_array().context("no rules")?;
    let mut names: Vec<&str> = rules
        .iter()
        .filter_map(|rule| rule["name"].as_str())
        .collect();
    names.sort_unstable();
    let all: Vec<String> = (0..CLIENTS)
        .map(|number| format!("rule-{number}"))
        .collect();
    ensure!(names == all, "{link}");
    exec.end()
}

#[test_support::test(Namespaces, Tool("ping"))]
fn hops_are_added_and_removed_while_the_link_runs() -> Result<()> {
    let mut exec = Exec::start("--delay 1ms")?;
    ensure!(exec.shell(PINGS)? == "0", "the link lost pings");
    let far = json!({"name": "far", "delay": "30ms"});
    let hole = json!({"name": "hole", "up": {"loss": "100%"}});
    let hops = |all: &[&Value]| json!({"hops": all}).to_string();
    let added = exec.patch("", &hops(&[&far, &hole]))?;
    ensure!(added.status == 200, "{added:?}");
    ensure!(
        exec.shell(LOST_PINGS)? != "0",
        "pings passed a hop that loses all"
    );
    let counted = three(&exec, 2, "/up/hops/1/dropped/loss")?;
    let dropped = json!([{"name": "far", "dropped": {}}, {"name": "hole", "dropped": {"loss": 3}}]);
    ensure!(counted["up"]["hops"] == dropped, "{counted}");
    ensure!(counted["up"]["dropped"]["loss"] == 3, "{counted}");
    let moved = exec.patch("", &hops(&[&hole, &far]))?;
    ensure!(moved.status == 422, "{moved:?}");
    let field = moved.body["field"].as_str().unwrap_or_default();
    ensure!(field.starts_with("hops["), "{moved:?}");
    let removed = exec.patch("", &hops(&[&far]))?;
    ensure!(removed.body["revision"] == 3, "{removed:?}");
    ensure!(exec.shell(PINGS)? == "0", "the link still loses pings");
    let counted = three(&exec, 3, "/down/delay/packets")?;
    let dropped = json!([{"name": "far", "dropped": {}}, {"name": "hole", "dropped": {}}]);
    ensure!(counted["up"]["hops"] == dropped, "{counted}");
    for way in ["up", "down"] {
        let mean = counted[way]["delay"]["mean_ms"].as_f64();
        ensure!(mean >= Some(31.0), "{counted}");
    }
    let link = exec.link()?;
    let says = "delay 1ms in each direction, hop far (delay 30ms)";
    ensure!(link["says"] == says, "{link}");
    exec.end()
}

#[test_support::test(Namespaces, Tool("ping"))]
fn a_trace_that_is_set_is_followed() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = |name: &str, text: &str| -> Result<String> {
        let path = folder.path().join(name);
        std::fs::write(&path, text)?;
        Ok(path.display().to_string())
    };
    // The test is over long before the trace changes.
    let slow = file("slow.csv", "t,delay\n0s,30ms\n1h,90ms\n2h,\n")?;
    // One packet each millisecond; with its line ends as JSON writes them, the content has more than 64 KiB.
    let times: String = (1..=11_000).map(|ms| format!("{ms}\n")).collect();
    let long = file("long.down", &times)?;
    let mut exec = Exec::start("--delay 1ms")?;
    let at = exec.at.to_string();
    let set = |flag: &str, trace: &str| {
        let mut set = process::farwire();
        set.args(["set", "link", "--at", &at, flag, trace]);
        process::succeeds(set.env_remove("FARWIRE_TOKEN"))
    };
    set("--up-trace", &slow)?;
    ensure!(exec.shell(PINGS)? == "0", "the link loses pings");
    let counted = three(&exec, 2, "/up/delay/packets")?;
    let mean = |way: &str| counted[way]["delay"]["mean_ms"].as_f64();
    ensure!(mean("up") >= Some(30.0), "{counted}");
    ensure!(mean("down") < Some(30.0), "{counted}");
    set("--down-trace", &long)?;
    ensure!(exec.shell(PINGS)? == "0", "the trace lets no ping pass");
    let link = exec.link()?;
    let says = link["says"].as_str().unwrap_or_default();
    ensure!(
        says.contains("slow.csv") && says.contains("long.down"),
        "{link}"
    );
    exec.end()
}

/// Waits until this counter is three since a revision, because the last ping may arrive after ping has ended; returns the counters.
fn three(exec: &Exec, since: u64, of: &str) -> Result<Value> {
    process::wait_for(of, || {
        let counters = format!("/v1/links/link/counters?since={since}");
        let counted = exec.get(&counters)?.body;
        let is_so = counted.pointer(of) == Some(&json!(3));
        Ok(is_so.then_some(counted))
    })
}

#[test_support::test(Namespaces)]
fn of_many_clients_that_change_one_revision_at_once_one_does_and_the_others_get_412() -> Result<()>
{
    let exec = Exec::start("--delay 1ms")?;
    let live: &Listening = &exec;
    for revision in 1..=5 {
        let ask = move |number: u32| {
            let condition = format!("\r\nIf-Match: \"{revision}\"");
            let body = format!(r#"{{"delay": "{number}ms"}}"#);
            let kind = "application/merge-patch+json";
            live.with_body("PATCH /v1/links/link", kind, &condition, &body)
        };
        let answers: Vec<Answer> = thread::scope(|scope| {
            let asking: Vec<_> = (2..10).map(|n| scope.spawn(move || ask(n))).collect();
            let answers = asking
                .into_iter()
                .map(|asked| asked.join().expect("it does not panic"));
            answers.collect::<Result<_>>()
        })?;
        let with = |status| {
            answers
                .iter()
                .filter(|answer| answer.status == status)
                .count()
        };
        ensure!((with(200), with(412)) == (1, 7), "{answers:?}");
    }
    ensure!(exec.link()?["revision"] == 6);
    exec.end()
}

#[test_support::test(Namespaces)]
fn a_dry_run_says_what_would_be_and_changes_nothing() -> Result<()> {
    let exec = Exec::start("--delay 20ms")?;
    let before = exec.link()?;
    let told = exec.patch("?dry_run=1", r#"{"rate": "10mbit"}"#)?.body;
    ensure!(told["dry_run"] == true && told["revision"] == 1, "{told}");
    ensure!(told["implies"]["up"]["bdp_bytes"] == 50_000, "{told}");
    ensure!(exec.link()? == before, "a dry run changed the link");
    exec.end()
}

#[test_support::test(Namespaces)]
fn a_lease_reverts_when_its_connection_ends_and_nobody_else_changes_the_link_before() -> Result<()>
{
    let exec = Exec::start("--delay 20ms")?;
    let before = exec.link()?;
    let body = r#"{"loss": "5%"}"#;
    let mut holder = exec.connect()?;
    write!(
        holder,
        "PATCH /v1/links/link?for=connection HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        exec.at,
        body.len()
    )?;
    let mut lines = BufReader::new(holder.try_clone()?).lines();
    let granted = lines.find(|line| line.as_ref().is_ok_and(|line| line.starts_with('{')));
    let granted: Value = serde_json::from_str(&granted.context("no lease")??)?;
    ensure!(granted["link"]["lease"]["for"] == "connection", "{granted}");
    let id = granted["link"]["lease"]["id"].as_str().context("no id")?;
    let refused = exec.patch("", r#"{"loss": "6%"}"#)?;
    ensure!(refused.status == 409, "{refused:?}");
    let own = exec.with_body(
        "PATCH /v1/links/link",
        "application/json",
        &format!("\r\nFarwire-Lease: {id}"),
        r#"{"loss": "7%"}"#,
    )?;
    ensure!(own.status == 200, "{own:?}");
    // A killed client closes its sockets in this way.
    drop((holder, lines));
    process::wait_for("the link to revert", || {
        let now = exec.link()?;
        Ok((now["conditions"] == before["conditions"]).then_some(()))
    })?;
    ensure!(
        exec.link()?["lease"].is_null(),
        "the lease is still in force"
    );
    exec.end()
}

#[test_support::test(Namespaces)]
fn samples_have_the_conditions_in_force_where_these_change_by_themselves() -> Result<()> {
    let exec = Exec::start("--delay 20ms")?;
    let mut watcher = exec.connect()?;
    write!(
        watcher,
        "GET /v1/links/link/events HTTP/1.1\r\nHost: {}\r\n\r\n",
        exec.at
    )?;
    let mut lines = BufReader::new(watcher).lines();
    let mut next = || -> Result<Value> {
        while let Some(line) = lines.next() {
            if line? == "event: sample" {
                let data = lines.next().context("no data")??;
                return Ok(serde_json::from_str(data.trim_start_matches("data: "))?);
            }
        }
        anyhow::bail!("the events ended")
    };
    let constant = next()?;
    ensure!(constant["up"].get("in_force").is_none(), "{constant}");
    let steps = r#"{"rate": "8mbit", "schedule": [{"at": "1ms", "rate": "4mbit", "loss": "3%"}, {"at": "1h", "loss": "9%"}]}"#;
    let changed = exec.patch("", steps)?;
    ensure!(changed.status == 200, "{changed:?}");
    let changed = loop {
        let sample = next()?;
        if sample["revision"] == 2 {
            break sample;
        }
    };
    for direction in ["up", "down"] {
        let in_force = &changed[direction]["in_force"];
        ensure!(in_force["rate_bit_per_s"] == 4_000_000, "{changed}");
        ensure!(in_force["delay_ms"] == 20.0, "{changed}");
        let loss = in_force["loss_percent"].as_f64().context("no loss")?;
        ensure!((loss - 3.0).abs() < 1e-6, "{changed}");
    }
    exec.end()
}

#[test_support::test(Namespaces)]
fn a_lease_of_a_time_reverts_by_itself_and_events_say_so() -> Result<()> {
    let exec = Exec::start("--delay 20ms")?;
    let mut watcher = exec.connect()?;
    write!(
        watcher,
        "GET /v1/links/link/events HTTP/1.1\r\nHost: {}\r\n\r\n",
        exec.at
    )?;
    let mut lines = BufReader::new(watcher).lines();
    let mut next = |name: &str| -> Result<Value> {
        for line in &mut lines {
            if line? == format!("event: {name}") {
                let data = lines.next().context("no data")??;
                return Ok(serde_json::from_str(data.trim_start_matches("data: "))?);
            }
        }
        anyhow::bail!("the events ended before {name}")
    };
    let sample = next("sample")?;
    ensure!(sample["revision"] == 1, "{sample}");
    let leased = exec.patch("?for=300ms", r#"{"loss": "5%"}"#)?;
    ensure!(leased.status == 200, "{leased:?}");
    let by = |change: &Value| (change["revision"].clone(), change["by"].clone());
    ensure!(
        by(&next("change")?) == (json!(2), json!("api")),
        "the change"
    );
    let reverted = next("change")?;
    ensure!(
        by(&reverted) == (json!(3), json!("lease ended")),
        "{reverted}"
    );
    exec.end()
}
