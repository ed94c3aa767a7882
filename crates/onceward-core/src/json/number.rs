//! JSON numbers without loss: integers keep their digits, and every other number is a double with exactly the written value, in
//! the form that ECMAScript prints.

use std::fmt;

/// A number as its canonical text. Equal numbers in different spellings (`1e2`, `100.0`, `100`) have the same text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Number(String);

impl Number {
    /// The number of a valid JSON literal; `None` if a double cannot represent it exactly.
    pub(super) fn from_literal(literal: &str) -> Option<Self> {
        if !literal.contains(['.', 'e', 'E']) {
            return Some(Self(if literal == "-0" { "0" } else { literal }.to_owned()));
        }
        let double: f64 = literal.parse().ok()?;
        let number = Self::from_f64(double)?;
        (Decimal::of(literal) == Decimal::of(&number.0)).then_some(number)
    }

    /// The number of a double; `None` if it is infinite or NaN.
    pub fn from_f64(double: f64) -> Option<Self> {
        double.is_finite().then(|| Self(ecmascript(&shortest(double))))
    }

    /// The canonical text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The number as an integer, if it is one and fits.
    pub fn as_i64(&self) -> Option<i64> {
        self.0.parse().ok()
    }

    /// The number as an unsigned integer, if it is one and fits.
    pub fn as_u64(&self) -> Option<u64> {
        self.0.parse().ok()
    }
}

impl From<i64> for Number {
    fn from(integer: i64) -> Self {
        Self(integer.to_string())
    }
}

impl From<u64> for Number {
    fn from(integer: u64) -> Self {
        Self(integer.to_string())
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Number({})", self.0)
    }
}

/// A decimal number in normal form: `0.digits × 10^point`, without zeros at either end of the digits. Zero has no digits, no
/// sign, and a point of 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Decimal {
    negative: bool,
    digits: String,
    point: i64,
}

impl Decimal {
    /// The value of a valid JSON literal.
    pub(crate) fn of(literal: &str) -> Self {
        let (mantissa, exponent) = literal.split_once(['e', 'E']).unwrap_or((literal, "0"));
        let (negative, mantissa) = match mantissa.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, mantissa),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = [whole, fraction].concat();
        let significant = all.trim_start_matches('0');
        if significant.is_empty() {
            return Self { negative: false, digits: String::new(), point: 0 };
        }
        let leading_zeros = all.len() - significant.len();
        let point = (whole.len() as i64 - leading_zeros as i64).saturating_add(clamped(exponent));
        Self { negative, digits: significant.trim_end_matches('0').to_owned(), point }
    }

    /// The number without an exponent: `-12.5`, `0.001`, `1000`. The text grows with the exponent, so use this only for small
    /// exponents.
    pub(crate) fn plain(&self) -> String {
        let sign = if self.negative { "-" } else { "" };
        let zeros = |count: i64| "0".repeat(usize::try_from(count).unwrap_or(0));
        let count = self.digits.len() as i64;
        if self.digits.is_empty() {
            "0".to_owned()
        } else if self.point <= 0 {
            format!("{sign}0.{}{}", zeros(-self.point), self.digits)
        } else if self.point >= count {
            format!("{sign}{}{}", self.digits, zeros(self.point - count))
        } else {
            let (whole, fraction) = self.digits.split_at(usize::try_from(self.point).unwrap_or(0));
            format!("{sign}{whole}.{fraction}")
        }
    }
}

/// An exponent of any length, saturated. No double has an exponent near the limits.
fn clamped(exponent: &str) -> i64 {
    let digits = exponent.trim_start_matches(['+', '-']);
    let size = digits
        .bytes()
        .fold(0_i64, |size, digit| size.saturating_mul(10).saturating_add(i64::from(digit.wrapping_sub(b'0'))));
    if exponent.starts_with('-') { -size } else { size }
}

/// The shortest decimal that parses to the double; of several, the closest; of two equally close ones, the even one, as RFC 8785
/// requires. `{:e}` alone breaks such ties differently: it prints 1127276533549035.25 with .3 at the end, where every other
/// language prints .2.
fn shortest(double: f64) -> Decimal {
    let shortest = format!("{double:e}");
    let digits = shortest.bytes().take_while(|byte| *byte != b'e').filter(u8::is_ascii_digit).count();
    let closest = format!("{double:.*e}", digits.saturating_sub(1));
    // Next to a power of two, the closest decimal of that length may belong to the neighbouring double.
    Decimal::of(if closest.parse() == Ok(double) { &closest } else { &shortest })
}

