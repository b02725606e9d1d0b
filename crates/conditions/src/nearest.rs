//! Suggestions for an unknown name.

/// Words that people use, and the names that farwire has for what they mean, the most common first.
const MEANINGS: &[(&str, &[&str])] = &[
    ("min", &["least"]),
    ("minimum", &["least"]),
    ("max", &["most"]),
    ("maximum", &["most"]),
    ("latency", &["delay"]),
    ("lag", &["delay"]),
    ("ping", &["delay"]),
    ("rtt", &["delay"]),
    ("bandwidth", &["rate", "bitrate"]),
    ("bw", &["rate", "bitrate"]),
    ("speed", &["rate", "bitrate"]),
    ("throughput", &["rate", "bitrate"]),
    ("bitrate", &["rate"]),
    ("packet_loss", &["loss"]),
    ("plr", &["loss"]),
    ("drop", &["loss"]),
    ("limit", &["queue"]),
    ("buffer", &["queue"]),
    ("qdisc", &["aqm"]),
    ("mtu", &["path_mtu"]),
    ("policer", &["police"]),
    ("packet_rate", &["pps"]),
    ("duration", &["time"]),
    ("seconds", &["time"]),
    ("streams", &["parallel"]),
    ("cong", &["congestion"]),
    ("cc", &["congestion"]),
    ("runs", &["repeats"]),
    ("iterations", &["repeats", "count"]),
    ("packets", &["count"]),
    ("server", &["at"]),
    ("src", &["source"]),
    ("dst", &["destination"]),
    ("address", &["host"]),
    ("ip", &["host"]),
    ("network", &["host"]),
    ("filter", &["match"]),
    ("proto", &["protocol"]),
    ("tos", &["dscp"]),
];

/// Words whose values differ from those of a name that they mean, and the value that is right there.
const OTHER_VALUES: &[(&str, &str, &str)] = &[("rtt", "delay", HALF), ("ping", "delay", HALF)];
const HALF: &str = "half of the round-trip time in each direction";

/// Returns the member of `all` that is nearest to `name`: one that differs only in hyphens and case, or otherwise one
/// that means the same, one that begins with it, or one that differs in few letters.
pub fn of<'a>(name: &str, all: impl IntoIterator<Item = &'a str> + Clone) -> Option<&'a str> {
    by_meaning(name, all.clone()).or_else(|| by_letters(name, all))
}

/// Returns the member of `all` that differs from `name` only in hyphens and case, or otherwise one that means the same.
pub fn by_meaning<'a>(name: &str, all: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = plain(name);
    let meant = MEANINGS.iter().find(|(word, _)| *word == name);
    let wanted = [name.as_str()].into_iter();
    let wanted: Vec<&str> = match meant {
        Some((_, names)) => wanted.chain(names.iter().copied()).collect(),
        None => wanted.collect(),
    };
    let rank = |known: &str| wanted.iter().position(|name| *name == plain(known));
    all.into_iter()
        .filter_map(|known| Some((rank(known)?, known)))
        .min()
        .map(|(_, known)| known)
}

/// Returns the value that the name `meant` has, if `name` has another one: "half of the round-trip time in each direction".
pub fn other_value(name: &str, meant: &str) -> Option<&'static str> {
    let (name, meant) = (plain(name), plain(meant));
    let is_it = |(word, known, _): &&(&str, &str, &str)| *word == name && *known == meant;
    OTHER_VALUES.iter().find(is_it).map(|(_, _, value)| *value)
}

fn plain(name: &str) -> String {
    name.replace('-', "_").to_ascii_lowercase()
}

/// Returns the member of `all` that begins with `name`, or otherwise one that differs in few letters.
fn by_letters<'a>(name: &str, all: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// The least length of a name that is compared with beginnings; shorter ones begin too many names.
    const BEGINNING: usize = 3;
    all.into_iter()
        .map(|known| {
            let begins = name.len() >= BEGINNING && known.starts_with(name);
            let distance = strsim::damerau_levenshtein(name, known);
            (!begins, distance, known)
        })
        .filter(|(other, distance, known)| {
            !other || (*distance <= known.len().max(3) / 2 && *distance < known.len())
        })
        .min()
        .map(|(_, _, known)| known)
}

/// Returns the end of a message: the nearest name, or otherwise all of them.
pub fn or_all<'a>(name: &str, all: impl IntoIterator<Item = &'a str>) -> String {
    let all: Vec<&str> = all.into_iter().collect();
    match of(name, all.iter().copied()) {
        Some(near) => match other_value(name, near) {
            Some(value) => format!("; did you mean `{near}`, {value}?"),
            None => format!("; did you mean `{near}`?"),
        },
        None if all.is_empty() => "; there are none".to_owned(),
        None => format!("; use one of: {}", all.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested_or_all_are_listed() {
        assert_eq!(or_all("lien", ["line", "bus"]), "; did you mean `line`?");
        assert_eq!(
            of("goodput", ["host_ms", "goodput_bit_per_s"]),
            Some("goodput_bit_per_s")
        );
        assert_eq!(of("fq-codel", ["codel", "fq_codel"]), Some("fq_codel"));
        assert_eq!(or_all("tram", ["line", "bus"]), "; use one of: line, bus");
        assert_eq!(or_all("z", ["a"]), "; use one of: a");
        assert_eq!(or_all("z", []), "; there are none");
    }

    #[test]
    fn a_word_for_the_same_thing_suggests_its_name() {
        assert_eq!(of("min", ["met", "least", "most"]), Some("least"));
        assert_eq!(of("latency", ["rate", "delay"]), Some("delay"));
        assert_eq!(of("packet-loss", ["delay", "loss"]), Some("loss"));
        assert_eq!(
            or_all("RTT", ["delay", "rate"]),
            "; did you mean `delay`, half of the round-trip time in each direction?"
        );
        assert_eq!(of("bandwidth", ["bitrate", "time"]), Some("bitrate"));
        assert_eq!(of("mtu", ["path-mtu", "rate"]), Some("path-mtu"));
        // The name exists nowhere, so letters decide.
        assert_eq!(of("min", ["mins"]), Some("mins"));
        assert_eq!(by_meaning("delya", ["delay"]), None);
    }
}
