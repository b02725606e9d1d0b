//! Tests that privileges are really given up: this program confines itself as a far end or an emulator does, and then
//! tries to use them.

use std::fs;
use std::io::ErrorKind;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::panic;
use std::process::{Command, ExitCode, Output};
use std::sync::mpsc;
use std::thread;

use farwire_netio::sandbox::seccomp::{self, Threads};
use farwire_netio::sandbox::{self, landlock};
use farwire_netio::userns::{self, Privilege};
use libtest_mimic::{Arguments, Failed, Trial};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;

/// The first argument of a process that confines itself and then makes the attempt that the second argument names.
const CONFINED: &str = "__confined";

/// Name of an attempt, and the function that makes it.
type Attempt = (&'static str, fn());

/// Attempts that kill a far end; all except the socket also kill an emulator.
const FORBIDDEN: [Attempt; 8] = [
    ("starting a program", start_a_program),
    ("becoming a program", become_a_program),
    ("forking", fork),
    ("making a namespace", make_a_namespace),
    ("mounting", mount_something),
    ("making memory executable", make_memory_executable),
    ("tracing", trace),
    ("a packet socket", open_a_packet_socket),
];

/// Attempts that must still work in a far end.
const ALLOWED: [Attempt; 4] = [
    ("a panic in a thread, with its backtrace", panic_in_a_thread),
    ("files are out of reach, but for a few of /proc", read_files),
    ("TCP ports are neither bound nor connected to", use_tcp),
    ("UDP is sent and received", use_udp),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, first, confinement, attempt] = arguments.as_slice()
        && first == CONFINED
    {
        confine(confinement, attempt);
        return ExitCode::SUCCESS;
    }
    let mut trials = vec![trial("a confined thread has what was kept", || {
        is_fine(&run("far end", "nothing")?)
    })];
    for (name, _) in FORBIDDEN {
        for confinement in ["far end", "emulator"] {
            if (confinement, name) != ("emulator", "a packet socket") {
                let title = format!("{name} kills a process that is confined as the {confinement}");
                trials.push(trial(title, move || is_killed(&run(confinement, name)?)));
            }
        }
    }
    for (name, _) in ALLOWED {
        let test = trial(name, move || is_fine(&run("far end", name)?));
        let by_landlock = name.contains("files") || name.contains("TCP");
        trials.push(match landlock::version() {
            None if by_landlock => skipped(name, "there is no Landlock in this kernel"),
            Some(..4) if name.contains("TCP") => {
                skipped(name, "Landlock has no TCP before version 4")
            }
            _ => test,
        });
    }
    let name = "a thread that was started before keeps its capabilities, and is found";
    trials.push(match Privilege::detect() {
        Privilege::None { why } => skipped(name, &why),
        _ => trial(name, || is_fine(&run("an early thread", "nothing")?)),
    });
    let name = "a thread that has ended and is still in /proc keeps nothing";
    trials.push(trial(name, || is_fine(&run("an ended thread", "nothing")?)));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn trial(
    name: impl Into<String>,
    test: impl FnOnce() -> Result<(), Failed> + Send + 'static,
) -> Trial {
    Trial::test(name, test)
}

fn skipped(name: &str, why: &str) -> Trial {
    trial(format!("{name} [skipped: {why}]"), || Ok(())).with_ignored_flag(true)
}

fn run(confinement: &str, attempt: &str) -> Result<Output, Failed> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([CONFINED, confinement, attempt]);
    Ok(command.env("RUST_BACKTRACE", "full").output()?)
}

fn is_fine(output: &Output) -> Result<(), Failed> {
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("{output:?}").into())
    }
}

fn is_killed(output: &Output) -> Result<(), Failed> {
    if output.status.signal() == Some(Signal::SIGSYS as i32) {
        Ok(())
    } else {
        Err(format!("{output:?}").into())
    }
}

