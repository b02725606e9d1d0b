//! `farwire exec`: a command or a shell behind the emulated link.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::Args;
use netio::UdpErrors;
use netio::bed::{BedConfig, SERVER};
use netio::contain::{self, Contained};
use signal_hook::consts::{SIGINT, SIGQUIT};

use super::args::api_server::{ListenArg, LiveServer};
use super::args::forwarder::ForwarderArgs;
use super::args::link_conditions::{self, ConditionsArgs};
use super::args::screen::{LiveScreen, TuiArg};
use crate::forward::thread::EMULATOR_DIED;
use crate::live::NewLink;
use crate::notes::note;
use crate::testbed::{self, EmulatedBed, StallWatch};
use crate::tui::CommandOutput;
use conditions::LinkSpec;
use instruments::failure::{Blame, Failure};
use instruments::output::write_json;
use instruments::serve::{self, ServeConfig, ServiceLimits, ServicePorts};
use netio::signals;
use netio::stop::Stop;
use record::bed::THE_LINK;
use record::lateness::{self, LinkDepartures, Traffic};
use record::quantity::counted;

/// Run a command or a shell behind an emulated link, on a test bed of its own
///
/// Without a command it is your shell ($SHELL, else /bin/sh), until you leave it with `exit`; where standard input is no
/// terminal, the shell reads its commands from there, as sh does. The command runs in a network namespace from which only
/// the far end can be reached, as 10.77.0.2 and fd77::2 (the host's own network cannot); $FARWIRE_SERVER is the far end's
/// IPv4 address. There, `farwire serve` answers every instrument of `farwire measure`, iperf3's clients, and HTTP on port
/// 80 (/bytes/N, /seconds/T); or the command of --far runs. Needs no root. Ends with the command's exit code; 125 when
/// farwire itself fails, 126 and 127 when the command cannot be run or found. What the link did goes to standard error.
#[derive(Args, Debug)]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    link: ConditionsArgs,
    /// Run this at the far end instead, through sh; its output goes to standard error
    #[arg(long, value_name = "COMMAND")]
    far: Option<String>,
    /// Largest L3 packet of the bed, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    mtu: u32,
    #[command(flatten)]
    forwarder: ForwarderArgs,
    /// Write what the link did as JSON to FILE (- is standard output)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    listen: ListenArg,
    #[command(flatten)]
    tui: TuiArg,
    /// The command and its arguments [default: your shell]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// By which the command learns the far end's address.
pub(super) const SERVER_VARIABLE: &str = "FARWIRE_SERVER";
/// How long the far end's command may take until it listens.
const FAR_PATIENCE: Duration = Duration::from_secs(2);
/// The exit code, as a shell has it, of a command that SIGKILL ended.
const KILLED: u8 = 128 + 9;
/// How often the command's end and the signals are looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

