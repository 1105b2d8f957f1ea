//! Sets of values for jobs of thousands of processes, where memory is short.

use super::{Problem, Settings, Source, find};

/// Values of several settings under one name; each setting that is set by itself counts before its preset's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Preset {
    /// The defaults, for up to 64 connected peers.
    #[default]
    Standard,
    /// 256 connected peers in 54 MB a process over shared memory, verbs and TCP, with 32,768 processes, 8 of
    /// them on each host; in 40 MB over shared memory and one of the others, with 16. TCP has a third of its
    /// bandwidth, as its buffers in the kernel are small.
    Compact,
    /// The same in 26 MB over shared memory and one other kind of rail. TCP has a ninth of its bandwidth.
    Lean,
}

impl Preset {
    /// All of them, what takes more memory for a connected peer first.
    pub const ALL: [Preset; 3] = [Preset::Standard, Preset::Compact, Preset::Lean];

    pub(super) const NAMES: &'static [&'static str] = &["standard", "compact", "lean"];

    /// Its name, as the value of the setting `preset`.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// Names of settings and their values, as they may be written.
    const fn values(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Preset::Standard => &[],
            Preset::Compact => &[
                ("channels", "256"),
                ("operations", "2048"),
                ("unexpected", "64"),
                ("blocks", "16"),
                ("requests", "4"),
                ("retained", "128"),
                ("posts", "16"),
                ("shm_slots", "32"),
                ("tcp_sndbuf", "8K"),
                ("tcp_rcvbuf", "12K"),
                ("verbs_segment", "16K"),
                ("verbs_inline", "64"),
            ],
            Preset::Lean => &[
                ("channels", "256"),
                ("operations", "1024"),
                ("unexpected", "16"),
                ("blocks", "8"),
                ("requests", "2"),
                ("retained", "64"),
                ("posts", "8"),
                ("shm_slots", "8"),
                ("tcp_sndbuf", "6K"),
                ("tcp_rcvbuf", "6K"),
                ("verbs_segment", "16K"),
                ("verbs_sends", "32"),
                ("verbs_receives", "64"),
                ("verbs_inline", "64"),
            ],
        }
    }
}

impl Settings {
    /// Gives what is not set by itself the value of the preset, or its default where that has none.
    pub(super) fn take_preset(&mut self, problems: &mut Vec<Problem>) {
        let defaults = Settings::default();
        let earlier: Vec<&str> =
            self.sources.iter().filter(|(_, source)| **source == Source::Preset).map(|(name, _)| *name).collect();
        for setting_row in earlier.into_iter().filter_map(find) {
            (setting_row.set)(self, (setting_row.get)(&defaults));
            self.sources.remove(setting_row.name);
        }
        for (name, value) in self.preset.values() {
            if self.source(name) == Source::Default
                && let Some(setting_row) = find(name)
            {
                self.assign(setting_row, value, Source::Preset, problems);
            }
        }
    }
}
