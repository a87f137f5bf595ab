//! Money as an integer in the smallest unit of its currency. No floating point, no silent overflow, no sum of two
//! currencies.

use std::{borrow::Cow, fmt};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Currency by its ISO 4217 code: three upper-case letters. Unassigned codes are accepted too.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Currency([u8; 3]);

/// The text is not three upper-case ASCII letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a currency code is three letters from A to Z")]
pub struct ParseCurrencyError;

impl Currency {
    /// Parses a code such as `EUR`; refuses lower case.
    pub fn parse(text: &str) -> Result<Self, ParseCurrencyError> {
        let code: [u8; 3] = text.as_bytes().try_into().map_err(|_length| ParseCurrencyError)?;
        if code.iter().all(u8::is_ascii_uppercase) { Ok(Self(code)) } else { Err(ParseCurrencyError) }
    }

    /// Returns the three letters, such as `EUR`.
    #[must_use]
    pub fn code(&self) -> &str {
        // `parse` accepts ASCII letters only, so the default is never used.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for Currency {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.code())
    }
}

impl fmt::Debug for Currency {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Currency({})", self.code())
    }
}

impl std::str::FromStr for Currency {
    type Err = ParseCurrencyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl Serialize for Currency {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.code())
    }
}

impl<'de> Deserialize<'de> for Currency {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// Amount in the smallest unit of its currency (cents for EUR, whole yen for JPY). Differences and refunds may be negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Money {
    amount_minor: i64,
    #[serde(rename = "currency_code")]
    currency: Currency,
}

/// Reason for refusing to compute an amount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MoneyError {
    /// The operands have different currencies; this type never converts.
    #[error("failed to combine {left} with {right}")]
    CurrenciesDiffer {
        /// Currency of the left operand.
        left: Currency,
        /// Currency of the right operand.
        right: Currency,
    },
    /// The result does not fit into 64 bits.
    #[error("the amount is too large")]
    Overflow,
}

impl Money {
    /// Creates an amount of `amount_minor` smallest units of `currency`.
    #[must_use]
    pub const fn new(amount_minor: i64, currency: Currency) -> Self {
        Self { amount_minor, currency }
    }

    /// Creates an amount of zero in `currency`.
    #[must_use]
    pub const fn zero(currency: Currency) -> Self {
        Self::new(0, currency)
    }

    /// Returns the amount in the smallest unit of the currency.
    #[must_use]
    pub const fn amount_minor(&self) -> i64 {
        self.amount_minor
    }

    /// Returns the currency of the amount.
    #[must_use]
    pub const fn currency(&self) -> Currency {
        self.currency
    }

    /// Adds an amount of the same currency.
    pub fn checked_add(self, other: Self) -> Result<Self, MoneyError> {
        self.combine(other, i64::checked_add)
    }

    /// Subtracts an amount of the same currency.
    pub fn checked_sub(self, other: Self) -> Result<Self, MoneyError> {
        self.combine(other, i64::checked_sub)
    }

    /// Multiplies the amount by `count`.
    pub fn checked_mul(self, count: i64) -> Result<Self, MoneyError> {
        let amount_minor = self.amount_minor.checked_mul(count).ok_or(MoneyError::Overflow)?;
        Ok(Self { amount_minor, ..self })
    }

    /// Returns the sum of `amounts`, all of which must be in `currency`; zero if there are none.
    pub fn sum(currency: Currency, amounts: impl IntoIterator<Item = Self>) -> Result<Self, MoneyError> {
        amounts.into_iter().try_fold(Self::zero(currency), Self::checked_add)
    }

    fn combine(self, other: Self, operation: fn(i64, i64) -> Option<i64>) -> Result<Self, MoneyError> {
        if self.currency != other.currency {
            return Err(MoneyError::CurrenciesDiffer { left: self.currency, right: other.currency });
        }
        let amount_minor = operation(self.amount_minor, other.amount_minor).ok_or(MoneyError::Overflow)?;
        Ok(Self { amount_minor, ..self })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn euro() -> Currency {
        Currency::parse("EUR").unwrap()
    }

    #[test]
    fn currency_requires_three_upper_case_letters() {
        assert_eq!(euro().code(), "EUR");
        assert_eq!(euro().to_string(), "EUR");
        for text in ["", "EU", "EURO", "eur", "E R", "EU1", "É1", "ÉU"] {
            assert_eq!(Currency::parse(text), Err(ParseCurrencyError), "{text:?}");
        }
    }

    #[test]
    fn different_currencies_cannot_be_combined() {
        let dollar = Currency::parse("USD").unwrap();
        let differ = Err(MoneyError::CurrenciesDiffer { left: euro(), right: dollar });
        let (one_euro, one_dollar) = (Money::new(100, euro()), Money::new(100, dollar));
        assert_eq!(one_euro.checked_add(one_dollar), differ);
        assert_eq!(one_euro.checked_sub(one_dollar), differ);
        assert_eq!(Money::sum(euro(), [one_dollar]), differ);
    }

    #[test]
    fn overflow_is_an_error() {
        let most = Money::new(i64::MAX, euro());
        assert_eq!(most.checked_add(Money::new(1, euro())), Err(MoneyError::Overflow));
        assert_eq!(
            Money::new(i64::MIN, euro()).checked_sub(Money::new(1, euro())),
            Err(MoneyError::Overflow)
        );
        assert_eq!(most.checked_mul(2), Err(MoneyError::Overflow));
    }

    #[test]
    fn json_has_a_currency_code_and_is_validated_when_read() {
        let json = serde_json::to_string(&Money::new(-5, euro())).unwrap();
        assert_eq!(json, r#"{"amount_minor":-5,"currency_code":"EUR"}"#);
        assert_eq!(serde_json::from_str::<Money>(&json).unwrap(), Money::new(-5, euro()));
        assert!(serde_json::from_str::<Money>(r#"{"amount_minor":1.5,"currency_code":"EUR"}"#).is_err());
        assert!(serde_json::from_str::<Money>(r#"{"amount_minor":1,"currency_code":"eur"}"#).is_err());
    }

    proptest! {
        #[test]
        fn arithmetic_is_exact_or_an_error(a: i64, b: i64) {
            let (left, right) = (Money::new(a, euro()), Money::new(b, euro()));
            for (ours, exact) in [
                (left.checked_add(right), i128::from(a) + i128::from(b)),
                (left.checked_sub(right), i128::from(a) - i128::from(b)),
                (left.checked_mul(b), i128::from(a) * i128::from(b)),
            ] {
                match i64::try_from(exact) {
                    Ok(exact) => prop_assert_eq!(ours, Ok(Money::new(exact, euro()))),
                    Err(_) => prop_assert_eq!(ours, Err(MoneyError::Overflow)),
                }
            }
        }

        #[test]
        fn sum_of_equal_amounts_equals_their_product(amount in -1_000_000_i64..1_000_000, count in 0_usize..50) {
            let one = Money::new(amount, euro());
            let sum = Money::sum(euro(), std::iter::repeat_n(one, count));
            prop_assert_eq!(sum, one.checked_mul(i64::try_from(count).unwrap()));
        }

        #[test]
        fn parsed_currency_prints_its_code(text in "[A-Z]{3}") {
            prop_assert_eq!(Currency::parse(&text).unwrap().to_string(), text);
        }
    }
}
