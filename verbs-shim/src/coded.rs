//! Enums with words for people, and of numbers that the library has in an `enum` of its own.

/// Declares one: each variant with its number and with its words; a number without a name is kept.
macro_rules! coded {
    (
        $(#[$meta:meta])*
        pub enum $name:ident($number:ty), $unknown:literal { $($(#[$doc:meta])* $variant:ident = $code:path, $words:literal;)* }
    ) => {
        $(#[$meta])*
        pub enum $name {
            $($(#[$doc])* $variant,)*
            /// A number that this crate has no name for.
            Other($number),
        }

        impl From<$number> for $name {
            fn from(number: $number) -> Self {
                match number {
                    $($code => Self::$variant,)*
                    other => Self::Other(other),
                }
            }
        }

        impl $name {
            /// Its number.
            pub const fn number(self) -> $number {
                match self {
                    $(Self::$variant => $code,)*
                    Self::Other(number) => number,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self {
                    $(Self::$variant => f.write_str($words),)*
                    Self::Other(number) => write!(f, $unknown, number),
                }
            }
        }
    };
}

/// Declares an enum with the words of each variant.
macro_rules! named {
    ($(#[$meta:meta])* pub enum $name:ident { $($(#[$doc:meta])* $variant:ident = $words:literal;)* }) => {
        $(#[$meta])*
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            /// All of them.
            pub const ALL: [$name; [$($words),*].len()] = [$($name::$variant),*];
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self {
                    $(Self::$variant => $words,)*
                })
            }
        }
    };
}
