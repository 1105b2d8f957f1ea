//! The kinds of timers of a channel. `tables` sets and stops them, and `feed` has their expiry. `timer.table`
//! lists the functions that set each kind and the one that its expiry calls.

/// Kinds of timers; each channel has one of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Timer {
    /// An acknowledgment is due at the latest.
    Ack = 0,
    /// The peer must be connected.
    Connect = 1,
    /// The peer has been silent.
    Silence = 2,
    /// A sampled rail must have answered.
    Sample = 3,
    /// A redial is due.
    Redial = 4,
    /// Stall check of rails with work.
    Watch = 5,
}

/// How many timers a channel has.
pub(crate) const TIMERS: u32 = Timer::ALL.len() as u32;

impl Timer {
    /// All kinds, in the order of their numbers.
    const ALL: [Timer; 6] = [Timer::Ack, Timer::Connect, Timer::Silence, Timer::Sample, Timer::Redial, Timer::Watch];

    /// The number of a channel's timer in the heap.
    #[inline]
    pub(super) const fn of(self, channel: u32) -> u32 {
        channel * TIMERS + self as u32
    }

    /// The channel and the kind of a number.
    pub(super) const fn named(id: u32) -> (u32, Timer) {
        (id / TIMERS, Timer::ALL[(id % TIMERS) as usize])
    }
}

const _: () = {
    let mut at = 0;
    while at < Timer::ALL.len() {
        assert!(Timer::ALL[at] as usize == at, "a kind's number is its place in the list");
        at += 1;
    }
};

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;
    use std::path::Path;
    use std::string::String;
    use std::vec::Vec;
    use std::{format, fs};

    /// The sources of the endpoint without tests and harnesses: name and text.
    fn sources() -> Vec<(String, String)> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/endpoint");
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "rs"));
        let mut sources: Vec<(String, String)> = files
            .map(|path| {
                let text = fs::read_to_string(&path).unwrap();
                let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
                (path.file_stem().unwrap().to_str().unwrap().into(), text.into())
            })
            .collect();
        sources.sort();
        sources
    }

    /// The name of the last function in `text`.
    fn function(text: &str) -> &str {
        let heads = ["fn ", "pub fn ", "pub(super) fn ", "pub(crate) fn "];
        let name =
            text.lines().rev().find_map(|line| heads.iter().find_map(|head| line.trim_start().strip_prefix(head)));
        name.and_then(|name| name.split('(').next()).unwrap()
    }

    /// The functions that set a timer of this kind.
    fn setters(sources: &[(String, String)], timer: Timer) -> Vec<String> {
        let mut setters = Vec::new();
        for (file, text) in sources.iter().filter(|(file, _)| file != "tables") {
            assert!(!text.contains("timers.set("), "{file}.rs sets a timer past `set_timer`");
            for (at, call) in text.match_indices(".set_timer(") {
                let kind = text[at + call.len()..].split(',').nth(1).unwrap().trim();
                assert!(kind.starts_with("Timer::"), "{file}.rs sets a timer whose kind is not a literal: {kind}");
                if kind == format!("Timer::{timer:?}") {
                    setters.push(format!("{file}::{}", function(&text[..at])));
                }
            }
        }
        setters.dedup();
        setters
    }

    /// The code matches the whole table: the functions that set each kind, and the one that its expiry calls.
    #[test]
    #[cfg_attr(miri, ignore = "reads files")]
    fn the_table() {
        let sources = sources();
        let arms = include_str!("feed.rs");
        let mut table = String::new();
        for timer in Timer::ALL {
            let (_, end) = arms.split_once(&format!("Timer::{timer:?} => self.")).unwrap();
            let end = end.split('(').next().unwrap();
            let setters = setters(&sources, timer);
            assert!(!setters.is_empty(), "nothing sets {timer:?}");
            for (at, setter) in setters.iter().enumerate() {
                let (kind, end) = if at == 0 { (format!("{timer:?}"), end) } else { (String::new(), "") };
                let line = format!("{kind:<9}{setter:<31}{end}");
                let _ = writeln!(table, "{}", line.trim_end());
            }
        }
        assert_eq!(table, include_str!("timer.table"), "\n{table}");
    }

    /// Every number maps back to the timer that it was made for.
    #[test]
    fn numbers_name_their_timers() {
        let made: Vec<(u32, Timer)> = (0..3).flat_map(|channel| Timer::ALL.map(|timer| (channel, timer))).collect();
        for (id, &(channel, timer)) in made.iter().enumerate() {
            assert_eq!((timer.of(channel), Timer::named(id as u32)), (id as u32, (channel, timer)));
        }
    }
}
