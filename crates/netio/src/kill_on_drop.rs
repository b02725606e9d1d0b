//! A command that is killed when the process that started it ends, for users who may not make namespaces.
//!
//! Processes that the command itself starts are not killed, and neither is a command that gains privileges by its file, for which
//! the kernel clears the setting (prctl(2), `PR_SET_PDEATHSIG`). A command in namespaces leaves nothing behind: see
//! [`contain`](crate::contain).

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::{getpid, getppid};

use crate::contain::exit_code;
use crate::netns::NetNs;

/// A command that runs; when dropped, it is killed.
#[derive(Debug)]
pub struct KillOnDrop {
    child: Child,
}

impl KillOnDrop {
    /// Starts `command`; it is killed when the calling thread ends.
    ///
    /// # Errors
    /// There is no such command, or it cannot be executed.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        let caller = getpid();
        let die_with_caller = move || {
            set_pdeathsig(Signal::SIGKILL)?;
            // The caller may have ended before that.
            if getppid() == caller {
                Ok(())
            } else {
                Err(Errno::ESRCH.into())
            }
        };
        // SAFETY: the closure makes two system calls and allocates nothing.
        unsafe { command.pre_exec(die_with_caller) };
        let child = command.spawn()?;
        Ok(Self { child })
    }

    /// As [`KillOnDrop::spawn`], in the namespace `ns`. A thread that enters it for that, as
    /// [`NetNs::run`] does, would end at once, and the command with it.
    ///
    /// # Errors
    /// As [`KillOnDrop::spawn`]; without CAP_SYS_ADMIN in the user namespace that owns the namespace.
    pub fn spawn_in(ns: &NetNs, command: &mut Command) -> io::Result<Self> {
        let ns = ns.try_clone().map_err(io::Error::other)?;
        // SAFETY: the closure makes one system call and allocates nothing.
        unsafe { command.pre_exec(move || Ok(setns(&ns, CloneFlags::CLONE_NEWNET)?)) };
        Self::spawn(command)
    }

    /// The process, with the streams that were asked for as pipes.
    pub fn streams(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Waits for the end and gives the exit code; 128 + n for signal n.
    ///
    /// # Errors
    /// None is known.
    pub fn wait(&mut self) -> io::Result<i32> {
        self.child.wait().map(exit_code)
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // Nothing happens if it has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read as _;
    use std::process::Stdio;
    use std::thread;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped());
        command
    }

    #[test]
    fn the_exit_code_is_the_command_s() {
        assert_eq!(
            KillOnDrop::spawn(&mut shell("exit 3"))
                .unwrap()
                .wait()
                .unwrap(),
            3
        );
        let mut killed = KillOnDrop::spawn(&mut shell("kill -9 $$")).unwrap();
        assert_eq!(killed.wait().unwrap(), 128 + 9);
    }

    #[test]
    fn a_command_dies_with_the_thread_that_started_it() {
        let started = thread::spawn(|| {
            let mut child =
                KillOnDrop::spawn(shell("exec sleep 600").stderr(Stdio::null())).unwrap();
            let output = child.streams().stdout.take().unwrap();
            // Nobody drops it: the thread's end must be enough.
            std::mem::forget(child);
            output
        });
        let mut rest = Vec::new();
        started.join().unwrap().read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty());
    }
}
