//! Facts about the machine, which figures need to be understood.

use std::collections::BTreeMap;
use std::fs;
use std::process::{Command, Stdio};

use record::HostFacts;

use crate::path::rivals::rattan_path;

/// The peers, each with the option that prints its version.
const PEERS: [(&str, &str); 5] = [
    ("iperf3", "--version"),
    ("iperf", "-v"),
    ("nuttcp", "-V"),
    ("sockperf", "--version"),
    ("irtt", "version"),
];

/// Collects the facts of this machine; a fact that cannot be read is "unknown".
pub(crate) fn collect() -> HostFacts {
    let mut tools: BTreeMap<String, String> = PEERS
        .iter()
        .filter_map(|(tool, option)| Some(((*tool).to_owned(), version(tool, option)?)))
        .collect();
    let rattan = rattan_path().and_then(|path| version(path.to_str()?, "--version"));
    tools.extend(rattan.map(|version| ("rattan".to_owned(), version)));
    HostFacts {
        name: line("/proc/sys/kernel/hostname"),
        kernel: format!(
            "Linux {} {}",
            line("/proc/sys/kernel/osrelease"),
            std::env::consts::ARCH
        ),
        cpu: field("/proc/cpuinfo", "model name"),
        cpus: std::thread::available_parallelism().map_or(0, usize::from),
        memory: field("/proc/meminfo", "MemTotal"),
        clocksource: line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        tools,
    }
}

/// Returns the first word that begins with a digit in the version output of a program, on either stream.
fn version(program: &str, option: &str) -> Option<String> {
    let mut command = Command::new(program);
    let output = command.arg(option).stdin(Stdio::null()).output().ok()?;
    let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.push_str(&String::from_utf8_lossy(&output.stderr));
    let mut words = said.split(|c: char| c.is_whitespace() || c == '-' || c == ',');
    let found = words.find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    found.map(str::to_owned)
}

fn line(file: &str) -> String {
    fs::read_to_string(file).map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

fn field(file: &str, name: &str) -> String {
    let text = fs::read_to_string(file).unwrap_or_default();
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.split_once(':'));
    value.map_or_else(
        || "unknown".to_owned(),
        |(_, value)| value.trim().to_owned(),
    )
}
