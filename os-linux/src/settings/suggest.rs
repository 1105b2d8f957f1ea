//! The right name that is most similar to a wrong one.

/// The candidate with the fewest letters inserted, left out, changed or swapped; `None` where even that one
/// is far off.
pub(super) fn most_similar<'a>(wrong: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Unknown names can be long; ours are short.
    const NAME_CHARS_MAX: usize = 64;
    let wrong: Vec<char> = wrong.to_lowercase().replace('-', "_").chars().take(NAME_CHARS_MAX).collect();
    let scored = candidates.into_iter().map(|name| (distance(&wrong, &name.chars().collect::<Vec<_>>()), name));
    let (distance, name) = scored.min_by_key(|(distance, _)| *distance)?;
    (distance <= 1 + name.len() / 3).then_some(name)
}

/// Optimal string alignment distance, by the book: three rows of the table at a time.
fn distance(one: &[char], other: &[char]) -> usize {
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, b) in other.iter().enumerate() {
            let mut best = (last[j] + usize::from(a != b)).min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && *a == other[j - 1] && one[i - 1] == *b {
                best = best.min(before_last[j - 1] + 1);
            }
            row.push(best);
        }
        before_last = std::mem::replace(&mut last, row);
    }
    last[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        let of =
            |one: &str, other: &str| distance(&one.chars().collect::<Vec<_>>(), &other.chars().collect::<Vec<_>>());
        for (one, other, expected) in [
            ("", "", 0),
            ("", "abc", 3),
            ("window", "window", 0),
            ("windwo", "window", 1),
            ("widow", "window", 1),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(of(one, other), expected, "{one} {other}");
            assert_eq!(of(other, one), expected, "{other} {one}");
        }
    }

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
