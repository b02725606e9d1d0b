//! The profiles that the API offers.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use test_support::api::Exec;

/// A profile as `farwire fit --profile` writes it.
const FITTED: &str = "# The path to 192.0.2.1 on 2026-11-27, as farwire fit measured it\n#\n\
    # [fitted] farwire fit, \"192.0.2.1\", 2026: behind each number is its 95 % interval\n\n\
    [down]\ndelay = \"33ms\" # [fitted] 32.9ms to 33.1ms\n";

#[test_support::test(Namespaces)]
fn the_users_own_profiles_are_offered_and_a_fitted_one_is_put_into_force() -> Result<()> {
    let folder = tempfile::tempdir()?;
    for (name, text) in [
        ("office", FITTED),
        ("mobile", "# Mine\ndelay = \"1ms\"\n"),
        ("wrong", "dely = \"1ms\"\n"),
    ] {
        fs::write(folder.path().join(format!("{name}.toml")), text)?;
    }
    let exec = Exec::start(&format!(
        "--delay 20ms --profiles {}",
        folder.path().display()
    ))?;
    let profiles = exec.get("/v1/profiles")?.body;
    let all = profiles.as_array().context("no list")?;
    let named = |name: &str| {
        let all = all.iter();
        all.filter(|profile| profile["name"] == name)
            .collect::<Vec<&Value>>()
    };
    let sources = ["office", "mobile", "dsl"].map(|name| {
        let found = named(name).into_iter();
        found
            .map(|profile| profile["source"].as_str().unwrap_or_default())
            .collect::<Vec<_>>()
    });
    ensure!(
        sources == [["fitted"], ["own"], ["shipped"]],
        "{profiles:#}"
    );
    ensure!(named("wrong").is_empty(), "{profiles:#}");

    let office = named("office");
    let office = office.first().context("no fitted profile")?;
    let about = "The path to 192.0.2.1 on 2026-11-27, as farwire fit measured it";
    ensure!(office["about"] == about, "{office}");
    let kind = "application/json";
    let body = office["conditions"].to_string();
    let answer = exec.with_body("PUT /v1/links/link", kind, "", &body)?;
    ensure!(answer.status == 200, "{answer:?}");
    let link = exec.link()?;
    ensure!(link["conditions"] == office["conditions"], "{link}");
    ensure!(link["conditions"]["down"]["delay"] == "33ms", "{link}");
    exec.end()
}
