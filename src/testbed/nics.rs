//! Two network interfaces of this machine, with whatever network is between them: the test bed
//! `nics`.
//!
//! A separate process, the NIC holder, borrows the interfaces and gives them back when this process
//! ends in any way. It is this program again, started with the hidden command `nic-holder`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use netio::netns::NetNs;
use netio::nic::{BorrowedNic, NicConfig};
use serde::{Deserialize, Serialize};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use super::listener::{serve_in, start_far_end};
use super::stalls::StallWatch;
use super::{ClientWork, LinkSummaries, Testbed};
use instruments::external::{Running, Tool};
use instruments::measure::FarEnd;
use instruments::serve::FarEndServer;
use record::Measurement;
use record::bed::{Nic, Nics};
use record::lateness::LateBudget;

/// The name of the hidden command.
const NIC_HOLDER: &str = "nic-holder";

/// Both interfaces, each in a separate namespace, as long as this value exists.
pub(super) struct HeldNics {
    nics: Nics,
    client: NetNs,
    server: NetNs,
    holder: Child,
    /// The standard input of the NIC holder, which gives the interfaces back when it closes.
    stdin: Option<ChildStdin>,
}

/// The answer of the NIC holder: its descriptors of the namespaces, or the reason for a refusal.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum HolderAnswer {
    Held { client: i32, server: i32 },
    Refused(String),
}

impl HeldNics {
    /// Starts a NIC holder, which borrows the interfaces.
    ///
    /// # Errors
    /// Fails without borrowing anything if an interface is missing, in use or without a carrier.
    pub(super) fn borrow(nics: &Nics) -> Result<Self> {
        let mut holder = Command::new("/proc/self/exe")
            .arg(NIC_HOLDER)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // Its own process group keeps the terminal's Ctrl-C away from it, which would end it
            // before the run.
            .process_group(0)
            .spawn()
            .context("cannot start the helper process of the interfaces")?;
        let mut stdin = holder
            .stdin
            .take()
            .context("the helper process has no input")?;
        let answers = holder
            .stdout
            .take()
            .context("the helper process has no output")?;
        writeln!(stdin, "{}", serde_json::to_string(nics)?)?;
        let mut line = String::new();
        BufReader::new(answers).read_line(&mut line)?;
        match serde_json::from_str(&line).context("the helper process of the interfaces ended")? {
            HolderAnswer::Refused(why) => {
                drop(stdin);
                holder.wait()?;
                Err(anyhow!("bed `nics`: {why}"))
            }
            HolderAnswer::Held { client, server } => {
                let open = |fd| NetNs::of_process(holder.id(), fd);
                Ok(Self {
                    nics: nics.clone(),
                    client: open(client)?,
                    server: open(server)?,
                    holder,
                    stdin: Some(stdin),
                })
            }
        }
    }

    /// Returns true if these are the interfaces `nics`.
    pub(super) fn is_of(&self, nics: &Nics) -> bool {
        self.nics == *nics
    }
}

impl Drop for HeldNics {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // The experiment is over only when the interfaces are back.
        let _ = self.holder.wait();
    }
}

/// Runs the NIC holder: borrows the interfaces named on standard input, answers, and gives them
/// back at the end of the input.
///
/// # Errors
/// Fails if standard input or output fails.
pub(crate) fn hold() -> Result<()> {
    for signal in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        // These signals may reach the holder together with its parent process; the holder ends only
        // with that.
        signal_hook::flag::register(signal, Arc::default())?;
    }
    let mut input = BufReader::new(std::io::stdin());
    let mut line = String::new();
    input.read_line(&mut line)?;
    let nics: Nics = serde_json::from_str(&line).context("which interfaces to hold")?;
    let borrow = || -> Result<[BorrowedNic; 2]> {
        let client = BorrowedNic::take(&config(&nics.client))?;
        Ok([client, BorrowedNic::take(&config(&nics.server))?])
    };
    let borrowed = borrow();
    let answer = match &borrowed {
        Ok(borrowed) => {
            let [client, server] = borrowed
                .each_ref()
                .map(|nic| nic.namespace().as_fd().as_raw_fd());
            HolderAnswer::Held { client, server }
        }
        Err(why) => HolderAnswer::Refused(format!("{why:#}")),
    };
    writeln!(std::io::stdout(), "{}", serde_json::to_string(&answer)?)?;
    input.read_to_end(&mut Vec::new())?;
    Ok(())
}

fn config(nic: &Nic) -> NicConfig {
    NicConfig {
        interface: nic.interface.clone(),
        address: (nic.address.addr(), nic.address.prefix_len()),
        gateway: nic.gateway,
    }
}

struct NicsTestbed {
    stalls: StallWatch,
    nics: Arc<HeldNics>,
    far_end: FarEndServer,
    http: u16,
}

/// Sets up a far end on the server's interface.
pub(super) fn set_up(
    nics: Arc<HeldNics>,
    congestion: &str,
    late_budget: LateBudget,
) -> Result<Box<dyn Testbed>> {
    let address = nics.nics.server.address.addr();
    let far_end = start_far_end(&nics.server, address, congestion, 1)?;
    Ok(Box::new(NicsTestbed {
        stalls: StallWatch::begin(late_budget)?,
        http: far_end.address("http")?.port(),
        far_end,
        nics,
    }))
}

impl Testbed for NicsTestbed {
    fn far_end(&self) -> FarEnd {
        FarEnd {
            address: self.nics.nics.server.address.addr(),
            http: self.http,
        }
    }

    fn environment(&self) -> BTreeMap<String, String> {
        let Nics { client, server } = &self.nics.nics;
        let congestion = self.far_end.congestion();
        [
            ("client's interface", client.interface.as_str()),
            ("far end's interface", server.interface.as_str()),
            (
                "TCP congestion control of the far end, read back",
                congestion,
            ),
        ]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into()
    }

    fn in_client(&self, _: usize, work: ClientWork<'_>) -> Result<Measurement> {
        Ok(self.nics.client.run(work)?)
    }

    fn far_namespace(&self) -> Option<&NetNs> {
        Some(&self.nics.server)
    }

    fn serve_with(&self, tool: &Tool, arguments: &[String], port: u16) -> Result<Option<Running>> {
        serve_in(&self.nics.server, tool, arguments, port).map(Some)
    }

    fn spoilt(&self) -> Option<String> {
        self.stalls.spoilt()
    }

    fn tear_down(self: Box<Self>) -> Result<LinkSummaries> {
        Ok(Vec::new())
    }
}
