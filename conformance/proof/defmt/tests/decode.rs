//! The log of `logs`, decoded with the strings of its own file.

use std::process::Command;

use defmt_decoder::{DecodeError, Table};

/// Level and message of each line.
fn lines() -> Vec<String> {
    let program = env!("CARGO_BIN_EXE_logs");
    let output = Command::new(program).output().expect("the program starts");
    assert!(output.status.success(), "{output:?}");

    let file = std::fs::read(program).expect("the program is a file");
    let table = Table::parse(&file).expect("its .defmt section is whole").expect("it has a .defmt section");
    let mut decoder = table.new_stream_decoder();
    decoder.received(&output.stdout);
    let mut lines = Vec::new();
    loop {
        match decoder.decode() {
            Ok(frame) => {
                let level = frame.level().expect("every line has a level").as_str();
                let time = frame.display_timestamp().expect("every line has a time");
                lines.push(format!("{time} {level} {}", frame.display_message()));
            }
            Err(DecodeError::UnexpectedEof) => return lines,
            Err(DecodeError::Malformed) => panic!("malformed after {lines:#?}"),
        }
    }
}

#[test]
fn defmt_log_of_a_peer_is_decoded_to_text() {
    assert_eq!(
        lines(),
        [
            "0.000000 debug peer 3: channel opened, rails 1",
            "0.000001 debug peer 3: rail 0 up",
            "0.000002 warn peer 3: rail 0 down, Device { code: 110 }",
            "0.000003 debug peer 3: rail 0 again in 0 us, failure 1",
            "0.000004 warn peer 3: rail 0 down, Device { code: 110 }",
            "0.000005 debug peer 3: rail 0 again in 1000 us, failure 2",
            "0.000006 warn peer 3: lost, Loss { reason: Unreachable { rail: RailId(0), fault: Device { code: 110 } }, rails: 1, \
             time: Nanos(600000000000), attempts: 2 }",
        ]
    );
}
