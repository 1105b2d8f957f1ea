//! The datagram that sets up a connection between two queue pairs (rules V-1 to V-5): fixed size, versioned, sealed.

use rerail_core::ids::PeerId;
use rerail_core::wire::WireError;

use crate::auth::JobKey;

/// Bytes of a call.
pub const CALL_BYTES: usize = 72;

/// Bytes that the seal covers; it follows them.
const SEALED_BYTES: usize = CALL_BYTES - SEAL_BYTES;

/// Bytes of the seal: HMAC-SHA256, cut in half (RFC 2104, 5).
const SEAL_BYTES: usize = 16;

/// `RRV` and the version.
const MAGIC: [u8; 4] = *b"RRV1";

/// What keeps this seal apart from those of other handshakes of the job.
const LABEL: &[u8] = b"rerail verbs call 1";

/// One side's word about its queue pair (V-2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// The job's number.
    pub job: u64,
    /// Who calls.
    pub from: PeerId,
    /// Whom.
    pub to: PeerId,
    /// Number of the caller's queue pair for this peer.
    pub qp: u32,
    /// PSN of the first packet that it will send.
    pub psn: u32,
    /// Names this attempt of the caller's.
    pub nonce: u64,
    /// The other side's nonce, as the caller knows it; 0: not yet.
    pub echo: u64,
    /// The caller's queue pair can receive from the other side's.
    pub ready: bool,
    /// The caller knows that both are ready: no answer is needed.
    pub done: bool,
    /// Bytes of payload that the caller's port takes in one packet.
    pub mtu: u16,
}

impl Call {
    /// The bytes, sealed with the job's key (V-3).
    pub fn emit(&self, key: &JobKey) -> [u8; CALL_BYTES] {
        let mut bytes = [0; CALL_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = u8::from(self.ready) | u8::from(self.done) << 1;
        bytes[6..8].copy_from_slice(&self.mtu.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.job.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.from.0.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.to.0.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.qp.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.psn.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.nonce.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.echo.to_le_bytes());
        let seal = key.seal(LABEL, &bytes[..SEALED_BYTES]);
        bytes[SEALED_BYTES..].copy_from_slice(&seal[..SEAL_BYTES]);
        bytes
    }

    /// Reads a call whose seal is right; `None`: the seal is wrong, and nothing of it is believed.
    ///
    /// # Errors
    /// The field that no version of this code writes so.
    pub fn parse(bytes: &[u8], key: &JobKey) -> Result<Option<Call>, WireError> {
        let bad = |field, value| Err(WireError { field, value });
        let Ok(bytes) = <&[u8; CALL_BYTES]>::try_from(bytes) else { return bad("length", bytes.len() as u64) };
        if bytes[..4] != MAGIC {
            return bad("magic", u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]).into());
        }
        let seal: [u8; SEAL_BYTES] = std::array::from_fn(|index| bytes[SEALED_BYTES + index]);
        if !key.verify_seal(LABEL, &bytes[..SEALED_BYTES], &seal) {
            return Ok(None);
        }
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
        let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|index| bytes[at + index]));
        if bytes[4] > 3 || bytes[5] != 0 {
            return bad("flags", u64::from(bytes[4]) << 8 | u64::from(bytes[5]));
        }
        let (qp, psn, mtu) = (word(24), word(28), u16::from_le_bytes([bytes[6], bytes[7]]));
        if qp >> 24 != 0 || psn >> 24 != 0 {
            return bad("qp or psn", u64::from(qp.max(psn)));
        }
        if !matches!(mtu, 256 | 512 | 1024 | 2048 | 4096) {
            return bad("mtu", mtu.into());
        }
        if bytes[48..SEALED_BYTES].iter().any(|byte| *byte != 0) {
            return bad("padding", 1);
        }
        Ok(Some(Call {
            job: long(8),
            from: PeerId(word(16)),
            to: PeerId(word(20)),
            qp,
            psn,
            nonce: long(32),
            echo: long(40),
            ready: bytes[4] & 1 == 1,
            done: bytes[4] & 2 == 2,
            mtu,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: JobKey = JobKey::new([7; 32]);

    fn call() -> Call {
        Call {
            job: 0x1122_3344_5566_7788,
            from: PeerId(3),
            to: PeerId(70_000),
            qp: 0x12_3456,
            psn: 0xff_ffff,
            nonce: 9,
            echo: 10,
            ready: true,
            done: false,
            mtu: 2048,
        }
    }

    /// V-2, V-3: what is written is read back; a changed byte, another key or length is not believed.
    #[test]
    fn a_call_reads_back_and_no_byte_can_be_changed() {
        let bytes = call().emit(&KEY);
        assert_eq!(Call::parse(&bytes, &KEY), Ok(Some(call())));
        assert_eq!(Call::parse(&bytes, &JobKey::new([8; 32])), Ok(None));
        for at in 0..CALL_BYTES {
            for bit in 0..8 {
                let mut changed = bytes;
                changed[at] ^= 1 << bit;
                assert!(!matches!(Call::parse(&changed, &KEY), Ok(Some(_))), "byte {at} bit {bit}");
            }
        }
        assert_eq!(Call::parse(&bytes[1..], &KEY), Err(WireError { field: "length", value: 71 }));
    }

    /// V-2: sealed nonsense is named by its field.
    #[test]
    fn errors_name_the_field() {
        for (wrong, field) in [
            (Call { qp: 1 << 24, ..call() }, "qp or psn"),
            (Call { psn: 1 << 24, ..call() }, "qp or psn"),
            (Call { mtu: 1500, ..call() }, "mtu"),
        ] {
            assert_eq!(Call::parse(&wrong.emit(&KEY), &KEY).unwrap_err().field, field);
        }
    }

    proptest! {
        #[test]
        fn garbage_is_never_believed(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            prop_assert!(!matches!(Call::parse(&bytes, &KEY), Ok(Some(_))));
        }
    }
}
