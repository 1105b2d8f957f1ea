//! The suite on an ideal device: every case can be passed.

mod ideal;

use ideal::IdealBed;
use rerail_contract::{Filter, cases, run};

#[test]
fn an_ideal_device_passes_every_case() {
    let mut open = || Ok(Box::new(IdealBed::new(|device| Box::new(device))) as _);
    let report = run(&Filter::all(), &mut open, &mut |result| println!("{result}"));
    println!("{report}");
    let counts = report.counts().into_iter().map(|(_, counts)| counts.passed).sum::<usize>();
    let failures: Vec<_> = report.failures().map(|(case, failure)| format!("{}: {failure}", case.name)).collect();
    assert!(failures.is_empty(), "{} cases fail:\n{}", failures.len(), failures.join("\n"));
    assert_eq!(counts, cases().count(), "some cases were not run");
}
