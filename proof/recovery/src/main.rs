use proof_recovery::net::Body;
use proof_recovery::sweep::sweep;
use proof_recovery::world::Case;

fn main() {
    let args: Vec<u8> = std::env::args().skip(1).map(|a| a.parse().unwrap()).collect();
    let [rails, cold, put, script, deaths, whims, mends, mortal] = args[..] else { panic!() };
    const ALL: [Body; 3] = [Body::Message(0), Body::Atomic, Body::Message(1)];
    let case = Case { name: "", rails: rails.into(), cold: cold != 0, put: put != 0, script: &ALL[..script.into()], deaths, whims, mortal: [mortal & 1 != 0, mortal & 2 != 0], mends: mends != 0, fences: 1, mutant: None };
    println!("size {}", size_of::<proof_recovery::world::World>());
    let t = std::time::Instant::now();
    let s = sweep(&case, false);
    println!("{:?} states {} steps {} depth {} complete {}", t.elapsed(), s.states, s.steps, s.depth, s.complete);
    for way in [&s.broken, &s.apart].into_iter().flatten() {
        println!("{}:", if s.broken.is_some() {"BROKEN"} else {"APART"});
        let mut w = case.start();
        for a in way { println!("  {a:?}"); w = case.step(&w, *a); }
        println!("{w:#?}");
    }
}
