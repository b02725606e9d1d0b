//! Another instance of this program, as a process that the tests may kill.

use std::ffi::OsString;
use std::io::{BufReader, Read as _};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use farwire_netio::bed::WAN;
use farwire_netio::contain::{self, Contained};
use farwire_netio::iface::Interface;
use farwire_netio::kill_on_drop::KillOnDrop;
use farwire_netio::lease::InterfaceLeases;
use farwire_netio::netns::NetNs;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, poll};

const SUBCOMMAND: &str = "__helper";

/// The line that a helper prints when it is ready and waits to be killed.
pub(crate) const READY: &str = "ready\n";

/// A daemon that prints [`READY`] and then sleeps for a long time.
pub(crate) const DAEMON: &str = "setsid sh -c 'echo ready; exec sleep 1000' &";

/// Time in milliseconds for which the tests wait for an event before they fail.
pub(crate) const TIMEOUT_MS: u16 = 30_000;

/// Runs the helper, if this process was started as one.
pub(crate) fn divert() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [SUBCOMMAND, "contain"] => contain_and_wait(),
        [SUBCOMMAND, "kill-on-drop"] => spawn_in_and_wait(),
        [SUBCOMMAND, "lease", dir] => lease_and_wait(Path::new(dir)),
        _ => {}
    }
}

/// Starts a helper in the namespace of the calling thread and waits until it is ready.
pub(crate) fn start(arguments: &[&str]) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut helper = Command::new("/proc/self/exe")
        .arg(SUBCOMMAND)
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(helper.stdout.take().unwrap());
    wait_ready(&mut output);
    (helper, output)
}

/// Reads the line [`READY`].
pub(crate) fn wait_ready(output: &mut impl std::io::BufRead) {
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert_eq!(line, READY);
}

/// Returns whether nobody holds the other end of `pipe` any longer.
pub(crate) fn is_closed(pipe: &mut (impl std::io::Read + AsFd)) -> bool {
    fcntl(&*pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
    pipe.read_to_end(&mut Vec::new()).is_ok()
}

/// Waits until nobody holds the other end of `pipe` any longer.
pub(crate) fn wait_closed(pipe: OwnedFd) {
    let mut fds = [PollFd::new(pipe.as_fd(), PollFlags::POLLIN)];
    assert_eq!(
        poll(&mut fds, TIMEOUT_MS),
        Ok(1),
        "a process still holds it"
    );
    assert_eq!(fds[0].revents(), Some(PollFlags::POLLHUP));
}

/// Prepares the contained command `argv` in `ns`.
pub(crate) fn command(ns: &NetNs, argv: &[&str]) -> Command {
    let argv: Vec<OsString> = argv.iter().map(OsString::from).collect();
    contain::command(ns, &argv).unwrap()
}

/// Runs `argv` contained in `ns`, and returns its exit code and its output on stdout and stderr.
pub(crate) fn run(ns: &NetNs, argv: &[&str]) -> (i32, String, String) {
    let mut command = command(ns, argv);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut contained = Contained::spawn(&mut command).unwrap();
    let code = contained.wait().unwrap();
    let streams = contained.streams();
    let (mut out, mut err) = (String::new(), String::new());
    let stdout = streams.stdout.as_mut().unwrap();
    stdout.read_to_string(&mut out).unwrap();
    let stderr = streams.stderr.as_mut().unwrap();
    stderr.read_to_string(&mut err).unwrap();
    (code, out, err)
}

fn contain_and_wait() {
    let ns = NetNs::create().unwrap();
    let script = format!("{DAEMON} exec sleep 1000");
    let _contained = Contained::spawn(&mut command(&ns, &["sh", "-c", &script])).unwrap();
    wait_to_be_killed();
}

/// The command itself reports that it is ready, in a namespace other than the caller's.
fn spawn_in_and_wait() {
    let (here, ns) = (NetNs::current().unwrap(), NetNs::create().unwrap());
    let inode = |ns: &NetNs| nix::sys::stat::fstat(ns).unwrap().st_ino;
    let script = format!(
        "[ $(readlink /proc/self/ns/net) = 'net:[{}]' ] && echo ready; exec sleep 1000",
        inode(&ns)
    );
    assert_ne!(inode(&here), inode(&ns));
    let _running = KillOnDrop::spawn_in(&ns, Command::new("sh").args(["-c", &script])).unwrap();
    wait_to_be_killed();
}

fn lease_and_wait(dir: &Path) {
    let leases = InterfaceLeases::in_dir(dir).unwrap();
    let mut lease = leases.take(&Interface::find(WAN).unwrap()).unwrap();
    lease.switch("tx-tcp-segmentation", false).unwrap();
    lease.set_up(false).unwrap();
    print!("{READY}");
    wait_to_be_killed();
}

fn wait_to_be_killed() {
    loop {
        thread::park();
    }
}
