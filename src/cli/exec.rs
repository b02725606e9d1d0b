//! `farwire exec`: runs a command or a shell behind an emulated link.

use std::ffi::OsString;
use std::io::{self, IsTerminal as _};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use netio::UdpErrors;
use netio::bed::{BedConfig, SERVER};
use netio::contain::{self, Contained};
use signal_hook::consts::{SIGINT, SIGQUIT};

use super::args::api_server::{ListenArg, LiveServer};
use super::args::forwarder::{ForwarderArgs, LinkEnds};
use super::args::headings;
use super::args::host_network::HostNetworkArgs;
use super::args::link_conditions::{self, ConditionsArgs};
use super::args::screen::{LiveScreen, TuiArg};
use super::host_watch::{SERVER_VARIABLE, WatchedCommands};
use crate::exit::ENV_FAILED;
use crate::forward::thread::EMULATOR_DIED;
use crate::host_network::{self, HOST_NAME, JoinedHost};
use crate::live::NewLink;
use crate::notes::note;
use crate::testbed::{self, CommandUser, EmulatedBed, StallWatch};
use crate::tui::CommandOutput;
use conditions::{LinkSpec, warnings};
use instruments::failure::{Blame, Failure};
use instruments::output::write_json;
use instruments::serve::{self, ServeConfig, ServiceLimits, ServicePorts};
use netio::signals;
use netio::stop::Stop;
use netio::unreachable::Unreachable;
use record::bed::THE_LINK;
use record::lateness::{self, LinkDepartures, Traffic};
use record::quantity::counted;

/// Run a command or a shell behind an emulated link
///
/// The command runs in a network namespace from which it reaches only the far end, at 10.77.0.2 and fd77::2 ($FARWIRE_SERVER).
/// There, `farwire serve` answers every instrument of `farwire measure`, iperf3 clients, and HTTP on port 80 (/bytes/N,
/// /seconds/T). With `--net host` it also reaches the network of this host, and the host itself at host.farwire.internal.
/// exec needs no root. When the command ends, exec prints the link's counters and how late packets left the emulator.
#[derive(Args, Debug)]
pub(crate) struct ExecArgs {
    #[command(flatten)]
    link: ConditionsArgs,
    /// Run this shell command at the far end, in place of farwire's server
    #[arg(long, value_name = "COMMAND", help_heading = BED_HEADING)]
    far: Option<String>,
    /// Largest packet at L3, in bytes
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 1500,
        help_heading = BED_HEADING,
        hide_short_help = true
    )]
    mtu: u32,
    #[command(flatten)]
    host_network: HostNetworkArgs,
    /// Run the command as user 0 of a user namespace
    #[arg(long, help_heading = BED_HEADING, hide_short_help = true)]
    root: bool,
    /// Write the link's counters as JSON to FILE (- for standard output)
    #[arg(long, value_name = "FILE", help_heading = headings::OUTPUT)]
    json: Option<PathBuf>,
    /// Exit with 125 if the command succeeds but a rule matched no packet
    #[arg(long, help_heading = headings::OUTPUT, hide_short_help = true)]
    require_hits: bool,
    #[command(flatten)]
    forwarder: ForwarderArgs,
    #[command(flatten)]
    listen: ListenArg,
    #[command(flatten)]
    tui: TuiArg,
    /// Command and its arguments [default: your shell, which reads standard input]
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The heading of the options of the far end and its network.
const BED_HEADING: &str = "Test bed";
/// The longest time until the far end's command listens.
const FAR_PATIENCE: Duration = Duration::from_secs(2);
/// The exit code if the user leaves before the command runs: 128 plus the number of SIGTERM.
const TERMINATED: u8 = 128 + 15;
/// The exit code, as a shell has it, of a command that SIGKILL ended.
const KILLED: u8 = 128 + 9;
/// The interval at which the end of the command and signals are checked.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

