//! The play of `player` with a thread for each side.

use rerail_linux::{Event, Transport};

use super::player::pair;

/// Plays over each kind of rail. `prepare` makes what a loop needs beside its transport, `next` sleeps for
/// the next event.
pub fn play<S: Send>(prepare: impl Fn(&Transport) -> S, next: impl Fn(&mut Transport, &mut S) -> Event + Sync) {
    for rail in ["shm", "tcp"] {
        std::thread::scope(|scope| {
            for (mut player, is_first) in pair(rail).into_iter().zip([true, false]) {
                let (mut own, next) = (prepare(&player.transport), &next);
                scope.spawn(move || {
                    player.begin(is_first);
                    loop {
                        let event = next(&mut player.transport, &mut own);
                        if player.take(event) {
                            break;
                        }
                    }
                    player.end();
                });
            }
        });
    }
}
