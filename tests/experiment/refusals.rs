//! Bad input ends with 2 and one line that names what is wrong, before anything runs.

use anyhow::{Result, ensure};

use crate::common::far_end::FarEnd;
use crate::common::process::{self, farwire};
use crate::common::suite::{Need, Suite};
use crate::small::{PING, PLAIN, Small, stderr};

pub(crate) fn add(suite: &mut Suite) {
    suite.test(
        "a scenario that is wrong is one error with its place",
        &[],
        || {
            let case = PLAIN.to_owned() + "link = { dealy = '30ms' }\n";
            let cause = "small.toml:13: link: unknown field `dealy`";
            check(&Small::of(&[PING, &case])?.run()?, cause)
        },
    );
    suite.test(
        "a congestion control that is not here ends run before the first run",
        &[Need::Namespaces],
        || {
            let small = Small::of(&[PING, PLAIN])?;
            let text = std::fs::read_to_string(small.path("small.toml"))?;
            let small = Small::written(&text.replace("reno", "warp"))?;
            check(&small.run()?, "congestion control `warp` is not available")?;
            ensure!(!small.path("out").exists(), "something was written");
            Ok(())
        },
    );
    suite.test("-i is bare seconds or a time with a unit", &[], || {
        let far_end = FarEnd::start(farwire().arg("serve"))?;
        let address = far_end.address("http")?.to_string();
        for interval in ["0.001", "1ms"] {
            let mut command = farwire();
            command.args(["measure", "connect", &address]);
            let output = process::run(command.args(["-c", "2", "-q", "-i", interval]))?;
            ensure!(output.status.success(), "{interval}: {output:?}");
        }
        Ok(())
    });
    suite.test("bad input ends with 2 and one line", &[], || {
        let far_end = FarEnd::start(farwire().arg("serve"))?;
        let port = &far_end.address("http")?.port().to_string();
        for (arguments, cause) in [
            (
                &["serve", "--bind", "127.0.0.1", "--http-port", port][..],
                "is in use",
            ),
            (&["measure", "http", "ftp://127.0.0.1/"], "http://HOST"),
            (&["report", "Cargo.toml"], "not a farwire record"),
            (&["run", "nothing.toml"], "nothing.toml: cannot read"),
        ] {
            check(&process::run(farwire().args(arguments))?, cause)?;
        }
        Ok(())
    });
}

fn check(output: &std::process::Output, cause: &str) -> Result<()> {
    let text = stderr(output);
    ensure!(output.status.code() == Some(2), "{}: {text}", output.status);
    ensure!(text.contains(cause) && text.lines().count() == 1, "{text}");
    Ok(())
}