impl ExecArgs {
    /// Runs the command and returns its exit code.
    pub(crate) fn run(&self) -> Result<ExitCode, Failure> {
        let has_screen = self.tui.is_wanted()?;
        if has_screen && self.command.is_empty() {
            return Err(Failure::bad_input(
                "--tui: a shell needs the terminal too: name a command after --",
            ));
        }
        let mut spec = self.link.to_spec().or_bad_input()?;
        if self.require_hits && spec.rules.is_empty() {
            return Err(Failure::bad_input(
                "--require-hits: the link has no rules: add --rule, or leave --require-hits out",
            ));
        }
        link_conditions::resolve_hosts(&mut spec).or_bad_input()?;
        let link = spec.to_link("box").or_bad_input()?;
        let listening = self
            .listen
            .open(THE_LINK, &self.link.named_files().profiles)?;
        let host_network = self.host_network.prepare()?;
        let user = if self.root {
            CommandUser::Root
        } else {
            CommandUser::Caller
        };
        if host_network.is_some() {
            // pasta, which is confined, cannot enter the namespaces of a process with all rights on the host.
            testbed::isolate(user)?;
        } else {
            testbed::gain_privilege(user)?;
        }
        link_conditions::warn_of_hidden_rules(None, &link.rules);
        let mut notes = warnings::of_link(&link.config);
        notes.extend(link_conditions::beyond_host(&link.config, []));
        let signals = Signals::catch()?;
        let ends = LinkEnds::OfOne(["client's side", "server's side"]);
        let options = self.forwarder.options([&spec], &ends)?;
        let config = BedConfig {
            mtu: self.mtu,
            ..BedConfig::default()
        };
        let bed = EmulatedBed::up(&config, vec![(link, options)])?;
        let began = Instant::now();
        let output = has_screen.then(CommandOutput::new).transpose()?;
        let far = self.start_far_end(&bed, output.as_ref())?;
        let joined = host_network.map(|host| host.join(&bed, &config));
        let joined = joined.transpose().or_machine()?;
        let host = StallWatch::begin(self.forwarder.late_budget())?;
        let live = listening
            .map(|listening| LiveServer::start(listening, [live_link(&bed, &spec)?]))
            .transpose()?;
        note(format_args!(
            "farwire: link: {}",
            crate::live::in_force(&spec)
        ));
        link_conditions::note_all(notes);
        if self.command.is_empty() && io::stdin().is_terminal() {
            note(format_args!(
                "farwire: the far end is {} ($FARWIRE_SERVER); leave this shell with `exit`",
                SERVER.v4
            ));
            if joined.is_some() {
                note(format_args!("farwire: this host is {HOST_NAME}"));
            }
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
        let before = Unreachable::so_far(bed.client())?;
        let console = Console {
            output: output.as_ref(),
            leaves: &leaves,
        };
        let code = self.run_command(&bed, &signals, console, joined.as_ref());
        let ran = began.elapsed();
        // A link that can be changed may have had another schedule.
        let is_unchanged = live.is_none() && screen.is_none();
        let missed = Unreachable::so_far(bed.client())?.since(before);
        let hint = match &joined {
            None => missing_network(missed),
            // A command that succeeded has missed no name.
            Some(_) if matches!(code, Ok(0)) => None,
            Some(joined) => joined.silent_resolvers(),
        };
        let is_joined = joined.is_some();
        drop((screen, far, live, joined));
        // A terminal that is gone does not change the exit code of the command.
        if let Some(Err(error)) = output.map(|output| output.print()) {
            note(format_args!(
                "farwire: cannot print the output of the command: {error}"
            ));
        }
        let sockets = full_sockets(&bed);
        let judged = [judged_departures(&bed), host.spoilt(), sockets, hint];
        // If the emulator died, its cause comes before the consequences.
        let links = bed.down()?;
        let code = code?;
        let mut links = links.into_iter();
        let mut summary = links.next().context("the test bed has no link")?;
        note(format_args!("farwire: {summary}"));
        let repeated = is_joined.then(|| host_network::repeated_downloads(&summary.down));
        let judged = judged.into_iter().chain([repeated.flatten()]);
        summary.notes = judged.flatten().collect();
        for cause in &summary.notes {
            note(format_args!("farwire: {cause}"));
        }
        if is_unchanged {
            let of_time = warnings::of_time(&spec, ran.into(), "the run took");
            link_conditions::note_all(of_time);
        }
        link_conditions::warn_of_unread_traces();
        let lacks_hits = link_conditions::warn_of_rules_without_hits(None, &summary);
        if let Some(file) = &self.json {
            write_json(file, &summary)?;
        }
        let is_refused = self.require_hits && lacks_hits && code == 0;
        Ok(ExitCode::from(if is_refused { ENV_FAILED } else { code }))
    }

    /// Runs the command to its end. The first request to leave terminates the command, the second one kills it.
    fn run_command(
        &self,
        bed: &EmulatedBed,
        signals: &Signals,
        Console { output, leaves }: Console<'_>,
        joined: Option<&JoinedHost>,
    ) -> Result<u8> {
        let mut watched = WatchedCommands::listen(bed, self.forwarder.late_budget())?;
        let is_shell = self.command.is_empty();
        let mut command = if is_shell {
            contain::shell(bed.client(), users_shell())?
        } else {
            contain::command(bed.client(), &self.command)?
        };
        command.env(SERVER_VARIABLE, SERVER.v4.to_string());
        if let Some(joined) = joined {
            joined.prepare(&mut command);
        }
        if let Some(output) = output {
            command.stdin(Stdio::null());
            command.stdout(output.stream()?).stderr(output.stream()?);
        }
        if let Some(code) = signals.interrupted() {
            return Ok(code);
        }
        let mut child = Contained::spawn(&mut command).context("cannot start the command")?;
        // A signal that came meanwhile may have reached no process. Dropping the child ends it.
        if let Some(code) = signals.interrupted() {
            return Ok(code);
        }
        if leaves.load(Ordering::Relaxed) > 0 {
            return Ok(TERMINATED);
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
            joined.map_or(Ok(()), JoinedHost::check)?;
            watched.serve();
            let left = leaves.load(Ordering::Relaxed);
            if left > 1 {
                return Ok(KILLED);
            }
            // While the screen has the terminal, an interrupt comes from elsewhere and reached farwire alone.
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

    /// Starts the server or the command at the far end, and waits until it listens.
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
        let far = Contained::spawn(&mut command).context("cannot start the command of --far")?;
        testbed::await_listener(bed.server(), None, FAR_PATIENCE)?;
        Ok(FarEnd::Command(far))
    }
}

/// The screen on which the output of the command is shown, if there is one.
#[derive(Clone, Copy)]
struct Console<'a> {
    output: Option<&'a CommandOutput>,
    /// The number of requests of its user to leave.
    leaves: &'a AtomicU32,
}

/// Returns a hint if the command tried to reach what a test bed alone does not have.
fn missing_network(missed: Unreachable) -> Option<String> {
    let wanted = if missed.no_route > 0 {
        "tried to reach a network beyond the far end"
    } else if missed.own_port > 0 && host_network::is_on_loopback() {
        "tried to look up names, but there is no resolver"
    } else {
        return None;
    };
    Some(format!(
        "the command {wanted}: with `farwire exec --net host` it reaches this host's network through the link"
    ))
}

/// Returns a warning if too many packets left late: which figures of a measurement then show the machine and not the link.
fn judged_departures(bed: &EmulatedBed) -> Option<String> {
    let links = bed.departures(&[THE_LINK.to_owned()]);
    let before = links.iter().map(|link| LinkDepartures {
        flows: Vec::new(),
        ..link.clone()
    });
    let before: Vec<_> = before.collect();
    let kinds = [Traffic::Icmp, Traffic::Tcp(None), Traffic::Udp(None)];
    // Packets that belong to no kind may belong to each of them.
    let judged = kinds.iter().filter_map(|kind| {
        let late = lateness::between(&before, &links, &[*kind]);
        let count: u64 = late.iter().map(|one| one.departed.late).sum();
        Some((count, lateness::advice(&late)?))
    });
    let worst = judged.max_by_key(|(count, _)| *count);
    worst.map(|(_, advice)| advice)
}

/// Returns a warning if UDP sockets in the bed had no room for datagrams, which a tool counts as lost though no link dropped them.
/// The counters of the bed's namespaces began at 0.
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
            "full UDP sockets dropped {}: tools count these as lost, but the link did not drop them",
            dropped.join(", ")
        )
    })
}

