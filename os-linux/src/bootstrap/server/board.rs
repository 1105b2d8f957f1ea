//! The logic of the PMI-1 server, without a system call: lines of ranks in, answers to ranks and notices out.
//!
//! Invariants: every line gets an answer (but `abort`, which has none); a fence opens when every rank that
//! can still come is there, so a dead rank blocks no other; each rank's published bytes are bounded.

use std::collections::HashMap;

use crate::bootstrap::line::{Line, unescape};

/// Limits that we announce (each counts a C string's final zero, as MPICH does).
const KVSNAME_BYTES: usize = 256;
const KEY_BYTES: usize = 64;
const VALUE_BYTES: usize = 1024;

/// The limit of one rank's published bytes, keys included.
pub(super) const PUBLISHED_BYTES_MAX: usize = 4 << 20;

/// The state of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Somewhere before the next fence.
    Busy,
    /// Waiting at the fence.
    AtFence,
    /// Gone: finalised, dead, or its channel is closed.
    Left,
}

#[derive(Debug)]
struct Seat {
    place: Place,
    published_bytes: usize,
}

/// A line's meaning for the launcher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Notice {
    /// The rank has joined.
    Joined,
    /// The rank has left in good order.
    Finalized,
    /// The rank requests the end of the job.
    Aborted {
        /// The exit code in its request.
        code: i32,
        /// Its words.
        message: String,
    },
    /// The rank violated the protocol.
    Malformed(String),
}

/// A line (without its end) for a rank.
pub(super) type Answer = (u32, String);

/// The job's board and fence.
#[derive(Debug)]
pub(super) struct Board {
    kvsname: String,
    values: HashMap<String, String>,
    seats: Vec<Seat>,
}

impl Board {
    /// The board of a job of `size` ranks on one machine.
    pub(super) fn new(kvsname: String, size: u32) -> Self {
        debug_assert!(kvsname.len() < KVSNAME_BYTES);
        // MPICH's own layout hint, from which its programs derive that all ranks share a machine.
        let mapping = ("PMI_process_mapping".to_string(), format!("(vector,(0,1,{size}))"));
        let seats = (0..size).map(|_| Seat { place: Place::Busy, published_bytes: 0 }).collect();
        Board { kvsname, values: HashMap::from([mapping]), seats }
    }

    /// The job's name.
    pub(super) fn kvsname(&self) -> &str {
        &self.kvsname
    }

    /// Takes a line of a rank.
    pub(super) fn handle(&mut self, rank: u32, peer_text: &[u8], answers: &mut Vec<Answer>) -> Option<Notice> {
        let line = match Line::parse(peer_text) {
            Ok(line) => line,
            Err(why) => {
                answers.push((rank, "cmd=error rc=-1 msg=malformed_line".into()));
                return Some(Notice::Malformed(why));
            }
        };
        let mut notice = None;
        let answer = match line.cmd() {
            "init" => {
                let version = line.number("pmi_version").unwrap_or(-1);
                let rc = if version == 1 { 0 } else { -1 };
                notice = Some(if rc == 0 {
                    Notice::Joined
                } else {
                    Notice::Malformed(format!("requests PMI version {version}, only 1 is supported"))
                });
                format!("cmd=response_to_init pmi_version=1 pmi_subversion=1 rc={rc}")
            }
            "get_maxes" => {
                format!("cmd=maxes kvsname_max={KVSNAME_BYTES} keylen_max={KEY_BYTES} vallen_max={VALUE_BYTES}")
            }
            "get_appnum" => "cmd=appnum appnum=0".into(),
            "get_universe_size" => format!("cmd=universe_size size={}", self.seats.len()),
            "get_my_kvsname" => format!("cmd=my_kvsname kvsname={}", self.kvsname),
            "put" => match self.put(rank, &line) {
                Ok(()) => "cmd=put_result rc=0 msg=success".into(),
                Err(why) => format!("cmd=put_result rc=-1 msg={why}"),
            },
            "get" => match self.get(&line) {
                Ok(value) => format!("cmd=get_result rc=0 msg=success value={value}"),
                Err(why) => format!("cmd=get_result rc=-1 msg={why} value=unknown"),
            },
            "barrier_in" => {
                if self.seats[rank as usize].place == Place::Left {
                    notice = Some(Notice::Malformed("barrier_in after finalize".into()));
                    "cmd=barrier_out rc=-1 msg=finalized_before".into()
                } else {
                    self.seats[rank as usize].place = Place::AtFence;
                    self.open_fence(answers);
                    return None;
                }
            }
            "finalize" => {
                answers.push((rank, "cmd=finalize_ack".into()));
                self.leave(rank, answers);
                return Some(Notice::Finalized);
            }
            "abort" => {
                let code = line.number("exitcode").ok().and_then(|code| i32::try_from(code).ok()).unwrap_or(1);
                let message = line.get("message").or(line.get("msg")).unwrap_or_default();
                let message = unescape(message).unwrap_or_else(|_| message.into());
                return Some(Notice::Aborted { code, message });
            }
            other => {
                notice = Some(Notice::Malformed(format!("unknown command {other:?}")));
                "cmd=error rc=-1 msg=unknown_command".into()
            }
        };
        answers.push((rank, answer));
        notice
    }

