//! Facts about the machine, which help to judge a record elsewhere.

use std::collections::BTreeMap;
use std::fs;

use record::HostFacts;

/// The sysctls that influence TCP. Their values depend on the network namespace of the reading
/// thread.
const NETWORK_SYSCTLS: [&str; 4] = [
    "net/ipv4/tcp_rmem",
    "net/ipv4/tcp_wmem",
    "net/ipv4/tcp_congestion_control",
    "net/ipv4/tcp_timestamps",
];

/// Collects the facts about this machine; a fact that cannot be read is "unknown".
pub(crate) fn collect(tools: BTreeMap<String, String>) -> HostFacts {
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

/// Reads the TCP settings of the calling thread's network namespace.
pub(crate) fn network_sysctls() -> BTreeMap<String, String> {
    let entry = |name: &&str| {
        let value = line(&format!("/proc/sys/{name}"));
        (name.replace('/', "."), value.replace('\t', " "))
    };
    NETWORK_SYSCTLS.iter().map(entry).collect()
}

/// Returns the default congestion control of this host's TCP sockets.
pub(crate) fn congestion() -> String {
    line("/proc/sys/net/ipv4/tcp_congestion_control")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_and_the_processors_are_known() {
        let facts = collect(BTreeMap::new());
        assert!(facts.kernel.starts_with("Linux ") && facts.cpus > 0);
        assert!(network_sysctls().contains_key("net.ipv4.tcp_rmem"));
    }
}
