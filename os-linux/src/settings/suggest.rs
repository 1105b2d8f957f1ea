//! The right name that is most similar to a wrong one.

/// The candidate with the fewest letters inserted, left out, changed or swapped; `None` where even that one
/// is far off.
pub(super) fn most_similar<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Names are shorter; a text of any length may come from outside.
    const NAME_CHARS_MAX: usize = 64;
    let wrong: String = wrong.to_lowercase().replace('-', "_").chars().take(NAME_CHARS_MAX).collect();
    let scored = candidates.into_iter().map(|name| (strsim::osa_distance(&wrong, name), name));
    let (distance, name) = scored.min_by_key(|(distance, _)| *distance)?;
    (distance <= 1 + name.len() / 3).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_setting_name_is_suggested_only_if_similar() {
        let names = ["window", "windows", "tcp_port", "ack_delay"];
        assert_eq!(most_similar("windwo", names), Some("window"));
        assert_eq!(most_similar("TCP-PORT", names), Some("tcp_port"));
        assert_eq!(most_similar("akc_dealy", names), Some("ack_delay"));
        assert_eq!(most_similar("colour", names), None);
        assert_eq!(most_similar(&"x".repeat(100_000), names), None);
        assert_eq!(most_similar("x", []), None);
    }
}
