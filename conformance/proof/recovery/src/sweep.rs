//! Goes through all states of a case, and checks whether from each of them the end can be reached by steps
//! that are certain to be taken some day: if not, the two ends would stay apart for ever.

use std::collections::HashMap;
use std::collections::VecDeque;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, Hash, Hasher};

use stateright::Model;

use crate::model::Action;
use crate::state::{Case, ModelState};

/// What a sweep has found.
#[derive(Debug)]
pub struct Sweep {
    /// States, each counted once.
    pub states: usize,
    /// Steps between them.
    pub steps: usize,
    /// States that are complete.
    pub complete: usize,
    /// A way to a state in which rules are broken, and which they are (bits of
    /// [`broken`](crate::state::broken)).
    pub broken: Option<(Vec<Action>, u8)>,
    /// A way to a state from which the end can't be reached.
    pub apart: Option<Vec<Action>>,
}

/// Passes on a value that is a hash already.
#[derive(Default)]
struct Hashed(u64);

impl Hasher for Hashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are u64");
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

/// Where a state was first met.
struct Origin {
    from: u32,
    /// Which of the actions there.
    action: u8,
}

/// All states of `case`. Ends at the first broken rule. `breadth`: those with the fewest steps from the start
/// come first, so that the way to a broken rule is a shortest one; it takes much more memory. States are
/// distinguished by 64 bits of hash.
pub fn sweep(case: &Case, breadth: bool) -> Sweep {
    let mut ids: HashMap<u64, u32, BuildHasherDefault<Hashed>> = HashMap::default();
    let mut origins = Vec::new();
    let mut frontier = VecDeque::new();
    // Steps that may be relied on, backwards: (to, from).
    let mut sure: Vec<(u32, u32)> = Vec::new();
    let mut complete = Vec::new();
    let (mut steps, mut actions) = (0, Vec::new());

    let start = case.start();
    ids.insert(either(case, &start), 0);
    origins.push(Origin { from: 0, action: 0 });
    frontier.push_back((start, 0));
    let mut broken = None;
    while let Some((model_state, id)) = if breadth { frontier.pop_front() } else { frontier.pop_back() } {
        if model_state.broken != 0 {
            broken = Some((way(case, &origins, id), model_state.broken));
            break;
        }
        if case.is_complete(&model_state) {
            complete.push(id);
        }
        case.actions(&model_state, &mut actions);
        for (index, action) in actions.drain(..).enumerate() {
            let next = case.step(&model_state, action);
            steps += 1;
            let to = match ids.entry(either(case, &next)) {
                Entry::Occupied(entry) => *entry.get(),
                Entry::Vacant(entry) => {
                    let to = origins.len() as u32;
                    entry.insert(to);
                    origins.push(Origin { from: id, action: index as u8 });
                    frontier.push_back((next, to));
                    to
                }
            };
            if case.is_sure(&model_state, action) {
                sure.push((to, id));
            }
        }
    }
    drop((ids, frontier));
    let apart = if broken.is_none() { apart(case, &origins, sure, &complete) } else { None };
    Sweep { states: origins.len(), steps, complete: complete.len(), broken, apart }
}

/// A way to a state from which no way leads to one that is complete.
fn apart(case: &Case, origins: &[Origin], mut sure: Vec<(u32, u32)>, complete: &[u32]) -> Option<Vec<Action>> {
    sure.sort_unstable();
    let mut ends_well = vec![false; origins.len()];
    let mut todo = complete.to_vec();
    for &id in complete {
        ends_well[id as usize] = true;
    }
    while let Some(id) = todo.pop() {
        let first = sure.partition_point(|&(to, _)| to < id);
        for &(_, from) in sure[first..].iter().take_while(|&&(to, _)| to == id) {
            if !std::mem::replace(&mut ends_well[from as usize], true) {
                todo.push(from);
            }
        }
    }
    let lost = ends_well.iter().position(|&well| !well)?;
    Some(way(case, origins, lost as u32))
}

/// How a state was first reached.
fn way(case: &Case, origins: &[Origin], mut id: u32) -> Vec<Action> {
    let mut choices = Vec::new();
    while id != 0 {
        let origin = &origins[id as usize];
        choices.push(origin.action);
        id = origin.from;
    }
    let mut model_state = case.start();
    let mut taken = Vec::new();
    for choice in choices.into_iter().rev() {
        let mut actions = Vec::new();
        case.actions(&model_state, &mut actions);
        let action = actions[usize::from(choice)];
        model_state = case.step(&model_state, action);
        taken.push(action);
    }
    taken
}

/// The same for a state and its mirror image.
fn either(case: &Case, model_state: &ModelState) -> u64 {
    let own = fingerprint(model_state);
    if case.rails == 1 { own } else { own.min(fingerprint(&model_state.mirrored())) }
}

/// The hash that distinguishes states.
pub fn fingerprint(model_state: &ModelState) -> u64 {
    let mut hasher = Folded(0x9e37_79b9_7f4a_7c15);
    model_state.hash(&mut hasher);
    hasher.finish()
}

/// A hash of 64 bits: each word is multiplied in, and the product's halves folded.
struct Folded(u64);

impl Folded {
    fn fold(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word ^ 0xa076_1d64_78bd_642f) * u128::from(0xe703_7ed1_a0b4_28db_u64);
        self.0 = (product as u64) ^ (product >> 64) as u64 ^ self.0.rotate_left(23);
    }
}

impl Hasher for Folded {
    fn finish(&self) -> u64 {
        let mut last = Folded(self.0);
        last.fold(0x5897_89e6);
        last.fold(0x1d8e_4e27);
        last.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.fold(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, word: u8) {
        self.fold(word.into());
    }

    fn write_u32(&mut self, word: u32) {
        self.fold(word.into());
    }

    fn write_u64(&mut self, word: u64) {
        self.fold(word);
    }

    fn write_usize(&mut self, word: usize) {
        self.fold(word as u64);
    }
}
