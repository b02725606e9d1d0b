//! The OpenAPI document: two validators accept it, and a client that is generated from it drives a link.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};

use test_support::api::Exec;
use test_support::process::{self, stderr, stdout};

const SPEC_VALIDATOR: &str = "bin/openapi-spec-validator";
const REDOCLY: &str = "node_modules/.bin/redocly";
const GENERATOR: &str = "bin/openapi-python-client";

/// The generator knows JSON, text and bytes, and formats nothing.
const CONFIG: &str = "content_type_overrides:
  application/x-pcapng: application/octet-stream
  application/toml: text/plain
post_hooks: []
";

/// A program that uses the generated client: it drops everything upward, and reads the link.
const PROGRAM: &str = r#"import sys
from farwire_client import Client
from farwire_client.api.default import history, one, patch
from farwire_client.models.patch_body import PatchBody

client = Client(base_url=sys.argv[1])
loss = PatchBody.from_dict({"up": {"loss": "100%"}})
changed = patch.sync(name="link", client=client, body=loss)
link = one.sync(name="link", client=client)
changes = history.sync(name="link", client=client).changes
missing = one.sync_detailed(name="other", client=client)
print(changed.revision, link.revision, link.says, len(changes), int(missing.status_code), sep="; ")
"#;

fn document() -> PathBuf {
    process::root().join("schema/openapi.json")
}

/// Runs a validator, which must accept the document.
fn accepts(validator: &mut Command) -> Result<()> {
    let ran = process::run(validator)?;
    let said = format!("{}{}", stdout(&ran), stderr(&ran));
    ensure!(ran.status.success(), "{said}");
    Ok(())
}

#[test_support::test(All, FormatTool(SPEC_VALIDATOR))]
fn openapi_spec_validator_accepts_the_document() -> Result<()> {
    accepts(Command::new(process::format_tool(SPEC_VALIDATOR)).arg(document()))
}

#[test_support::test(All, FormatTool(REDOCLY))]
fn redocly_accepts_the_document() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut redocly = Command::new(process::format_tool(REDOCLY));
    redocly
        .current_dir(folder.path())
        .env("REDOCLY_TELEMETRY", "off")
        .env("REDOCLY_SUPPRESS_UPDATE_NOTICE", "true")
        .arg("lint")
        .arg(document());
    accepts(&mut redocly)
}

#[test_support::test(All, Namespaces, FormatTool(GENERATOR))]
fn a_client_that_is_generated_from_the_document_drives_a_link() -> Result<()> {
    let exec = Exec::start("--delay 5ms")?;
    let folder = tempfile::tempdir()?;
    let [config, program] = ["config.yml", "program.py"].map(|name| folder.path().join(name));
    fs::write(&config, CONFIG)?;
    fs::write(&program, PROGRAM)?;
    let mut generator = Command::new(process::format_tool(GENERATOR));
    generator
        .args(["generate", "--fail-on-warning", "--meta", "none", "--path"])
        .arg(document())
        .arg("--config")
        .arg(&config)
        .arg("--output-path")
        .arg(folder.path().join("farwire_client"));
    process::succeeds(&mut generator)?;
    let mut python = Command::new(process::format_tool("bin/python"));
    let url = format!("http://{}", exec.at);
    let ran = process::succeeds(python.arg("-B").arg(&program).arg(url))?;
    let said = stdout(&ran);
    let says = "delay 5ms in each direction, up loss 100%";
    ensure!(said.trim() == format!("2; 2; {says}; 2; 404"), "{said}");
    let link = exec.get("/v1/links/link")?.body;
    ensure!(link["conditions"]["up"]["loss"] == "100%", "{link}");
    exec.end()
}
