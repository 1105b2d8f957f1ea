//! Structured logging of the core's decisions through defmt (feature `defmt`).
//!
//! Only decisions and faults are logged, never a packet that went as it should: the hot path stays free of
//! it. Without the feature the arguments are type-checked and never evaluated, so that a log line can't
//! change what the code does and costs nothing. Levels: `trace` a step of a state machine, `debug` a decision
//! with its reason, `warn` a fault that was handled. Used as `log::debug!("peer {} lost: {}", peer, why)`.

/// One macro per level: defmt's with the feature, nothing without.
macro_rules! levels {
    ($dollar:tt $($level:ident as $name:ident: $doc:literal;)*) => {$(
        #[doc = $doc]
        #[allow(unused_macros, reason = "not every level is in use in every build")]
        macro_rules! $name {
            ($dollar format:literal $dollar(, $dollar argument:expr)* $dollar(,)?) => {{
                #[cfg(feature = "defmt")]
                ::defmt::$level!($dollar format $dollar(, $dollar argument)*);
                #[cfg(not(feature = "defmt"))]
                if false {
                    $dollar(let _ = &$dollar argument;)*
                }
            }};
        }
        #[allow(unused_imports, reason = "not every level is in use in every build")]
        pub(crate) use $name as $level;
    )*};
}

levels! { $
    trace as log_trace: "A step of a state machine.";
    debug as log_debug: "A decision, with its reason.";
    warn as log_warn: "A fault that was handled.";
}

#[cfg(test)]
mod tests {
    use super::debug;

    /// With the feature this test would need a global logger to link; `conformance/proof/defmt` tests that
    /// case.
    #[cfg(not(feature = "defmt"))]
    #[test]
    fn without_the_feature_arguments_are_not_evaluated() {
        let mut evaluated = 0u32;
        let mut count = || {
            evaluated += 1;
            evaluated
        };
        debug!("counted {}", count());
        let _ = &mut count;
        assert_eq!(evaluated, 0);
    }
}
