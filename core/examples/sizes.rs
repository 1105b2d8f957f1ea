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
}
