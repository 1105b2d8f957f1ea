//! `Display` of losses: the reason, over which rails, and which attempts were made.
//!
//! Rails are numbers here; a driver that has their names can write a better message.

use core::error::Error;
use core::fmt::{self, Display, Formatter};

use super::event::{Loss, LossReason, RailFault};
use crate::ids::RailId;
use crate::time::Nanos;

/// "with tag 0x7".
pub(super) struct Tagged(pub(super) Option<u64>);

impl Display for Tagged {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(tag) => write!(f, "with tag {tag:#x}"),
            None => f.write_str("without a tag"),
        }
    }
}

/// "no rail was ready for 12.3 ms".
struct Unready(Nanos);

impl Display for Unready {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Nanos(time) = self.0;
        let (unit, name) = if time < 1_000_000_000 { (1_000_000, "ms") } else { (1_000_000_000, "s") };
        // Rounded to a tenth.
        let tenths = time.saturating_add(unit / 20) / (unit / 10);
        write!(f, "no rail was ready for {}.{} {name}", tenths / 10, tenths % 10)
    }
}

impl Loss {
    /// Writes why the peer is lost, over which rails, and which attempts were made, as its `Display` does,
    /// but with a driver's names of its rails: `name` writes a rail's name, `fault` the rail's report.
    pub fn describe(
        &self,
        f: &mut Formatter<'_>,
        name: impl Fn(RailId, &mut Formatter<'_>) -> fmt::Result,
        fault: impl Fn(RailFault, &mut Formatter<'_>) -> fmt::Result,
    ) -> fmt::Result {
        let rail = |f: &mut Formatter<'_>, rail, what| {
            f.write_str("rail ")?;
            name(rail, f)?;
            f.write_str(": ")?;
            fault(what, f)
        };
        match self.reason {
            LossReason::RailFailed { rail: failed, fault } => rail(f, failed, fault)?,
            LossReason::Unreachable { rail: last, fault } => {
                f.write_str("no rail leads to it, at last ")?;
                rail(f, last, fault)?;
            }
            reason @ (LossReason::ConnectTimeout | LossReason::Silent | LossReason::Protocol(_)) => reason.fmt(f)?,
        }
        if self.time.0 > 0 {
            write!(f, "; {}", Unready(self.time))?;
        }
        f.write_str("; connections that failed: ")?;
        let most = self.attempts_max();
        for (at, (rails, failed)) in self.attempts().enumerate() {
            f.write_str(if at > 0 { ", " } else { "" })?;
            match failed {
                0 => f.write_str("none")?,
                failed if failed >= most => write!(f, "{failed} or more")?,
                _ => write!(f, "{failed}")?,
            }
            let named = (0..64).filter(|bit| rails >> bit & 1 == 1);
            for (at, bit) in named.enumerate() {
                f.write_str(if at > 0 { " and " } else { " over " })?;
                name(RailId(bit), f)?;
            }
        }
        Ok(())
    }
}

impl Display for Loss {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        self.describe(f, |rail, f| rail.fmt(f), |fault, f| fault.fmt(f))
    }
}

impl Error for Loss {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.reason)
    }
}