impl ExecArgs {
    /// Runs the command; the exit code is its own.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let has_screen = self.tui.is_wanted()?;
        if has_screen && self.command.is_empty() {
            return Err(Failure::bad_input(
                "--tui: the terminal is taken, which a shell needs: name a command, behind --",
            ));
        }
        let spec = self.link.to_spec().or_bad_input()?;
        let link = spec.to_link("box").or_bad_input()?;
        link_conditions::warn(&link.config);
        let listening = self.listen.open(THE_LINK)?;
        testbed::gain_privilege()?;
        link_conditions::warn_of_host(&link.config, []);
        let signals = Signals::catch()?;
        let ends = ["client's side", "server's side"];
        let options = self.forwarder.options([&spec], |of| of.capture(ends))?;
        let config = BedConfig {
            mtu: self.mtu,
            ..BedConfig::default()
        };
        let bed = EmulatedBed::up(&config, vec![(link, options)])?;
        let output = has_screen.then(CommandOutput::new).transpose()?;
        let far = self.start_far_end(&bed, output.as_ref())?;
        let host = StallWatch::begin(self.forwarder.late_budget())?;
        let live = listening
            .map(|listening| LiveServer::start(listening, [live_link(&bed, &spec)?]))
            .transpose()?;
        if self.command.is_empty() && io::stdin().is_terminal() {
            note(format_args!(
                "farwire: behind {}; $FARWIRE_SERVER is {}; `exit` leaves",
                crate::live::in_force(&spec),
                SERVER.v4
            ));
        }
        let leaves = Arc::new(AtomicU32::new(0));
        let screen = output.clone().map(|output| {
            let served = live.as_ref().map(LiveServer::links);
            let leaves = Arc::clone(&leaves);
            let leave = move || {
                leaves.fetch_add(1, Ordering::Relaxed);
            };
            LiveScreen::start(served, [live_link(&bed, &spec)?], Some(output), leave)
        });
        let screen = screen.transpose()?;
        let code = self.run_command(&bed, &signals, output.as_ref(), &leaves);
        drop((screen, far, live));
        if let Some(output) = output {
            output
                .print()
                .context("printing what the command printed")?;
        }
        let sockets = full_sockets(&bed);
        let judged = [judged_departures(&bed), host.spoilt(), sockets];
        // What it died of, if it did, before what came of that.
        let links = bed.down()?;
        let code = code?;
        let summary = links.first().context("the bed has a link")?;
        note(format_args!("farwire: {summary}"));
        for cause in judged.into_iter().flatten() {
            note(format_args!("farwire: {cause}"));
        }
        if let Some(file) = &self.json {
            write_json(file, summary)?;
        }
        Ok(ExitCode::from(code))
    }

    /// Runs the command to its end, its output into `output` where that is. Whoever asks to leave ends it; whoever asks twice kills it.
    fn run_command(
        &self,
        bed: &EmulatedBed,
        signals: &Signals,
        output: Option<&CommandOutput>,
        leaves: &AtomicU32,
    ) -> Result<u8> {
        let is_shell = self.command.is_empty();
        let mut command = if is_shell {
            contain::shell(bed.client(), users_shell())?
        } else {
            contain::command(bed.client(), &self.command)?
        };
        command.env(SERVER_VARIABLE, SERVER.v4.to_string());
        if let Some(output) = output {
            command.stdin(Stdio::null());
            command.stdout(output.stream()?).stderr(output.stream()?);
        }
        if let Some(code) = signals.interrupted() {
            return Ok(code);
        }
        let mut child = Contained::spawn(&mut command).context("starting the command")?;
        // One that came meanwhile may have reached nobody; dropping the child ends it.
        if let Some(code) = signals.interrupted() {
            return Ok(code);
        }
        let stop = Stop::default().or(bed.died(), EMULATOR_DIED);
        let mut is_told = 0;
        loop {
            if let Some(code) = child.try_wait()? {
                return Ok(u8::try_from(code).unwrap_or(u8::MAX));
            }
            // Dropping the child ends it.
            if let Some(why) = stop.cause() {
                bail!("{why}");
            }
            let left = leaves.load(Ordering::Relaxed);
            if left > 1 {
                return Ok(KILLED);
            }
            // The terminal's own never comes while a screen has it; one from elsewhere reached farwire alone.
            let is_interrupted =
                output.is_some() && signals.interrupt.swap(0, Ordering::Relaxed) > 0;
            let is_left = left > is_told || is_interrupted;
            is_told = left;
            if signals.terminate.swap(false, Ordering::Relaxed) || is_left {
                if is_shell {
                    child.hang_up();
                } else {
                    child.terminate();
                }
            }
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Starts what answers at the far end, and waits until it does.
    fn start_far_end(&self, bed: &EmulatedBed, output: Option<&CommandOutput>) -> Result<FarEnd> {
        let Some(line) = &self.far else {
            let config = ServeConfig {
                ports: ServicePorts::IN_BED,
                limits: ServiceLimits::in_bed(1),
                ..ServeConfig::default()
            };
            return testbed::serve_confined(bed.server(), config).map(FarEnd::Server);
        };
        let argv = ["/bin/sh", "-c", line].map(OsString::from);
        let mut command = contain::command(bed.server(), &argv)?;
        command.stdin(Stdio::null());
        match output {
            Some(output) => command.stdout(output.stream()?).stderr(output.stream()?),
            None => command.stdout(io::stderr().as_fd().try_clone_to_owned()?),
        };
        let far = Contained::spawn(&mut command).context("starting the far end's command")?;
        testbed::await_listener(bed.server(), None, FAR_PATIENCE)?;
        Ok(FarEnd::Command(far))
    }
}

/// Which figures of whatever the command measured are the machine's, because too many packets left late, if so.
fn judged_departures(bed: &EmulatedBed) -> Option<String> {
    let links = bed.departures(&[THE_LINK.to_owned()]);
    let before = links.iter().map(|link| LinkDepartures {
        flows: Vec::new(),
        ..link.clone()
    });
    let before: Vec<_> = before.collect();
    let kinds = [Traffic::Icmp, Traffic::Tcp(None), Traffic::Udp(None)];
    // What is of no kind may be of each.
    let judged = kinds.iter().filter_map(|kind| {
        let late = lateness::between(&before, &links, &[*kind]);
        let count: u64 = late.iter().map(|one| one.departed.late).sum();
        Some((count, lateness::advice(&late)?))
    });
    let worst = judged.max_by_key(|(count, _)| *count);
    worst.map(|(_, advice)| advice)
}

/// That UDP sockets in the bed had no room for datagrams, if so: a tool counts them as lost, and no link dropped them. The bed's
/// namespaces are new, so that all that they counted was meanwhile.
fn full_sockets(bed: &EmulatedBed) -> Option<String> {
    let ends = [("the client", bed.client()), ("the far end", bed.server())];
    let dropped = ends.into_iter().filter_map(|(end, ns)| {
        let errors = ns.run(UdpErrors::so_far).ok()?.ok()?;
        let count = counted(errors.no_room, "datagram");
        (errors.no_room > 0).then(|| format!("{count} at {end}"))
    });
    let dropped: Vec<String> = dropped.collect();
    (!dropped.is_empty()).then(|| {
        format!(
            "UDP sockets had no room for {}: a tool counts them as lost, and no link dropped them",
            dropped.join(", ")
        )
    })
}

/// The link, for who watches and changes it.
fn live_link(bed: &EmulatedBed, spec: &LinkSpec) -> Result<NewLink> {
    let forwarder = bed.forwarders().next().context("the bed has a link")?;
    Ok(NewLink {
        name: THE_LINK.to_owned(),
        ends: ["client", "server"].map(str::to_owned),
        forwarder: forwarder.clone(),
        number: 0,
        spec: spec.clone(),
        build: Ok(Box::new(|spec| spec.to_link("box"))),
    })
}

/// $SHELL, as login(1) sets it, else /bin/sh.
fn users_shell() -> OsString {
    let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
    shell.unwrap_or_else(|| "/bin/sh".into())
}

/// What answers at the far end, until it is dropped.
enum FarEnd {
    Server(#[expect(dead_code, reason = "kept for its life")] serve::FarEndServer),
    Command(#[expect(dead_code, reason = "kept for its life")] Contained),
}

/// The terminal's signals reach the command by themselves, once it is there; SIGTERM and SIGHUP are passed on to it,
/// unless SIGHUP was ignored, which the command inherits.
struct Signals {
    terminate: Arc<AtomicBool>,
    /// The last of the terminal's signals, or 0.
    interrupt: Arc<AtomicUsize>,
}

impl Signals {
    fn catch() -> Result<Self> {
        let terminate = Arc::new(AtomicBool::new(false));
        for signal in signals::terminating() {
            signal_hook::flag::register(signal, Arc::clone(&terminate))?;
        }
        let interrupt = Arc::new(AtomicUsize::new(0));
        for signal in [SIGINT, SIGQUIT] {
            let number = signal.unsigned_abs() as usize;
            signal_hook::flag::register_usize(signal, Arc::clone(&interrupt), number)?;
        }
        Ok(Self {
            terminate,
            interrupt,
        })
    }

    /// The exit code, as a shell has it, if the user has interrupted.
    fn interrupted(&self) -> Option<u8> {
        let signal = u8::try_from(self.interrupt.load(Ordering::Relaxed)).ok()?;
        (signal > 0).then_some(128 + signal)
    }
}
