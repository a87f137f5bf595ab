//! How many units one customer may have of one event, over all claims.

/// What a customer may have of an event, and has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// The event's limit.
    pub units_max: u32,
    /// Units of all claims that count.
    pub units_taken: u32,
}

/// With these units the customer would have more than the event allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitExceeded {
    /// The event's limit.
    pub units_max: u32,
    /// How many the customer may still have.
    pub units_left: u32,
}

impl Allowance {
    /// Whether there is room for `units` more.
    pub fn check(self, units: u32) -> Result<(), LimitExceeded> {
        let units_left = self.units_max.saturating_sub(self.units_taken);
        if units <= units_left {
            Ok(())
        } else {
            Err(LimitExceeded { units_max: self.units_max, units_left })
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_passes_keeps_the_limit_and_what_does_not_would_break_it(max: u32, taken: u32, units: u32) {
            let sum = u64::from(taken) + u64::from(units);
            match (Allowance { units_max: max, units_taken: taken }).check(units) {
                Ok(()) => prop_assert!(units == 0 || sum <= u64::from(max)),
                Err(exceeded) => {
                    prop_assert!(sum > u64::from(max));
                    prop_assert_eq!(exceeded.units_max, max);
                    prop_assert!(exceeded.units_left < units);
                }
            }
        }
    }
}