fn confine(confinement: &str, attempt: &str) {
    match confinement {
        "far end" => {
            let has_landlock = landlock::version().is_some();
            let in_force = sandbox::confine_far_end(&[], Threads::All).expect("confined");
            assert_eq!(in_force.no_seccomp, None);
            assert_eq!(in_force.landlock, has_landlock);
        }
        "emulator" => seccomp::install(seccomp::EMULATOR, Threads::All).expect("confined"),
        "an early thread" => return have_an_early_thread(),
        "an ended thread" => return have_an_ended_thread(),
        _ => unreachable!("no confinement {confinement}"),
    }
    let attempts = FORBIDDEN.iter().chain(&ALLOWED);
    if let Some((_, attempt)) = attempts.into_iter().find(|(name, _)| *name == attempt) {
        attempt();
    }
    // A thread that is started after the confinement gets nothing back.
    let status = || fs::read_to_string("/proc/thread-self/status").expect("its status");
    let status = thread::spawn(status).join().expect("no panic");
    for line in ["CapEff:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(status.contains(line), "{line}: {status}");
    }
}

fn have_an_early_thread() {
    if Privilege::detect() == Privilege::UserNamespace {
        userns::enter().expect("a user namespace");
    }
    let (end, ended) = mpsc::channel::<()>();
    let early = thread::spawn(move || ended.recv());
    let error = sandbox::confine_far_end(&[], Threads::All).expect_err("it still has capabilities");
    assert!(error.to_string().contains("still has CapPrm"), "{error}");
    drop(end);
    assert!(early.join().expect("no panic").is_err());
}

/// Confines the process in a second thread after the first has ended, which the kernel keeps, as a zombie without a
/// filter, as long as the process lives. Other threads are in that state for a moment after they were joined.
fn have_an_ended_thread() {
    thread::spawn(|| {
        let status = format!("/proc/self/task/{}/status", std::process::id());
        let has_ended = || {
            fs::read_to_string(&status)
                .expect("its status")
                .contains("State:\tZ")
        };
        while !has_ended() {
            thread::yield_now();
        }
        let confined = panic::catch_unwind(|| {
            let in_force = sandbox::confine_far_end(&[], Threads::All).expect("confined");
            assert_eq!(in_force.no_seccomp, None);
        });
        std::process::exit(i32::from(confined.is_err()));
    });
    // SAFETY: nothing on this thread's stack is used by another thread, and nothing of it has to be dropped.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

fn start_a_program() {
    let _ = Command::new("/bin/true").status();
}

fn become_a_program() {
    let _ = Command::new("/bin/true").exec();
}

fn fork() {
    // SAFETY: if there is a child, it ends immediately.
    if unsafe { libc::fork() } == 0 {
        // SAFETY: `_exit` runs no handlers of the parent.
        unsafe { libc::_exit(0) }
    }
}

fn make_a_namespace() {
    let _ = unshare(CloneFlags::CLONE_NEWUSER);
}

fn mount_something() {
    let none = None::<&str>;
    let _ = mount(none, "/proc", none, MsFlags::MS_REMOUNT, none);
}

fn make_memory_executable() {
    let executable = libc::PROT_READ | libc::PROT_EXEC;
    let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address that the kernel chooses affects no other memory.
    unsafe { libc::mmap(std::ptr::null_mut(), 4096, executable, private, -1, 0) };
}

fn trace() {
    // SAFETY: this request accesses no memory.
    unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
}

fn open_a_packet_socket() {
    // SAFETY: the call takes three numbers.
    unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0) };
}

fn panic_in_a_thread() {
    let panicked = thread::spawn(|| panic!("on purpose")).join();
    assert!(panicked.is_err());
}

fn read_files() {
    let kind = |path: &str| fs::read(path).map(drop).map_err(|error| error.kind());
    assert_eq!(kind("/etc/passwd"), Err(ErrorKind::PermissionDenied));
    assert_eq!(kind("/proc/sys/kernel/random/boot_id"), Ok(()));
    assert_eq!(kind("/proc/self/status"), Ok(()));
    let written = fs::write(std::env::temp_dir().join("farwire-sandbox"), "");
    let refused = written.map_err(|error| error.kind());
    assert_eq!(refused, Err(ErrorKind::PermissionDenied));
}

fn use_tcp() {
    let kind = |error: std::io::Error| error.kind();
    let bound = TcpListener::bind("127.0.0.1:0").map(drop).map_err(kind);
    let connected = TcpStream::connect("127.0.0.1:9").map(drop).map_err(kind);
    let refused = Err(ErrorKind::PermissionDenied);
    assert_eq!((bound, connected), (refused, refused));
}

fn use_udp() {
    let [a, b] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a socket"));
    a.send_to(b"hello", b.local_addr().expect("bound"))
        .expect("sent");
    let mut buffer = [0; 8];
    assert_eq!(b.recv(&mut buffer).expect("received"), 5);
}
