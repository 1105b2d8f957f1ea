//! Weights of striping: what share of a large message each rail carries, fixed or adapting itself (multirail-2004, 4.4
//! and 4.5).
//!
//! # Invariants
//!
//! * The weights of the rails in use sum to [`TOTAL`], exactly, after every call ("a fixed number of total weights").
//! * Each rail in use weighs at least 1. A weight of 0 could never leave 0 again: without a stripe there is no time, and
//!   without a time no new weight. (Weight 0 is to use another mask: [`Weights::set_rails`].)
//! * Rounding is by largest remainder, ties to the lower rail: same calls, same weights, on every machine.
//!
//! # What adaptive striping promises
//!
//! The paper adjusts weights by the time from handing a stripe over until its completion was *noticed*, which is too long
//! where polling was late, and finds that "in no case will the redistribution result in worse performance". That holds
//! for its cases 1 (noticed at once) and 3 (all noticed together: [`Weights::adapt`] then changes nothing), and for case
//! 2 as long as the stripe that finished last is noticed when it finishes. Where *it* is noticed late, the rail looks
//! slower than it is, and the new weights can be worse than the old ones; the tests have the numbers. A scheduler that
//! must not fall for this measures by [`PathRate`](super::super::rate::PathRate), and has the weights
//! [follow](Weights::follow) that.

use super::Stripe;
use crate::ids::RailId;
use crate::rail::rate::Rate;

/// The sum of all weights, W_total of multirail-2004, 4.5: a unit is about 15 millionths of a message.
pub const TOTAL: u32 = 1 << 16;

/// Rails that may have a weight.
pub const RAILS_MAX: usize = 64;

/// The weights of one channel's rails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Weights {
    /// Bit per rail: it has a weight.
    rails: u64,
    /// Weight less one: so 1..=65536 fits, and the floor of 1 needs no guard. 0 for rails that have none.
    less_one: [u16; RAILS_MAX],
}

/// How far one message moves the weights: alpha of multirail-2004, equation 4, in 256ths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alpha(u16);

/// How long one stripe took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StripeTime {
    /// The rail that carried it.
    pub rail: RailId,
    /// Its length *as it was cut*, in bytes.
    pub bytes: u64,
    /// From when it was handed to the rail until its completion was noticed, in any unit that is the same for all
    /// stripes of the message; 0 counts as 1. Waiting behind earlier messages must not be counted:
    /// [`ServiceClock`](super::service::ServiceClock).
    pub ticks: u64,
}

/// Where a message may be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CutRule {
    /// No stripe is shorter than this, in bytes, unless it is the only one.
    pub bytes_min: u64,
    /// Stripes begin at multiples of this, in bytes; 0 counts as 1.
    pub align: u64,
}

impl Alpha {
    /// Half of the old weights stay: from equal weights on 4:1 rails, 10 messages leave a thousandth of the error. The
    /// paper doesn't tell its value.
    pub const HALF: Alpha = Alpha(128);

    /// `n` 256ths: 0 never changes a weight, 256 forgets all history (equation 3). More counts as 256.
    pub const fn from_256ths(n: u16) -> Self {
        Alpha(if n > 256 { 256 } else { n })
    }
}

impl Default for Alpha {
    fn default() -> Self {
        Alpha::HALF
    }
}

impl Default for Weights {
    /// No rail, no weight: the only state whose sum is 0.
    fn default() -> Self {
        Weights { rails: 0, less_one: [0; RAILS_MAX] }
    }
}

impl Weights {
    /// Even striping over the rails of a mask (multirail-2004, 4.4); weights differ by at most 1.
    pub fn even(rails: u64) -> Self {
        let mut weights = Weights::default();
        weights.apportion(TOTAL, rails, |_| 1);
        weights
    }

    /// Binding: one rail carries everything (multirail-2004, 4.4). Numbers from 64 on count modulo 64.
    pub fn binding(rail: RailId) -> Self {
        Weights::even(1 << (rail.0 % 64))
    }

