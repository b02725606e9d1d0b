//! Runs a command so that nothing of it survives: neither its daemons, nor the command itself when its caller is
//! killed.
//!
//! There are three processes behind a command. The *warden* is another instance of this program, which the caller
//! starts with [`SUBCOMMAND`]. It watches the caller and starts *init*, the first process of a new PID namespace, which
//! starts the command. When init ends, the kernel kills all remaining processes in its namespace; init dies with the
//! warden, and the warden ends when the caller does. The command stays in the caller's process group, so that it gets
//! the terminal's signals; warden and init forward SIGTERM and SIGHUP. An interactive shell gets a separate process
//! group, which has the terminal as long as it lives, as a job of a shell does. Ctrl-C then goes to the foreground
//! process of that shell.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd as _, OwnedFd};
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus};

use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SigHandler, SigSet, SigmaskHow, Signal, kill, signal, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork, getpgrp, getpid, getppid, setpgid, tcgetpgrp, tcsetpgrp};

use crate::console;
use crate::netns::{NetNs, NetNsError};
use crate::userns;

/// The first argument by which [`divert`] recognises that this process is a warden.
pub const SUBCOMMAND: &str = "__contain";

/// Argument to the warden: the command stays in the caller's process group.
const CALLER_GROUP: &str = "command";
/// Argument to the warden: the command leads a separate process group, which gets the terminal.
const TERMINAL_GROUP: &str = "shell";

/// Argument to the warden: the command has the caller's capabilities.
const CALLERS_RIGHTS: &str = "all";
/// Argument to the warden: the command has the capabilities over the network alone.
const NETWORK_RIGHTS: &str = "network";

/// The exit code if farwire itself failed, as in env(1).
const FAILED: i32 = 125;
/// The exit code if the command could not be executed.
const NOT_EXECUTABLE: i32 = 126;
/// The exit code if there is no such command.
const NOT_FOUND: i32 = 127;

/// The signal by which the caller has the warden kill everything immediately.
const KILL_ALL: Signal = Signal::SIGUSR1;
/// The terminal's signals that end a command. The command gets them itself, and warden and init must survive them. They
/// are blocked and not ignored, so that a signal that arrives before the command has started is not lost.
const INTERRUPTS: [Signal; 2] = [Signal::SIGINT, Signal::SIGQUIT];
/// The terminal's signals that stop a command.
const STOPS: [Signal; 3] = [Signal::SIGTSTP, Signal::SIGTTIN, Signal::SIGTTOU];

/// Prepares a command that will run contained in the namespace `ns`. Its environment, directory and streams can still
/// be set.
///
/// Start it with [`Contained::spawn`]. The program must call [`divert`] at the start of its main function.
///
/// # Errors
/// The process has no descriptor left.
pub fn command(ns: &NetNs, argv: &[OsString]) -> Result<Command, NetNsError> {
    contained(ns, CALLER_GROUP, argv)
}

/// Prepares an interactive shell in the same way. If the caller has the terminal at standard input, the shell gets it
/// until the shell ends.
///
/// # Errors
/// The same as for [`command`].
pub fn shell(ns: &NetNs, program: OsString) -> Result<Command, NetNsError> {
    contained(ns, TERMINAL_GROUP, &[program])
}

fn contained(ns: &NetNs, group: &str, argv: &[OsString]) -> Result<Command, NetNsError> {
    let ns = ns.try_clone()?;
    let mut command = Command::new("/proc/self/exe");
    command.arg(SUBCOMMAND).arg(std::process::id().to_string());
    let rights = if userns::is_as_caller() {
        NETWORK_RIGHTS
    } else {
        CALLERS_RIGHTS
    };
    command.arg(group).arg(rights).args(argv);
    // SAFETY: between fork and exec the closure makes one system call and allocates nothing.
    unsafe { command.pre_exec(move || Ok(setns(&ns, CloneFlags::CLONE_NEWNET)?)) };
    Ok(command)
}

/// A contained command that is running. Dropping this kills it with all processes that it started.
#[derive(Debug)]
pub struct Contained {
    warden: Child,
}

