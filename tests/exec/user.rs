//! The command runs as the user who started farwire, with rights over its network.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};

use anyhow::{Context, Result, ensure};

use test_support::powerless::farwire_of_ordinary_user;
use test_support::process::{self, has, stdout};

#[test_support::test(OrdinaryUser, Tool("ping"), Tool("ip"), Tool("unshare"))]
fn the_command_is_its_user_with_the_rights_that_tools_of_the_network_need() -> Result<()> {
    let directory = tempfile::tempdir()?;
    fs::set_permissions(directory.path(), Permissions::from_mode(0o777))?;
    let line = "id -u; id -g; touch made; grep -E '^Cap(Eff|Prm|Inh|Amb)' /proc/self/status; \
                ping -q -c 1 10.77.0.2 && ip link set wan mtu 1400 && echo rights; \
                unshare --user --map-root-user id -u";
    let mut exec = farwire_of_ordinary_user();
    exec.args(["exec", "--", "sh", "-c", line]);
    let text = stdout(&process::succeeds(exec.current_dir(directory.path()))?);
    let mut lines = text.lines();
    let mut number = || -> Result<u32> { Ok(lines.next().context("no number")?.parse()?) };
    let [uid, gid] = [number()?, number()?];
    ensure!(uid != 0 && gid != 0, "{text}");
    let made = fs::metadata(directory.path().join("made"))?;
    ensure!((made.uid(), made.gid()) == (uid, gid), "{made:?}");
    // CAP_NET_BIND_SERVICE, CAP_NET_ADMIN and CAP_NET_RAW are the bits 10, 12 and 13 (capabilities(7)).
    let rights = text.matches("\t0000000000003400").count();
    ensure!(rights == 4, "{text}");
    has(&text, "rights\n0\n")
}

#[test_support::test(OrdinaryUser)]
fn with_root_the_command_is_user_0_inside() -> Result<()> {
    let mut exec = farwire_of_ordinary_user();
    exec.args(["exec", "--root", "--", "id", "-u"]);
    ensure!(stdout(&process::succeeds(&mut exec)?) == "0\n");
    Ok(())
}

#[test_support::test(OrdinaryUser)]
fn a_command_behind_a_link_may_use_farwire_itself() -> Result<()> {
    let mut exec = farwire_of_ordinary_user();
    exec.args(["exec", "--", process::program(), "exec", "--", "id", "-u"]);
    let inner = stdout(&process::succeeds(&mut exec)?);
    let mut id = farwire_of_ordinary_user();
    let outer = stdout(&process::succeeds(id.args(["exec", "--", "id", "-u"]))?);
    ensure!(inner == outer && inner != "0\n", "{inner}{outer}");
    Ok(())
}