    /// A rank has gone; nothing waits for it any more (B-4).
    pub(super) fn leave(&mut self, rank: u32, answers: &mut Vec<Answer>) {
        self.seats[rank as usize].place = Place::Left;
        self.open_fence(answers);
    }

    fn open_fence(&mut self, answers: &mut Vec<Answer>) {
        if self.seats.iter().any(|seat| seat.place == Place::Busy) {
            return;
        }
        for (rank, seat) in (0..).zip(&mut self.seats) {
            if seat.place == Place::AtFence {
                seat.place = Place::Busy;
                answers.push((rank, "cmd=barrier_out rc=0".into()));
            }
        }
    }

    fn put(&mut self, rank: u32, line: &Line) -> Result<(), &'static str> {
        self.check_kvsname(line)?;
        let key = line.get("key").filter(|key| !key.is_empty()).ok_or("no_key")?;
        let value = line.get("value").ok_or("no_value")?;
        if key.len() >= KEY_BYTES {
            return Err("key_too_long");
        }
        if value.len() >= VALUE_BYTES {
            return Err("value_too_long");
        }
        let published_bytes = &mut self.seats[rank as usize].published_bytes;
        if *published_bytes + key.len() + value.len() > PUBLISHED_BYTES_MAX {
            return Err("board_full");
        }
        *published_bytes += key.len() + value.len();
        self.values.insert(key.into(), value.into());
        Ok(())
    }

    fn get(&self, line: &Line) -> Result<&str, &'static str> {
        self.check_kvsname(line)?;
        let key = line.get("key").ok_or("no_key")?;
        self.values.get(key).map(String::as_str).ok_or("key_not_found")
    }

    fn check_kvsname(&self, line: &Line) -> Result<(), &'static str> {
        if line.get("kvsname") == Some(&self.kvsname) { Ok(()) } else { Err("kvsname_unknown") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A board of `size`, and a function that passes a line and shows the answers.
    fn handle_line(board: &mut Board, rank: u32, line: &str) -> (Vec<String>, Option<Notice>) {
        let mut answers = Vec::new();
        let notice = board.handle(rank, line.as_bytes(), &mut answers);
        (answers.into_iter().map(|(rank, line)| format!("{rank}< {line}")).collect(), notice)
    }

    fn board(size: u32) -> Board {
        Board::new("job".into(), size)
    }

    #[test]
    fn a_dialogue() {
        let mut board = board(2);
        let dialogue = [
            (
                0,
                "pmi_subversion=1 cmd=init pmi_version=1",
                "0< cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
            ),
            (0, "cmd=get_maxes", "0< cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024"),
            (0, "cmd=get_appnum", "0< cmd=appnum appnum=0"),
            (0, "cmd=get_universe_size", "0< cmd=universe_size size=2"),
            (0, "cmd=get_my_kvsname", "0< cmd=my_kvsname kvsname=job"),
            (0, "cmd=put kvsname=job key=k value=v=1", "0< cmd=put_result rc=0 msg=success"),
            (0, "cmd=barrier_in", ""),
            (1, "cmd=barrier_in", "0< cmd=barrier_out rc=0|1< cmd=barrier_out rc=0"),
            (1, "key=k kvsname=job cmd=get", "1< cmd=get_result rc=0 msg=success value=v=1"),
            (1, "cmd=get kvsname=job key=other", "1< cmd=get_result rc=-1 msg=key_not_found value=unknown"),
            (1, "cmd=get kvsname=other key=k", "1< cmd=get_result rc=-1 msg=kvsname_unknown value=unknown"),
            (1, "cmd=put kvsname=job key=k", "1< cmd=put_result rc=-1 msg=no_value"),
            (1, "cmd=put kvsname=job value=v", "1< cmd=put_result rc=-1 msg=no_key"),
            (
                1,
                "cmd=get kvsname=job key=PMI_process_mapping",
                "1< cmd=get_result rc=0 msg=success value=(vector,(0,1,2))",
            ),
            (1, "cmd=finalize", "1< cmd=finalize_ack"),
        ];
        for (rank, line, expected) in dialogue {
            assert_eq!(handle_line(&mut board, rank, line).0.join("|"), expected, "{line}");
        }
    }

    #[test]
    fn launcher_is_notified_of_join_finalize_and_abort() {
        let mut board = board(2);
        assert_eq!(handle_line(&mut board, 0, "cmd=init pmi_version=1 pmi_subversion=1").1, Some(Notice::Joined));
        let (answers, notice) = handle_line(&mut board, 1, "cmd=init pmi_version=2 pmi_subversion=0");
        assert!(answers[0].ends_with("rc=-1") && matches!(notice, Some(Notice::Malformed(_))));
        assert_eq!(handle_line(&mut board, 0, "cmd=finalize").1, Some(Notice::Finalized));
        let (answers, notice) = handle_line(&mut board, 1, "cmd=abort exitcode=9 message=no%20way");
        assert_eq!(answers.len(), 0);
        assert_eq!(notice, Some(Notice::Aborted { code: 9, message: "no way".into() }));
        assert_eq!(
            handle_line(&mut board, 1, "cmd=abort").1,
            Some(Notice::Aborted { code: 1, message: String::new() })
        );
    }

    #[test]
    fn invalid_request_is_answered_with_an_error_and_reported() {
        let mut board = board(1);
        for line in ["", "\x01", "word", "cmd=spawn nprocs=4", "cmd=barrier_in=1"] {
            let (answers, notice) = handle_line(&mut board, 0, line);
            assert_eq!(answers.len(), 1, "{line:?}");
            assert!(answers[0].contains("rc=-1"), "{answers:?}");
            assert!(matches!(notice, Some(Notice::Malformed(_))), "{line:?}");
        }
    }

    #[test]
    fn departed_rank_does_not_block_the_barrier() {
        let mut board = board(3);
        assert!(handle_line(&mut board, 0, "cmd=barrier_in").0.is_empty());
        assert!(handle_line(&mut board, 2, "cmd=barrier_in").0.is_empty());
        let mut answers = Vec::new();
        board.leave(1, &mut answers);
        assert_eq!(answers, [(0, "cmd=barrier_out rc=0".to_string()), (2, "cmd=barrier_out rc=0".to_string())]);
        assert!(handle_line(&mut board, 0, "cmd=barrier_in").0.is_empty());
        assert_eq!(handle_line(&mut board, 2, "cmd=finalize").0, ["2< cmd=finalize_ack", "0< cmd=barrier_out rc=0"]);
        assert_eq!(handle_line(&mut board, 2, "cmd=barrier_in").0, ["2< cmd=barrier_out rc=-1 msg=finalized_before"]);
    }

    #[test]
    fn key_value_and_board_size_limits_are_enforced() {
        let mut board = board(1);
        let mut put = |key: &str, value: &str| {
            handle_line(&mut board, 0, &format!("cmd=put kvsname=job key={key} value={value}")).0.remove(0)
        };
        assert!(put(&"k".repeat(63), &"v".repeat(1023)).contains("rc=0"));
        assert!(put(&"k".repeat(64), "v").contains("key_too_long"));
        assert!(put("k", &"v".repeat(1024)).contains("value_too_long"));
        let value = "v".repeat(1000);
        let taken = (0..).take_while(|n| put(&format!("{n:08}"), &value).contains("rc=0")).count();
        assert_eq!(taken, (PUBLISHED_BYTES_MAX - 63 - 1023) / 1008);
        assert!(put("key-beyond", &value).contains("board_full"));
    }
}