impl Contained {
    /// Starts a command that was prepared by [`command`].
    ///
    /// # Errors
    /// No process can be started. A failure of the command itself is reported by its exit code.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        let warden = command.spawn()?;
        Ok(Self { warden })
    }

    /// Returns the process to watch, which ends when the command has ended and nothing of it is left.
    pub fn pid(&self) -> u32 {
        self.warden.id()
    }

    /// Returns the process with the streams that were requested as pipes.
    pub fn streams(&mut self) -> &mut Child {
        &mut self.warden
    }

    /// Waits for the end and returns the exit code: that of the command, 128 + n for signal n, 127 if the command was
    /// not found, 126 if it could not be executed, or 125 if it could not be contained.
    ///
    /// # Errors
    /// None is known.
    pub fn wait(&mut self) -> io::Result<i32> {
        self.warden.wait().map(exit_code)
    }

    /// Returns the exit code like [`Contained::wait`], or `None` immediately if the command is running.
    ///
    /// # Errors
    /// None is known.
    pub fn try_wait(&mut self) -> io::Result<Option<i32>> {
        Ok(self.warden.try_wait()?.map(exit_code))
    }

    /// Sends SIGTERM to the command; does nothing if it has ended.
    pub fn terminate(&mut self) {
        self.signal(Signal::SIGTERM);
    }

    /// Sends SIGHUP to the command, as if its terminal was gone. Interactive shells ignore SIGTERM.
    pub fn hang_up(&mut self) {
        self.signal(Signal::SIGHUP);
    }

    /// Kills the command and all processes that it started. [`Contained::wait`] then returns when nothing of it is
    /// left.
    pub fn kill(&mut self) {
        self.signal(KILL_ALL);
    }

    fn signal(&mut self, signal: Signal) {
        // After it was waited for, another process may have its number.
        if let (Ok(None), Ok(pid)) = (self.warden.try_wait(), i32::try_from(self.pid())) {
            let _ = kill(Pid::from_raw(pid), signal);
        }
    }
}

impl Drop for Contained {
    fn drop(&mut self) {
        self.kill();
        let _ = self.warden.wait();
    }
}

/// Runs the warden and never returns, if this process was started as one; otherwise does nothing.
///
/// Call it at the start of the main function, while the process has one thread.
pub fn divert() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_none_or(|first| first != SUBCOMMAND) {
        return;
    }
    let caller = arguments.next().and_then(|pid| pid.to_str()?.parse().ok());
    let argv: Vec<OsString> = arguments.collect();
    let code = match (caller, argv.as_slice()) {
        (Some(caller), [group, rights, program, arguments @ ..]) => {
            let terminal = Terminal::of_caller().filter(|_| group == TERMINAL_GROUP);
            let contents = Contents {
                rights,
                program,
                arguments,
            };
            let code = guard(Pid::from_raw(caller), terminal.as_ref(), contents);
            // The terminal is returned before anything is written to it, because the process is in the background until
            // then.
            drop(terminal);
            code.unwrap_or_else(|error| {
                say(&format!("cannot contain {}: {error}", program.display()));
                FAILED
            })
        }
        _ => {
            say(&format!("{SUBCOMMAND} is for farwire's own use"));
            FAILED
        }
    };
    std::process::exit(code);
}

fn say(why: &str) {
    console::say(&format!("farwire: {why}"));
}

/// The command of a warden, and its rights.
#[derive(Clone, Copy)]
struct Contents<'a> {
    rights: &'a OsStr,
    program: &'a OsString,
    arguments: &'a [OsString],
}

/// Runs the warden: starts init, and ends with it or with the caller.
fn guard(caller: Pid, terminal: Option<&Terminal>, contents: Contents<'_>) -> nix::Result<i32> {
    let caller_fd = pidfd(caller)?;
    if getppid() != caller {
        // The caller died before it could be watched.
        return Ok(FAILED);
    }
    let signals =
        Signals::take_over(&[Signal::SIGTERM, Signal::SIGHUP, Signal::SIGCHLD, KILL_ALL])?;
    let own_fd = pidfd(getpid())?;
    unshare(CloneFlags::CLONE_NEWPID | CloneFlags::CLONE_NEWNS)?;
    // SAFETY: this process has one thread, so the child may do anything.
    let init = match unsafe { fork() }? {
        ForkResult::Child => {
            drop(caller_fd);
            let code =
                init(&own_fd, &signals, terminal.is_some(), contents).unwrap_or_else(|error| {
                    let program = contents.program.display();
                    say(&format!("cannot contain {program}: {error}"));
                    FAILED
                });
            std::process::exit(code);
        }
        ForkResult::Parent { child } => child,
    };
    if let Some(signal) = signals.interrupted()? {
        // The signal may have arrived before init existed and could block it.
        kill(init, Signal::SIGKILL)?;
        waitpid(init, None)?;
        return Ok(128 + signal as i32);
    }
    loop {
        if wait_readable([signals.as_fd(), caller_fd.as_fd()])? == 1 {
            kill(init, Signal::SIGKILL)?;
            waitpid(init, None)?;
            return Ok(FAILED);
        }
        match signals.next()? {
            Some(Signal::SIGCHLD) => match waitpid(init, Some(WaitPidFlag::WNOHANG))? {
                WaitStatus::Exited(_, code) => return Ok(code),
                WaitStatus::Signaled(_, signal, _) => return Ok(128 + signal as i32),
                _ => {}
            },
            Some(KILL_ALL) => kill(init, Signal::SIGKILL)?,
            Some(other) => kill(init, other)?,
            None => {}
        }
    }
}