    /// Weighted striping by fixed shares (multirail-2004, 4.4), of any scale: `shares[rail]`.
    ///
    /// A rail of the mask whose share is 0, or beyond the list's end, isn't used. Where that holds for all of them they are
    /// used evenly: a message has to go somewhere.
    pub fn fixed(rails: u64, shares: &[u32]) -> Self {
        let share = |rail: u8| shares.get(usize::from(rail)).copied().unwrap_or(0);
        let chosen = bits(rails).filter(|rail| share(*rail) > 0).fold(0, |mask, rail| mask | 1 << rail);
        if chosen == 0 {
            return Weights::even(rails);
        }
        let mut weights = Weights::default();
        weights.apportion(TOTAL, chosen, |rail| share(rail).into());
        weights
    }

    /// Bit per rail that has a weight.
    pub fn rails(&self) -> u64 {
        self.rails
    }

    /// The weight of a rail, in [`TOTAL`]ths: 1..=[`TOTAL`], or 0 if it has none.
    pub fn of(&self, rail: RailId) -> u32 {
        if rail.0 < 64 && self.rails >> rail.0 & 1 == 1 { self.at(rail.0) } else { 0 }
    }

    /// All weights, by rail.
    pub fn iter(&self) -> impl Iterator<Item = (RailId, u32)> + '_ {
        bits(self.rails).map(|rail| (RailId(rail), self.at(rail)))
    }

    /// From now on the rails of this mask are used.
    ///
    /// Those that come start with an even share, as all did at first; the others divide the rest in their old proportion,
    /// to which the weights of those that go are added. Nothing is kept of a rail that goes: what it could do then
    /// says little of what it can do when it returns.
    pub fn set_rails(&mut self, rails: u64) {
        if rails == self.rails {
            return;
        }
        let (old, stay) = (*self, self.rails & rails);
        if stay == 0 {
            *self = Weights::even(rails);
            return;
        }
        let staying = u64::from(stay.count_ones());
        let kept: u64 = bits(stay).map(|rail| u64::from(old.at(rail))).sum();
        // A newcomer has 1/count of all; who stays has its part of kept times staying/count.
        self.clear(old.rails & !rails);
        self.apportion(
            TOTAL,
            rails,
            |rail| {
                if stay >> rail & 1 == 1 { u64::from(old.at(rail)) * staying } else { kept }
            },
        );
    }

    /// Adapts the weights to what the stripes of one message took: equation 4 of multirail-2004. Tells whether any weight
    /// has changed.
    ///
    /// ```text
    /// W'_i = (1 - alpha) W_i + alpha W_total (B_i / t_i) / sum over k (B_k / t_k)
    /// ```
    ///
    /// * B_i are bytes as cut, where the paper has W_i. That's the same if weights stay as they are until the message is
    ///   complete. With several messages under way they don't: the time of a stripe would be blamed on a weight that it
    ///   wasn't cut by, and the weights would run away from any balance.
    /// * Only rails that carried a part and still have a weight take part; W_total is then the sum of their weights. The
    ///   others keep theirs.
    /// * If all times are equal nothing changes, exactly: the paper's case 3, one late poll that found everything.
    /// * A rail that is named twice carried both parts, and finished with the later one. Empty stripes say nothing.
    ///
    /// Equal latencies are assumed (4.5): added to times that differ, they don't move the balance, but different ones shift
    /// it, the more so the smaller the message.
    pub fn adapt(&mut self, alpha: Alpha, stripes: &[StripeTime]) -> bool {
        let mut carried = Carried { rails: 0, bytes: [0; RAILS_MAX], ticks: [0; RAILS_MAX] };
        for stripe in stripes {
            carried.add(stripe, self.rails);
        }
        if carried.is_simultaneous() {
            return false;
        }
        self.blend(alpha, carried.rails, &carried.rates())
    }

    /// Adapts the weights to measured rates: equation 4 with BW_i of equation 2 measured in another way, as by
    /// [`PathRate`](super::super::rate::PathRate), which late polling doesn't mislead. Tells whether any weight has
    /// changed. Rails that have no weight or whose rate is unknown take no part, and keep theirs.
    pub fn follow(&mut self, alpha: Alpha, measured: &[(RailId, Rate)]) -> bool {
        let (mut rails, mut rates) = (0, [0; RAILS_MAX]);
        for (rail, rate) in measured {
            if self.of(*rail) > 0 && rate.0 > 0 {
                rails |= 1 << rail.0;
                rates[usize::from(rail.0)] = rate.0;
            }
        }
        self.blend(alpha, rails, &rates)
    }

    /// Equation 4, for the rails of a mask, by their rates; all of it in integers.
    fn blend(&mut self, alpha: Alpha, rails: u64, rates: &[u32; RAILS_MAX]) -> bool {
        let old = *self;
        let total: u32 = bits(rails).map(|rail| old.at(rail)).sum();
        let sum: u64 = bits(rails).map(|rail| u64::from(rates[usize::from(rail)])).sum();
        let [stay, moved] = [256 - alpha.0, alpha.0].map(u64::from);
        // Both terms times 256 * sum: below 2^8 * 2^16 * 2^38.
        self.apportion(total, rails, |rail| {
            stay * u64::from(old.at(rail)) * sum + moved * u64::from(total) * u64::from(rates[usize::from(rail)])
        });
        *self != old
    }

    /// Cuts a message of `bytes` into stripes in proportion to the weights, in the order of the rails. Fills
    /// `stripes[rail]` of the rails that carry a part, and leaves the others alone; answers the mask of those rails.
    ///
    /// The lengths sum to `bytes`; each differs from its exact share by less than two alignments. Rails whose share would
    /// be shorter than the rule allows carry nothing, those of least weight first (among equals the higher rail), and
    /// their shares go to the others. One rail always remains, unless there is none below `stripes.len()` or nothing to
    /// send.
    pub fn cut(&self, bytes: u64, rule: CutRule, stripes: &mut [Stripe]) -> u64 {
        let known = u64::MAX.checked_shr(64 - stripes.len().min(64) as u32).unwrap_or(0);
        if bytes == 0 || self.rails & known == 0 {
            return 0;
        }
        let align = rule.align.max(1);
        // In units of the alignment: the floors of shares then sum to no more than the whole, and a stripe gets at least
        // the floor of its share, which is what the minimum is asked of.
        let units = bytes / align;
        let (rails, sum) = self.carriers(self.rails & known, units, rule.bytes_min.div_ceil(align).max(1));
        let (mut start, mut weight) = (0, 0);
        for rail in bits(rails) {
            weight += self.at(rail);
            let end = if weight == sum { bytes } else { part(units, weight, sum) * align };
            stripes[usize::from(rail)] = Stripe { next: start, end };
            start = end;
        }
        rails
    }

    /// The heaviest rails of a mask, as many as get at least `units_min` of the units each, and the sum of their weights.
    fn carriers(&self, rails: u64, units: u64, units_min: u64) -> (u64, u32) {
        let sum = bits(rails).map(|rail| self.at(rail)).sum();
        let lightest = bits(rails).map(|rail| self.at(rail)).min().unwrap_or(0);
        if part(units, lightest, sum) >= units_min {
            return (rails, sum);
        }
        // From the heaviest down, each one has less of more than the one before: the first that gets too little ends it.
        let (mut taken, mut sum) = (0u64, 0);
        while let Some(rail) = bits(rails & !taken).max_by_key(|rail| (self.at(*rail), 63 - rail)) {
            let weight = self.at(rail);
            if taken != 0 && part(units, weight, sum + weight) < units_min {
                break;
            }
            (taken, sum) = (taken | 1 << rail, sum + weight);
        }
        (taken, sum)
    }

    /// The weight of a rail of the mask.
    fn at(&self, rail: u8) -> u32 {
        u32::from(self.less_one[usize::from(rail)]) + 1
    }

    fn clear(&mut self, rails: u64) {
        self.rails &= !rails;
        for rail in bits(rails) {
            self.less_one[usize::from(rail)] = 0;
        }
    }

    /// Divides `total` among the rails of the mask, in proportion to `parts`, at least 1 to each: by largest remainder, so
    /// that the sum is exact; ties to the lower rail. `total` is at least the number of rails, and some part isn't 0.
    fn apportion(&mut self, total: u32, rails: u64, parts: impl Fn(u8) -> u64) {
        self.rails |= rails;
        let total = u128::from(total);
        let all: u128 = bits(rails).map(|rail| u128::from(parts(rail))).sum();
        // One unit for each beforehand, the others by what is left of the shares: where no share is below 1 this changes
        // nothing, and where one is, the others pay for it in proportion.
        let left = total.saturating_sub(u128::from(rails.count_ones()));
        let mut claims = [0u128; RAILS_MAX];
        for rail in bits(rails) {
            claims[usize::from(rail)] = (u128::from(parts(rail)) * total).saturating_sub(all);
        }
        let claimed: u128 = claims.iter().sum::<u128>().max(1);
        let (mut order, mut count, mut given) = ([0u8; RAILS_MAX], 0, 0);
        for rail in bits(rails) {
            let claim = &mut claims[usize::from(rail)];
            // Below 2^16 * 2^80.
            let share = left * *claim;
            let whole = share / claimed;
            *claim = share - whole * claimed;
            self.less_one[usize::from(rail)] = whole as u16;
            given += whole;
            order[count] = rail;
            count += 1;
        }
        let order = &mut order[..count];
        order.sort_unstable_by_key(|rail| (core::cmp::Reverse(claims[usize::from(*rail)]), *rail));
        for rail in order.iter().take((left - given) as usize) {
            self.less_one[usize::from(*rail)] += 1;
        }
    }
}

