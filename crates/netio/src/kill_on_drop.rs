//! Runs a command that is killed when the process that started it ends, for users who cannot create namespaces.
//!
//! Processes that the command itself starts are not killed. Neither is a command that gains privileges from its file,
//! because the kernel clears the setting for it (prctl(2), `PR_SET_PDEATHSIG`). A command in namespaces leaves nothing
//! behind: see [`contain`](crate::contain).

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

/// A running command. It is killed when this is dropped.
#[derive(Debug)]
pub struct KillOnDrop {
    child: Child,
}

impl KillOnDrop {
    /// Starts `command`, which is killed when the calling thread ends.
    ///
    /// # Errors
    /// There is no such command, or it cannot be executed.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        let caller = getpid();
        let die_with_caller = move || {
            set_pdeathsig(Signal::SIGKILL)?;
            // The caller may have ended before this call.
            if getppid() == caller {
                Ok(())
            } else {
                Err(Errno::ESRCH.into())
            }
        };
        // SAFETY: between fork and exec the closure makes two system calls and allocates nothing.
        unsafe { command.pre_exec(die_with_caller) };
        let child = command.spawn()?;
        Ok(Self { child })
    }

    /// Starts `command` in the namespace `ns`. A temporary thread in the namespace, as [`NetNs::run`] uses it, would
    /// not do, because the command would be killed when that thread ends.
    ///
    /// # Errors
    /// Those of [`KillOnDrop::spawn`], and CAP_SYS_ADMIN is missing in the user namespace that owns the namespace.
    pub fn spawn_in(ns: &NetNs, command: &mut Command) -> io::Result<Self> {
        let ns = ns.try_clone().map_err(io::Error::other)?;
        // SAFETY: between fork and exec the closure makes one system call and allocates nothing.
        unsafe { command.pre_exec(move || Ok(setns(&ns, CloneFlags::CLONE_NEWNET)?)) };
        Self::spawn(command)
    }

    /// Returns the process with the streams that were requested as pipes.
    pub fn streams(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Waits for the end and returns the exit code; 128 + n for signal n.
    ///
    /// # Errors
    /// None is known.
    pub fn wait(&mut self) -> io::Result<i32> {
        self.child.wait().map(exit_code)
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // Killing has no effect on a process that has ended and was waited for.
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
    fn the_exit_code_is_that_of_the_command() {
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
            // The end of the thread must suffice, so the value is never dropped.
            std::mem::forget(child);
            output
        });
        let mut rest = Vec::new();
        started.join().unwrap().read_to_end(&mut rest).unwrap();
        assert!(rest.is_empty());
    }
}