/// Runs the first process of the new PID namespace: starts the command, reaps orphans, and ends with the command.
fn init(
    warden: &OwnedFd,
    signals: &Signals,
    lend_terminal: bool,
    Contents {
        rights,
        program,
        arguments,
    }: Contents<'_>,
) -> nix::Result<i32> {
    // The warden has only one thread, so the signal is sent when the warden ends: prctl(2) refers to the thread that
    // forked.
    set_pdeathsig(Signal::SIGKILL)?;
    if is_readable(warden)? {
        return Ok(FAILED);
    }
    remount_proc();
    if rights == NETWORK_RIGHTS {
        // Init itself keeps what it needs to start the command.
        userns::hand_on_network_only().map_err(|_| Errno::EPERM)?;
    }
    let mut command = Command::new(program);
    command.args(arguments);
    let inherited = signals.inherited.clone();
    // SAFETY: between fork and exec the closure only makes system calls.
    unsafe {
        command.pre_exec(move || {
            if lend_terminal {
                // This must happen while SIGTTOU is ignored, because a background group that takes the terminal gets
                // this signal.
                setpgid(Pid::from_raw(0), Pid::from_raw(0))?;
                tcsetpgrp(BorrowedFd::borrow_raw(libc::STDIN_FILENO), getpid())?;
            }
            Ok(inherited.restore()?)
        })
    };
    let child = match command.spawn() {
        Ok(child) => child,
        Err(error) => {
            let (code, why) = if is_found(program) {
                (NOT_EXECUTABLE, error.to_string())
            } else {
                (NOT_FOUND, "no such command".to_owned())
            };
            say(&format!("cannot run {}: {why}", program.display()));
            return Ok(code);
        }
    };
    let command = Pid::from_raw(i32::try_from(child.id()).expect("a process id is positive"));
    if let Some(signal) = signals.interrupted()? {
        // The signal arrived before the command existed, and may have ended the command nonetheless.
        let _ = kill(command, signal);
    }
    loop {
        wait_readable([signals.as_fd()])?;
        match signals.next()? {
            Some(Signal::SIGCHLD) => {
                if let Some(code) = reap(command)? {
                    return Ok(code);
                }
            }
            // The command may have ended in this moment.
            Some(other) => drop(kill(command, other)),
            None => {}
        }
    }
}

/// The terminal at standard input, which the caller's process group has, and gets back when this is dropped. Only the
/// warden can return it, because the number of the group has no meaning in the new PID namespace.
struct Terminal {
    group: Pid,
}

impl Terminal {
    /// Returns the terminal; `None` if there is none, or if another group has it.
    fn of_caller() -> Option<Self> {
        let group = getpgrp();
        (tcgetpgrp(io::stdin()) == Ok(group)).then_some(Self { group })
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The warden ignores SIGTTOU here. If the terminal is gone, the error can be ignored.
        let _ = tcsetpgrp(io::stdin(), self.group);
    }
}

/// Returns whether there is a file for `program`. The error of exec does not tell, because it may be about a directory
/// in the PATH.
fn is_found(program: &OsStr) -> bool {
    if program.as_encoded_bytes().contains(&b'/') {
        return Path::new(program).exists();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).exists())
}

