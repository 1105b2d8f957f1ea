//! Prints what things cost, for `ARCHITECTURE.md`: `cargo run -p rerail-core --example sizes`.
use rerail_core::config::Config;
use rerail_core::endpoint::sizes;
use rerail_core::ids::PeerId;

fn main() {
    let config = Config::new(PeerId(0), 4096);
    let sizes = sizes(&config);
    println!("| what | bytes |\n|---|---|");
    println!("| an idle peer | {} |", sizes.idle_peer);
    println!("| a connected peer | {} |", sizes.connected_peer);
    println!("| an operation | {} |", sizes.operation);
    println!("| an unacknowledged packet | {} |", sizes.packet);
    println!();
    println!("| job | state, bytes | payload pool, bytes |\n|---|---|---|");
    for (size, channels) in [(64, 64), (4096, 64), (65_536, 512)] {
        let config = Config { channels_max: channels, ..Config::new(PeerId(0), size) };
        let state = config.memory_bytes().expect("a valid configuration");
        let pool = config.pool_bytes().expect("a valid configuration");
        println!("| {size} ranks, {channels} active peers | {state} | {pool} |");
    }
}
