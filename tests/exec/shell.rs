//! Without a command, the user's shell is behind the link, with the terminal.

use std::fs::{self, File, Permissions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use test_support::process::{self, farwire};

#[test_support::test(Namespaces)]
fn without_a_terminal_the_shell_reads_its_commands_from_standard_input() -> Result<()> {
    let mut input = tempfile::NamedTempFile::new()?;
    writeln!(input, "echo behind $FARWIRE_SERVER\nexit 3\necho never")?;
    let mut child = farwire()
        .arg("exec")
        .env("SHELL", "/bin/sh")
        .stdin(File::open(input.path())?)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut text = String::new();
    let mut stdout = child.stdout.take().context("no output")?;
    stdout.read_to_string(&mut text)?;
    ensure!(text == "behind 10.77.0.2\n", "{text}");
    ensure!(process::end_of(&mut child)?.code() == Some(3));
    Ok(())
}

#[test_support::test(Namespaces, Tool("script"), Tool("bash"))]
fn a_shell_says_what_is_in_force_and_how_to_leave_and_ends_with_its_own_code_and_the_figures()
-> Result<()> {
    let mut terminal = Terminal::open("exec --delay 2ms --up-loss 1%")?;
    let greeting = terminal.read_to("with `exit`\r\n")?;
    let lines = "farwire: link: delay 2ms in each direction, up loss 1%\r\n\
                 farwire: the far end is 10.77.0.2 ($FARWIRE_SERVER); leave this shell with `exit`";
    ensure!(greeting.trim_end() == lines, "{greeting}");
    terminal.read_to("ready> ")?;
    terminal.write("exit 3\r")?;
    terminal.read_to("link counters")?;
    ensure!(terminal.end()? == Some(3));
    Ok(())
}

#[test_support::test(Namespaces, Tool("script"), Tool("bash"))]
fn ctrl_c_ends_what_runs_in_the_shell_not_the_shell_nor_farwire() -> Result<()> {
    let mut terminal = Terminal::open("exec")?;
    terminal.read_to("ready> ")?;
    // A shell with job control puts the processes of a pipeline into one group and interrupts them together. The process that prints that
    // the pipeline runs also waits, because a shell that is interrupted between its output and the start of a child survives both.
    let mut under_way = tempfile::NamedTempFile::new()?;
    writeln!(under_way, "under way")?;
    let waits = format!("tail -f {}", under_way.path().display());
    terminal.write(&format!("{waits} | cat\r"))?;
    terminal.read_to("\nunder way")?;
    terminal.write("\x03")?;
    terminal.read_to("ready> ")?;
    terminal.write("echo code $?\r")?;
    terminal.read_to("\ncode 130\r\n")?;
    // Ctrl-Z also stops the program that runs in the shell.
    terminal.read_to("ready> ")?;
    terminal.write(&format!("{waits}\r"))?;
    terminal.read_to("\nunder way")?;
    terminal.write("\x1a")?;
    terminal.read_to("ready> ")?;
    terminal.write("exit 5\r")?;
    terminal.read_to("There are stopped jobs.")?;
    terminal.write("exit 5\r")?;
    ensure!(terminal.end()? == Some(5));
    Ok(())
}

/// A shell without job control, such as one that runs a script, reads from the terminal after farwire, and farwire writes to it.
#[test_support::test(Namespaces, Tool("script"), Tool("bash"))]
fn the_terminal_is_the_callers_again_after_the_shell() -> Result<()> {
    let program = process::program();
    let line =
        format!("stty tostop; {program} exec; echo ended with $?; read word; echo got $word");
    let mut terminal = Terminal::of(&format!("sh -c '{line}'"))?;
    terminal.read_to("ready> ")?;
    terminal.write("exit 4\r")?;
    terminal.read_to("ended with 4")?;
    terminal.write("something\r")?;
    terminal.read_to("got something")?;
    ensure!(terminal.end()? == Some(0));
    Ok(())
}

/// A terminal of script(1); data written to it is typed.
struct Terminal {
    script: Child,
    keyboard: ChildStdin,
    screen: ChildStdout,
    _shell: TempDir,
}

impl Terminal {
    /// Starts `farwire` with these arguments on the terminal.
    fn open(arguments: &str) -> Result<Self> {
        Self::of(&format!("{} {arguments}", process::program()))
    }

    /// Runs a line of sh, in which $SHELL is a bash that reads no startup files.
    fn of(line: &str) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let shell = directory.path().join("shell");
        fs::write(&shell, "#!/bin/sh\nexec bash --norc --noprofile\n")?;
        fs::set_permissions(&shell, Permissions::from_mode(0o755))?;
        let line = format!("SHELL={} {line}", shell.display());
        // A watchdog ends a hanging test, because reads have no time-out.
        let mut script = Command::new("timeout")
            .args(["60", "script", "-qec", &line, "/dev/null"])
            .env("SHELL", "/bin/sh")
            .env("PS1", "ready> ")
            .env("TERM", "dumb")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let keyboard = script.stdin.take().context("no keyboard")?;
        let screen = script.stdout.take().context("no screen")?;
        Ok(Self {
            script,
            keyboard,
            screen,
            _shell: directory,
        })
    }

    fn write(&mut self, text: &str) -> Result<()> {
        self.keyboard.write_all(text.as_bytes())?;
        Ok(self.keyboard.flush()?)
    }

    /// Reads the output up to and including `end`.
    fn read_to(&mut self, end: &str) -> Result<String> {
        let mut shown = Vec::new();
        let mut byte = [0];
        while !shown.ends_with(end.as_bytes()) {
            ensure!(
                self.screen.read(&mut byte)? > 0,
                "no `{end}`: {}",
                String::from_utf8_lossy(&shown)
            );
            shown.push(byte[0]);
        }
        Ok(String::from_utf8_lossy(&shown).into_owned())
    }

    /// Waits for the end and returns the exit code.
    fn end(mut self) -> Result<Option<i32>> {
        let mut rest = Vec::new();
        self.screen.read_to_end(&mut rest)?;
        Ok(process::end_of(&mut self.script)?.code())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}
