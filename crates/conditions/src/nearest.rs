//! What a name that is not there should perhaps have been.

/// The one of `all` that is near to `name`: one that begins with it, or else differs in few letters.
pub fn of<'a>(name: &str, all: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// Shorter ones begin too many.
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

/// The end of a message: the nearest to `name`, or else all there are.
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
    fn the_nearest_is_named_or_else_all() {
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
