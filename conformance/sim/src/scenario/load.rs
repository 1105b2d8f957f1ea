//! Background load that changes at given moments: what other programs do to a link or a bus meanwhile.

use serde::{Deserialize, Serialize};

use super::{Scenario, Span, preset};
use crate::cluster::place::Place;

/// A load with its programme (the second program of multirail-2004, 6.3 and figure 20). It is nothing before
/// its first step, and ends with the safety phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadSpec {
    /// A port, whose frames to another port then share bus, engine, link and the receiver's buffer and bus
    /// with phantoms that take turns with them: `host0.hca1.port0`. Or a bus, of whose rate less is left,
    /// each way: `host0.bus1`. Buses are counted as `buses` lists them; where that is empty, as `hcas` are.
    #[serde(rename = "where", with = "place")]
    pub at: Place,
    /// The port that phantoms go to; absent: the next one of the subnet.
    #[serde(default, with = "place::optional", skip_serializing_if = "Option::is_none")]
    pub to: Option<Place>,
    /// Bytes of a phantom.
    #[serde(default = "frame_bytes_default")]
    pub frame_bytes: u32,
    /// What it is from which moment on, in their order.
    pub steps: Vec<LoadStep>,
}

/// A load from a moment on: a share or a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LoadStep {
    /// From then on.
    pub at: Span,
    /// Percent of the rate of the link or bus. What a port is offered beyond what it can carry waits: with
    /// 100 there is always a phantom, so that it and the rail get half each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<u32>,
    /// Bytes per second; 0: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_second: Option<u64>,
}

fn frame_bytes_default() -> u32 {
    2048
}

impl LoadStep {
    /// Bytes per second, where the whole has so many.
    pub fn rate(&self, whole: u64) -> u64 {
        let share = u128::from(whole) * u128::from(self.share.unwrap_or(0)) / 100;
        self.bytes_per_second.unwrap_or(u64::try_from(share).unwrap_or(u64::MAX))
    }
}

impl LoadSpec {
    /// Checks the load; `name` is its key.
    pub(super) fn check(&self, scenario: &Scenario, name: &str) -> Result<(), String> {
        let LoadSpec { at, to, frame_bytes, steps } = self;
        if !matches!(at, Place::Port { .. } | Place::Bus { .. }) {
            return Err(format!(
                "{name}.where = \"{at}\": a load is on a port or a bus, as host0.hca1.port0 or host0.bus1"
            ));
        }
        if !scenario.has_place(*at) {
            return Err(format!("{name}.where = \"{at}\": there is no such place"));
        }
        if let Place::Bus { bus, .. } = at
            && scenario.bus_rate(*bus) == 0
        {
            return Err(format!("{name}.where = \"{at}\": that bus has no limit that a load could use up"));
        }
        if let Some(to) = to {
            let subnet = |place: Place| match place {
                Place::Port { hca, port, .. } if scenario.has_place(place) => {
                    Some(scenario.subnet_of(hca as usize, port))
                }
                _ => None,
            };
            if subnet(*to).is_none() || to == at || subnet(*to) != subnet(*at) {
                return Err(format!("{name}.to = \"{to}\": phantoms go to another port of the subnet of \"{at}\""));
            }
        }
        if !(64..=4096).contains(frame_bytes) {
            return Err(format!("{name}.frame_bytes = {frame_bytes}: 64 to 4096 are possible"));
        }
        if steps.is_empty() {
            return Err(format!("{name}.steps = []: a load without a programme is none"));
        }
        for (index, step) in steps.iter().enumerate() {
            if index > 0 && step.at <= steps[index - 1].at {
                return Err(format!("{name}.steps[{index}].at = \"{}\" is not after the step before it", step.at));
            }
            if step.share.is_some() == step.bytes_per_second.is_some() {
                return Err(format!("{name}.steps[{index}]: either share or bytes_per_second"));
            }
            if let Some(share) = step.share.filter(|share| *share > 100) {
                return Err(format!("{name}.steps[{index}].share = {share}: 0 to 100 percent are possible"));
            }
        }
        Ok(())
    }
}

impl Scenario {
    /// How many buses a host has.
    pub(crate) fn bus_count(&self) -> u32 {
        if self.buses.is_empty() { self.hcas().len() as u32 } else { self.buses.len() as u32 }
    }

    /// Bytes per second of a bus as it is laid out; 0: without limit, or no HCA that a rail needs is on it.
    pub(crate) fn bus_rate(&self, bus: u32) -> u64 {
        let listed = self.buses.get(bus as usize);
        let mut hcas = self.hcas().into_iter().zip(0..);
        let first = hcas.find(|(hca, index)| if self.buses.is_empty() { *index == bus } else { hca.bus == bus });
        let Some((hca, _)) = first else { return 0 };
        let usual = preset(&hca.device).map_or(0, |preset| preset.bus.bytes_per_second);
        listed.and_then(|spec| spec.bytes_per_second).unwrap_or(usual)
    }
}

/// Places as words.
mod place {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    use super::Place;

    pub fn serialize<S: Serializer>(place: &Place, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(place)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Place, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }

    pub mod optional {
        use super::{Deserializer, Place, Serializer};

        pub fn serialize<S: Serializer>(place: &Option<Place>, serializer: S) -> Result<S::Ok, S::Error> {
            match place {
                Some(place) => super::serialize(place, serializer),
                None => serializer.serialize_none(),
            }
        }

        pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Place>, D::Error> {
            super::deserialize(deserializer).map(Some)
        }
    }
}
