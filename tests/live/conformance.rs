//! The API against its own OpenAPI document, with requests that schemathesis generates from it.

use std::fs;
use std::process::Command;

use anyhow::{Result, ensure};

use test_support::api::Exec;
use test_support::process::{self, stdout};

const SCHEMATHESIS: &str = "bin/schemathesis";

/// The duration of the requests, in seconds.
const LASTS: &str = "40";

/// A request that the document's schemas accept may still be meaningless, such as a queue without a rate (422), or not fit the
/// conditions in force (409, 412), which are checked first.
const CONFIG: &str = "[checks]
positive_data_acceptance.expected-statuses = [\"2xx\", \"401\", \"403\", \"404\", \"409\", \"412\", \"422\"]
negative_data_rejection.expected-statuses = [\"400\", \"401\", \"403\", \"404\", \"405\", \"406\", \"409\", \"412\", \"415\", \"422\", \"429\"]
";

#[test_support::test(Soak, Namespaces, SoakTool(SCHEMATHESIS))]
fn what_the_openapi_document_says_holds_for_every_answer_to_requests_made_up_of_it() -> Result<()> {
    let mut exec = Exec::start("--delay 5ms --rate 100mbit")?;
    let folder = tempfile::tempdir()?;
    let config = folder.path().join("schemathesis.toml");
    fs::write(&config, CONFIG)?;
    let mut schemathesis = Command::new(process::soak_tool(SCHEMATHESIS));
    schemathesis
        .current_dir(folder.path())
        .arg("--config-file")
        .arg(&config)
        .arg("run")
        .arg(format!("http://{}/v1/openapi.json", exec.at))
        // These are streams, which end with their reader.
        .args(["--exclude-operation-id", "follow"])
        .args(["--exclude-operation-id", "capture"])
        .args(["--max-time", LASTS, "--no-color"])
        .args(["--generation-deterministic"]);
    let ran = process::run(&mut schemathesis)?;
    let said = stdout(&ran);
    ensure!(ran.status.success(), "{said}");
    // The API serves as before.
    ensure!(exec.shell("echo on")? == "on");
    exec.end()
}
