//! Unsequenced kind address: the new address of a rail of the sender that has moved (rule F-12).
//!
//! Field map (body, little-endian): `rail u8, len u8, reserved [u8; 6], bytes [u8; 200]`; bytes behind the
//! first `len` are zero. The core does not interpret an address: it is what a rail publishes through the
//! bootstrap, one part of an address record. Rule: `conformance/PROTOCOL.md`, W-28.

use core::fmt;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::codec::write;
use super::common::{Kind, Packet, ensure, ensure_zero};
use super::repr::{Address, WireError};

/// The longest address of a rail, in bytes.
pub const ADDRESS_BYTES_MAX: usize = 200;

/// The address of a rail as it is published: from 1 to [`ADDRESS_BYTES_MAX`] bytes of printable ASCII without
/// space, `;`, `,` and `=`. The default is empty: no address, which is never sent.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct AddressText {
    len: u8,
    /// Zero behind `len`, so that equal texts are equal.
    bytes: [u8; ADDRESS_BYTES_MAX],
}

/// Why bytes are no address of a rail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressError {
    /// There are none.
    Empty,
    /// There are more than [`ADDRESS_BYTES_MAX`].
    TooLong {
        /// Bytes given.
        bytes: usize,
    },
    /// One that no address has.
    Byte {
        /// Its position.
        at: usize,
        /// Its value.
        byte: u8,
    },
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddressError::Empty => f.write_str("an empty address"),
            AddressError::TooLong { bytes } => write!(f, "an address of {bytes} bytes, more than {ADDRESS_BYTES_MAX}"),
            AddressError::Byte { at, byte } => write!(f, "an address with byte {byte:#04x} at {at}"),
        }
    }
}

impl core::error::Error for AddressError {}

/// Whether an address may have it: what separates the words of a card has another meaning.
const fn is_allowed(byte: u8) -> bool {
    byte.is_ascii_graphic() && !matches!(byte, b';' | b',' | b'=')
}

impl AddressText {
    /// Takes an address.
    ///
    /// # Errors
    /// The rule that it breaks, where it is no address.
    pub fn new(text: &[u8]) -> Result<Self, AddressError> {
        if text.is_empty() {
            return Err(AddressError::Empty);
        }
        let mut bytes = [0; ADDRESS_BYTES_MAX];
        let Some(front) = bytes.get_mut(..text.len()) else {
            return Err(AddressError::TooLong { bytes: text.len() });
        };
        if let Some(at) = text.iter().position(|byte| !is_allowed(*byte)) {
            return Err(AddressError::Byte { at, byte: text[at] });
        }
        front.copy_from_slice(text);
        Ok(AddressText { len: text.len() as u8, bytes })
    }

    /// The text; empty for the default.
    pub fn as_str(&self) -> &str {
        // ASCII only, by `new`.
        core::str::from_utf8(&self.bytes[..usize::from(self.len)]).unwrap_or_default()
    }
}

impl Default for AddressText {
    fn default() -> Self {
        AddressText { len: 0, bytes: [0; ADDRESS_BYTES_MAX] }
    }
}

impl fmt::Debug for AddressText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct AddressLayout {
    rail: u8,
    len: u8,
    reserved: [u8; 6],
    bytes: [u8; ADDRESS_BYTES_MAX],
}

impl Address {
    /// The address in a packet's header; `None`: it is not of this kind, or breaks a rule. For a caller that
    /// has the header when the core reports an address update.
    pub fn in_header(header: &[u8]) -> Option<Address> {
        let packet = Packet::new_checked(header).ok().filter(|packet| packet.kind() == Kind::Address)?;
        Address::parse(&packet).ok()
    }

    pub(super) fn parse(packet: &Packet<'_>) -> Result<Self, WireError> {
        let layout = packet.body_as::<AddressLayout>()?;
        ensure_zero("address.reserved", &layout.reserved)?;
        let len = usize::from(layout.len);
        ensure("address.len", (1..=ADDRESS_BYTES_MAX).contains(&len), layout.len)?;
        let (text, behind) = layout.bytes.split_at(len);
        let text = AddressText::new(text).map_err(|error| {
            let value = if let AddressError::Byte { byte, .. } = error { byte } else { layout.len };
            WireError { field: "address.bytes", value: value.into() }
        })?;
        let stray = behind.iter().copied().find(|byte| *byte != 0).unwrap_or(0);
        ensure("address.bytes", stray == 0, stray)?; // W-6
        Ok(Address { rail: layout.rail, text })
    }

    pub(super) fn emit(&self, body: &mut [u8]) -> Result<(), WireError> {
        let AddressText { len, bytes } = self.text;
        ensure("address.len", len != 0, len)?;
        write(AddressLayout { rail: self.rail, len, reserved: [0; 6], bytes }, body);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // W-28
    #[test]
    fn an_address_is_one_word_of_a_card() {
        let longest = [b'a'; ADDRESS_BYTES_MAX + 1];
        assert_eq!(AddressText::new(&longest[1..]).unwrap().as_str().len(), ADDRESS_BYTES_MAX);
        assert_eq!(AddressText::new(&longest), Err(AddressError::TooLong { bytes: 201 }));
        assert_eq!(AddressText::new(b""), Err(AddressError::Empty));
        assert_eq!(AddressText::new(b"[::1]:7").unwrap().as_str(), "[::1]:7");
        for byte in [b' ', b';', b',', b'=', b'\n', 0, 0x7F, 0xC3] {
            assert_eq!(AddressText::new(&[b'a', byte]), Err(AddressError::Byte { at: 1, byte }));
        }
    }
}
