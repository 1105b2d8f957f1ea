//! Two ranks in one process that have each other's addresses, and memory of each.

use rerail_core::ids::PeerId;
use rerail_core::mem::RegionId;
use rerail_linux::bootstrap::JobKey;
use rerail_linux::driver::{Options, Transport};

/// The transports, and a region of `bytes` bytes of each.
pub fn open(options: &Options, bytes: usize) -> Result<([Transport; 2], [RegionId; 2]), Box<dyn std::error::Error>> {
    let key = JobKey { key: [7; 32], job_id: 7 };
    let mut openings = [Transport::open(options, PeerId(0), 2, &key)?, Transport::open(options, PeerId(1), 2, &key)?];
    let address_records = openings.each_ref().map(|opening| opening.address_record().to_owned());
    for opening in &mut openings {
        for (rank, address_record) in (0..).zip(&address_records) {
            opening.learn(PeerId(rank), address_record)?;
        }
    }
    let [one, other] = openings;
    let mut ranks = [one.join()?, other.join()?];
    let mut memory = [RegionId::default(); 2];
    for (rank, region) in ranks.iter_mut().zip(&mut memory) {
        *region = rank.alloc(bytes)?;
    }
    Ok((ranks, memory))
}
