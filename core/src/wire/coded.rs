//! Enums of numbers on the wire.

/// Declares an enum of numbers on the wire, one byte each; a number that is none of them is an error of the
/// field of that name.
macro_rules! coded {
    (
        $(#[$meta:meta])*
        pub enum $name:ident in $field:literal { $($(#[$doc:meta])* $variant:ident = $code:literal,)* }
    ) => {
        $(#[$meta])*
        #[repr(u8)]
        pub enum $name {
            $($(#[$doc])* $variant = $code,)*
        }

        impl $name {
            /// All of them, in the order of their codes on the wire.
            pub const ALL: [$name; [$($code),*].len()] = [$($name::$variant),*];

            /// The one with a code.
            #[inline]
            pub(super) const fn from_code(code: u8) -> Result<Self, WireError> {
                match code {
                    $($code => Ok(Self::$variant),)*
                    other => Err(WireError { field: $field, value: other as u64 }),
                }
            }
        }
    };
}
pub(super) use coded;