/// Reaps all processes that have ended, and returns the exit code if `command` has.
fn reap(command: Pid) -> nix::Result<Option<i32>> {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, code)) if pid == command => return Ok(Some(code)),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == command => {
                return Ok(Some(128 + signal as i32));
            }
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return Ok(None),
            Ok(_) => {}
            Err(errno) => return Err(errno),
        }
    }
}

/// Mounts /proc of the new PID namespace if possible. In a container that masks parts of /proc it is not possible from
/// a user namespace; the command then sees the processes outside, but cannot access them.
fn remount_proc() {
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    if mount(None::<&str>, "/", None::<&str>, private, None::<&str>).is_ok() {
        let _ = mount(Some("proc"), "/proc", Some("proc"), flags, None::<&str>);
    }
}

/// The signals of a warden or an init. Some are read from a descriptor, and those of the terminal are ignored.
struct Signals {
    fd: SignalFd,
    interrupts: SignalFd,
    inherited: SignalSettings,
}

impl Signals {
    fn take_over(wanted: &[Signal]) -> nix::Result<Self> {
        let wanted: SigSet = wanted.iter().copied().collect();
        let interrupts: SigSet = INTERRUPTS.into_iter().collect();
        let mut mask = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&wanted), Some(&mut mask))?;
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&interrupts), None)?;
        let mut ignored_here = Vec::new();
        for terminal in STOPS {
            // SAFETY: ignoring a signal installs no handler.
            let before = unsafe { signal(terminal, SigHandler::SigIgn) }?;
            if !matches!(before, SigHandler::SigIgn) {
                ignored_here.push(terminal);
            }
        }
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self {
            fd: SignalFd::with_flags(&wanted, flags)?,
            interrupts: SignalFd::with_flags(&interrupts, flags)?,
            inherited: SignalSettings { mask, ignored_here },
        })
    }

    fn next(&self) -> nix::Result<Option<Signal>> {
        read_signal(&self.fd)
    }

    /// Returns the blocked signal of the terminal, if one has arrived.
    fn interrupted(&self) -> nix::Result<Option<Signal>> {
        read_signal(&self.interrupts)
    }

    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn read_signal(fd: &SignalFd) -> nix::Result<Option<Signal>> {
    let Some(info) = fd.read_signal()? else {
        return Ok(None);
    };
    Signal::try_from(info.ssi_signo.cast_signed()).map(Some)
}

/// The signal settings with which the command starts, which are those of the caller.
#[derive(Clone)]
struct SignalSettings {
    mask: SigSet,
    /// The signals that only warden and init ignore.
    ignored_here: Vec<Signal>,
}

impl SignalSettings {
    /// Restores the settings. It runs between fork and exec, so it only makes system calls.
    fn restore(&self) -> nix::Result<()> {
        for &ignored in &self.ignored_here {
            // SAFETY: the default action installs no handler.
            unsafe { signal(ignored, SigHandler::SigDfl) }?;
        }
        sigprocmask(SigmaskHow::SIG_SETMASK, Some(&self.mask), None)
    }
}

/// Returns a descriptor that becomes readable when the process `pid` ends (pidfd_open(2)).
fn pidfd(pid: Pid) -> nix::Result<OwnedFd> {
    // SAFETY: the call takes two numbers and returns a new descriptor or an error.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
    let fd = i32::try_from(Errno::result(fd)?).expect("a descriptor is an int");
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Waits until one of `fds` is readable, and returns the index of the last one that is.
fn wait_readable<const N: usize>(fds: [BorrowedFd<'_>; N]) -> nix::Result<usize> {
    let mut fds = fds.map(|fd| PollFd::new(fd, PollFlags::POLLIN));
    loop {
        match poll(&mut fds, PollTimeout::NONE) {
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
            Ok(_) => {
                let ready = |fd: &PollFd<'_>| fd.any().unwrap_or(false);
                return Ok(fds.iter().rposition(ready).unwrap_or(0));
            }
        }
    }
}

fn is_readable(fd: &impl AsFd) -> nix::Result<bool> {
    let mut fds = [PollFd::new(fd.as_fd(), PollFlags::POLLIN)];
    Ok(poll(&mut fds, PollTimeout::ZERO)? > 0)
}

/// Returns the exit code of a process that has ended; 128 + n for signal n.
pub(crate) fn exit_code(status: ExitStatus) -> i32 {
    let signal = || status.signal().map_or(FAILED, |signal| 128 + signal);
    status.code().unwrap_or_else(signal)
}