/// Returns the link in the form that the live page and the screen use.
fn live_link(bed: &EmulatedBed, spec: &LinkSpec) -> Result<NewLink> {
    let forwarder = bed
        .forwarders()
        .next()
        .context("the test bed has no link")?;
    Ok(NewLink {
        name: THE_LINK.to_owned(),
        ends: ["client", "server"].map(str::to_owned).into(),
        forwarder: forwarder.clone(),
        number: 0,
        spec: spec.clone(),
        build: Ok(Box::new(|spec| spec.to_link("box"))),
    })
}

/// Returns `$SHELL`, as login(1) sets it, else /bin/sh.
fn users_shell() -> OsString {
    let shell = std::env::var_os("SHELL").filter(|shell| !shell.is_empty());
    shell.unwrap_or_else(|| "/bin/sh".into())
}

/// The server or the command at the far end, which ends when this is dropped.
enum FarEnd {
    Server(#[expect(dead_code, reason = "dropping it ends the server")] serve::FarEndServer),
    Command(#[expect(dead_code, reason = "dropping it ends the command")] Contained),
}

/// The signals of this process. The terminal sends its own to the command too. SIGTERM and SIGHUP are passed on to the command,
/// unless SIGHUP was ignored, which the command inherits.
struct Signals {
    terminate: Arc<AtomicBool>,
    /// The last signal of the terminal, or 0.
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

    /// Returns the exit code that a shell would give if the user has interrupted.
    fn interrupted(&self) -> Option<u8> {
        let signal = u8::try_from(self.interrupt.load(Ordering::Relaxed)).ok()?;
        (signal > 0).then_some(128 + signal)
    }
}