/// `Number::toString` of ECMA-262, from the shortest digits of the double.
fn ecmascript(decimal: &Decimal) -> String {
    // The limits of the standard: an exponent for more than 21 digits before the point, or for 6 zeros after it.
    if (-5..=21).contains(&decimal.point) {
        return decimal.plain();
    }
    let sign = if decimal.negative { "-" } else { "" };
    let (first, others) = decimal.digits.split_at(1);
    let dot = if others.is_empty() { "" } else { "." };
    format!("{sign}{first}{dot}{others}e{:+}", decimal.point - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(literal: &str) -> String {
        Number::from_literal(literal).unwrap_or_else(|| panic!("{literal} refused")).0
    }

    #[test]
    fn integers_keep_their_digits_at_any_size() {
        for literal in ["0", "-1", "9007199254740992", "9007199254740993", "1000000000000000000000000000000"] {
            assert_eq!(canonical(literal), literal);
        }
        assert_eq!(canonical("-0"), "0");
    }

    #[test]
    fn doubles_are_formatted_as_in_ecmascript() {
        for (literal, text) in [
            ("1e2", "100"),
            ("1E2", "100"),
            ("10.0", "10"),
            ("-0.0", "0"),
            ("0e999999999999999999999", "0"),
            ("1e20", "100000000000000000000"),
            ("1e21", "1e+21"),
            ("-1.5e300", "-1.5e+300"),
            ("0.000001", "0.000001"),
            ("0.0000001", "1e-7"),
            ("1.23e-7", "1.23e-7"),
            ("123.456", "123.456"),
            ("5e-324", "5e-324"),
            ("1.7976931348623157e308", "1.7976931348623157e+308"),
            ("999999999999999900000.0", "999999999999999900000"),
            ("9007199254740992.0", "9007199254740992"),
            ("0.1", "0.1"),
            ("0.10", "0.1"),
            ("1127276533549035.2", "1127276533549035.2"),
            ("9.5367431640625e-7", "9.5367431640625e-7"),
        ] {
            assert_eq!(canonical(literal), text, "{literal}");
        }
    }

    #[test]
    fn a_fraction_that_a_double_cannot_represent_is_refused() {
        for literal in [
            "0.1000000000000000055",
            "9007199254740993.0",
            "1127276533549035.25",
            "1127276533549035.3",
            "9007199254740993e0",
            "1e400",
            "-1e400",
            "1e-400",
            "2e-324",
            "1e99999999999999999999999",
            "1e-99999999999999999999999",
            "1.7976931348623159e308",
            "0.12345678901234567890",
        ] {
            assert_eq!(Number::from_literal(literal), None, "{literal}");
        }
    }

    #[test]
    fn every_double_round_trips_in_our_format_and_in_that_of_serde_json() {
        let mut bits: u64 = 0x9e37_79b9_7f4a_7c15;
        for _ in 0..20_000 {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Also quarters between 2^49 and 2^51, where ties are common.
            for double in [f64::from_bits(bits), ((1 << 51) + (bits >> 12)) as f64 / 4.0] {
                let Some(number) = Number::from_f64(double) else { continue };
                assert_eq!(number.0.parse::<f64>().unwrap(), double);
                assert_eq!(Number::from_literal(&number.0), Some(number.clone()));
                assert_eq!(Number::from_literal(&serde_json::to_string(&double).unwrap()), Some(number));
            }
        }
    }

    #[test]
    fn an_integer_is_returned_if_it_fits() {
        let as_both = |literal: &str| {
            let number = Number::from_literal(literal).unwrap();
            (number.as_i64(), number.as_u64())
        };
        assert_eq!(as_both("18446744073709551615"), (None, Some(u64::MAX)));
        assert_eq!(as_both("-9223372036854775808"), (Some(i64::MIN), None));
        assert_eq!(as_both("7.0"), (Some(7), Some(7)));
        assert_eq!(as_both("7.5"), (None, None));
        assert_eq!(as_both("18446744073709551616"), (None, None));
        let number = Number::from_literal("7.50").unwrap();
        assert_eq!((number.to_string(), format!("{number:?}")), ("7.5".to_owned(), "Number(7.5)".to_owned()));
    }

    #[test]
    fn infinity_and_nan_are_refused() {
        assert_eq!(Number::from_f64(f64::INFINITY), None);
        assert_eq!(Number::from_f64(f64::NAN), None);
    }

    #[test]
    fn a_plain_decimal_has_no_exponent_and_no_unnecessary_zeros() {
        for (literal, plain) in [
            ("10.00", "10"),
            ("-0.00", "0"),
            ("0.50", "0.5"),
            ("1e3", "1000"),
            ("1.25e1", "12.5"),
            ("-1e-3", "-0.001"),
            ("100", "100"),
            ("0.10000000000000000550", "0.1000000000000000055"),
        ] {
            assert_eq!(Decimal::of(literal).plain(), plain);
        }
    }
}
