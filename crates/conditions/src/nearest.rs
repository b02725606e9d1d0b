//! Suggestions for an unknown name.

/// Returns the member of `all` that is nearest to `name`: one that begins with it, or otherwise one that differs in few
/// letters.
pub fn of<'a>(name: &str, all: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
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
        Some(near) => format!("; did you mean `{near}`?"),
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
        assert_eq!(or_all("tram", ["line", "bus"]), "; use one of: line, bus");
        assert_eq!(or_all("z", ["a"]), "; use one of: a");
        assert_eq!(or_all("z", []), "; there are none");
    }
}