/// What each rail carried of one message.
struct Carried {
    rails: u64,
    bytes: [u64; RAILS_MAX],
    ticks: [u64; RAILS_MAX],
}

impl Carried {
    fn add(&mut self, stripe: &StripeTime, known: u64) {
        let rail = usize::from(stripe.rail.0);
        if rail < RAILS_MAX && known >> rail & 1 == 1 && stripe.bytes > 0 {
            self.rails |= 1 << rail;
            self.bytes[rail] = self.bytes[rail].saturating_add(stripe.bytes);
            self.ticks[rail] = self.ticks[rail].max(stripe.ticks).max(1);
        }
    }

    /// Nothing to compare: all rails took the same time, or there is at most one.
    fn is_simultaneous(&self) -> bool {
        let mut ticks = bits(self.rails).map(|rail| self.ticks[usize::from(rail)]);
        let first = ticks.next();
        ticks.all(|it| Some(it) == first)
    }

    /// Bytes per tick of each rail, scaled alike so that the fastest has 32 significant bits: 1..2^32.
    fn rates(&self) -> [u32; RAILS_MAX] {
        let exact =
            |rail: u8| (u128::from(self.bytes[usize::from(rail)]) << 63) / u128::from(self.ticks[usize::from(rail)]);
        let fastest = bits(self.rails).map(exact).max().unwrap_or(0);
        let shift = (128 - fastest.leading_zeros()).saturating_sub(32);
        let mut rates = [0; RAILS_MAX];
        for rail in bits(self.rails) {
            rates[usize::from(rail)] = ((exact(rail) >> shift) as u32).max(1);
        }
        rates
    }
}

/// `units` times `weight` divided by `sum`, rounded down; `weight` is at most `sum`, `sum` at most [`TOTAL`].
fn part(units: u64, weight: u32, sum: u32) -> u64 {
    let (weight, sum) = (u64::from(weight), u64::from(sum));
    units / sum * weight + units % sum * weight / sum
}

/// The set bits of a mask, from the lowest.
fn bits(mask: u64) -> impl Iterator<Item = u8> {
    let mut rest = mask;
    core::iter::from_fn(move || {
        let bit = (rest != 0).then(|| rest.trailing_zeros() as u8);
        rest &= rest.wrapping_sub(1);
        bit
    })
}

#[cfg(test)]
mod tests;
