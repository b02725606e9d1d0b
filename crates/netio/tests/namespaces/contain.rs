//! Tests of contained commands: how they end, and that nothing of them remains.

use std::io::{BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;

use farwire_netio::contain::Contained;
use farwire_netio::netns::NetNs;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::helper::{self, DAEMON, command, run, wait_ready};

#[test_support::test(serial, Namespaces)]
fn the_exit_code_is_that_of_the_command() {
    let ns = NetNs::create().unwrap();
    assert_eq!(run(&ns, &["true"]).0, 0);
    assert_eq!(run(&ns, &["sh", "-c", "exit 3"]).0, 3);
}

#[test_support::test(serial, Namespaces)]
fn a_fatal_signal_is_reported_as_128_plus_its_number() {
    let ns = NetNs::create().unwrap();
    for (signal, code) in [("TERM", 143), ("KILL", 137), ("INT", 130)] {
        let script = format!("kill -{signal} $$");
        assert_eq!(run(&ns, &["sh", "-c", &script]).0, code);
    }
}

#[test_support::test(serial, Namespaces)]
fn a_command_that_cannot_run_is_named_on_one_line() {
    let ns = NetNs::create().unwrap();
    for (program, code) in [("no-such-command", 127), ("/etc/passwd", 126), ("/", 126)] {
        let (ended, _, err) = run(&ns, &[program]);
        assert_eq!(ended, code, "{err}");
        assert!(err.contains(program), "{err}");
        assert_eq!(err.lines().count(), 1, "{err}");
    }
}

#[test_support::test(serial, Namespaces)]
fn environment_and_streams_reach_the_command() {
    let ns = NetNs::create().unwrap();
    let mut command = command(&ns, &["sh", "-c", "cat; echo $FARWIRE_SERVER"]);
    command.env("FARWIRE_SERVER", "10.77.0.2");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut contained = Contained::spawn(&mut command).unwrap();
    let streams = contained.streams();
    streams.stdin.take().unwrap().write_all(b"in ").unwrap();
    let out = std::io::read_to_string(streams.stdout.take().unwrap()).unwrap();
    assert_eq!(out, "in 10.77.0.2\n");
    assert_eq!(contained.wait().unwrap(), 0);
}

/// The daemon holds the pipe as long as it lives.
#[test_support::test(serial, Namespaces)]
fn a_daemon_dies_with_the_command() {
    let ns = NetNs::create().unwrap();
    let script = format!("({DAEMON}) ; read line");
    let mut command = command(&ns, &["sh", "-c", &script]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut contained = Contained::spawn(&mut command).unwrap();
    let mut output = BufReader::new(contained.streams().stdout.take().unwrap());
    wait_ready(&mut output);

    drop(contained.streams().stdin.take());
    contained.wait().unwrap();
    assert!(helper::is_closed(output.get_mut()));
}

#[test_support::test(serial, Namespaces)]
fn terminate_signals_only_the_command() {
    let ns = NetNs::create().unwrap();
    let script = "trap 'exit 7' TERM; sleep 1000 & echo ready; wait";
    let mut command = command(&ns, &["sh", "-c", script]);
    command.stdout(Stdio::piped());
    let mut contained = Contained::spawn(&mut command).unwrap();
    wait_ready(&mut BufReader::new(
        contained.streams().stdout.take().unwrap(),
    ));
    assert_eq!(contained.try_wait().unwrap(), None);

    contained.terminate();
    assert_eq!(contained.wait().unwrap(), 7);
}

#[test_support::test(serial, Namespaces)]
fn kill_ends_a_command_that_ignores_all_signals() {
    let ns = NetNs::create().unwrap();
    let script = format!("trap '' TERM HUP INT USR1; {DAEMON} sleep 1000");
    let mut command = command(&ns, &["sh", "-c", &script]);
    command.stdout(Stdio::piped());
    let mut contained = Contained::spawn(&mut command).unwrap();
    let mut output = BufReader::new(contained.streams().stdout.take().unwrap());
    wait_ready(&mut output);

    contained.kill();
    assert_eq!(contained.wait().unwrap(), 137);
    assert!(helper::is_closed(output.get_mut()));
}

#[test_support::test(serial, Namespaces)]
fn the_terminals_interrupt_reaches_the_command() {
    let ns = NetNs::create().unwrap();
    let mut command = command(&ns, &["sh", "-c", "echo ready; exec sleep 1000"]);
    // The terminal signals a whole process group, which must not be that of the test.
    command.process_group(0).stdout(Stdio::piped());
    let mut contained = Contained::spawn(&mut command).unwrap();
    wait_ready(&mut BufReader::new(
        contained.streams().stdout.take().unwrap(),
    ));

    let group = Pid::from_raw(contained.pid().try_into().unwrap());
    killpg(group, Signal::SIGINT).unwrap();
    assert_eq!(contained.wait().unwrap(), 130);
}

#[test_support::test(serial, Namespaces)]
fn nothing_survives_a_caller_that_is_killed() {
    let (mut caller, output) = helper::start(&["contain"]);
    caller.kill().unwrap();
    caller.wait().unwrap();
    helper::wait_closed(output.into_inner().into());
}

#[test_support::test(serial, Namespaces)]
fn a_command_in_a_namespace_dies_with_a_caller_that_is_killed() {
    let (mut caller, output) = helper::start(&["kill-on-drop"]);
    caller.kill().unwrap();
    caller.wait().unwrap();
    helper::wait_closed(output.into_inner().into());
}
