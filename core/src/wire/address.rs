//! Unsequenced kind address: the new address of a rail of the sender that has moved (rule F-12).
//!
//! Field map (body, little-endian): `rail u8, len u8, reserved [u8; 6], bytes [u8; 200]`; bytes behind the
//! first `len` are zero. The core does not interpret an address: it is what a rail publishes through the
//! bootstrap, one part of an address record. Rule: `conformance/WIRE.md`, W-28.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::common::{Contents, Kind, Packet, ensure, ensure_zero, write};
pub use super::repr::{ADDRESS_BYTES_MAX, AddressError, AddressText};
use super::repr::{Address, WireError};

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
}

impl Contents for Address {
    fn parse(packet: &Packet<'_>) -> Result<Self, WireError> {
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

    fn emit(&self, body: &mut [u8]) -> Result<(), WireError> {
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
    fn address_text_is_a_single_record_field() {
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
