//! Normalises different spellings of one value.

use unicode_normalization::UnicodeNormalization;

use super::Error;
use crate::json::{Decimal, Value};

/// One normaliser. They are applied in this order, whatever the order in the recipe: a number is recognised once the spaces
/// are gone, and lower case may need composing again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Normalise {
    /// Removes white space (Unicode `White_Space`) at both ends of a string.
    Trim,
    /// Converts strings to lower case (Unicode's full, locale-free mapping).
    Case,
    /// Converts strings to Unicode normalisation form C.
    Nfc,
    /// Numbers, and strings that are plain decimals, as one decimal text: `10`, `10.0` and `"10.00"` all
    /// become `"10"`. No digit is lost. Strings with a leading zero, a plus or an exponent stay as they are:
    /// `"0049"` is a dialling code and `"12e5"` may be an identifier.
    Number,
}

impl Normalise {
    /// Parses names, and sorts them into the order of application.
    pub(super) fn list(names: &[String]) -> Result<Vec<Self>, Error> {
        let mut list = names.iter().map(|name| Self::named(name)).collect::<Result<Vec<_>, _>>()?;
        list.sort_unstable();
        list.dedup();
        Ok(list)
    }

    fn named(name: &str) -> Result<Self, Error> {
        match name {
            "trim" => Ok(Self::Trim),
            "case" => Ok(Self::Case),
            "nfc" => Ok(Self::Nfc),
            "number" => Ok(Self::Number),
            _ => Err(Error::UnknownNormaliser { name: name.to_owned() }),
        }
    }

    fn string(self, string: String) -> String {
        match self {
            Self::Trim => string.trim().to_owned(),
            Self::Case => string.to_lowercase(),
            Self::Nfc => string.nfc().collect(),
            Self::Number if is_plain_decimal(&string) => Decimal::of(&string).plain(),
            Self::Number => string,
        }
    }
}

/// Normalises the strings and numbers in a value, at any depth; the names of members stay as they are.
pub(super) fn apply(normalisers: &[Normalise], value: &Value) -> Value {
    match value {
        Value::String(string) => {
            Value::String(normalisers.iter().fold(string.clone(), |string, normaliser| normaliser.string(string)))
        }
        // A number's canonical text has an exponent only as large as a double's, so plain text stays short.
        Value::Number(number) if normalisers.contains(&Normalise::Number) => {
            Value::String(Decimal::of(number.as_str()).plain())
        }
        Value::Array(elements) => Value::Array(elements.iter().map(|element| apply(normalisers, element)).collect()),
        Value::Object(members) => {
            Value::Object(members.iter().map(|(name, value)| (name.clone(), apply(normalisers, value))).collect())
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

/// The JSON grammar of a number without an exponent.
fn is_plain_decimal(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, "0"));
    digits(whole) && digits(fraction) && (whole == "0" || !whole.starts_with('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn normalised(names: &[&str], text: &str) -> String {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let value = Value::parse(text.as_bytes()).unwrap();
        apply(&Normalise::list(&names).unwrap(), &value).canonical()
    }

    #[test]
    fn each_does_its_own_thing_at_any_depth() {
        let text = "{\" A \":[\" E\u{301} \",{\"b\":\"\u{a0}B\"}]}";
        assert_eq!(normalised(&["trim"], text), "{\" A \":[\"E\u{301}\",{\"b\":\"B\"}]}");
        assert_eq!(normalised(&["case"], text), "{\" A \":[\" e\u{301} \",{\"b\":\"\u{a0}b\"}]}");
        assert_eq!(normalised(&["nfc"], text), "{\" A \":[\" \u{c9} \",{\"b\":\"\u{a0}B\"}]}");
        assert_eq!(normalised(&["nfc", "trim", "case"], text), "{\" A \":[\"\u{e9}\",{\"b\":\"b\"}]}");
        assert_eq!(normalised(&[], "[1.0,\" A \",null,true]"), "[1,\" A \",null,true]");
    }

    #[test]
    fn numbers_and_decimal_strings_become_one_text() {
        for text in ["10", "10.0", "1e1", "\"10\"", "\"10.00\""] {
            assert_eq!(normalised(&["number"], text), "\"10\"", "{text}");
        }
        for text in ["-0", "0.0", "\"-0.00\"", "0e5"] {
            assert_eq!(normalised(&["number"], text), "\"0\"", "{text}");
        }
        assert_eq!(normalised(&["number"], "1e21"), normalised(&["number"], "1000000000000000000000"));
        assert_eq!(normalised(&["number", "trim"], "\" 7.50 \""), "\"7.5\"");
    }

    #[test]
    fn long_decimals_lose_nothing() {
        assert_eq!(
            normalised(&["number"], "\"-12345678901234567890.12345678901234567890\""),
            "\"-12345678901234567890.1234567890123456789\""
        );
    }

    #[test]
    fn strings_that_are_no_plain_decimals_stay() {
        for text in ["", "007", "+1", "1.", ".5", "1e5", "0x10", "1,5", "--1", "-", "1.2.3", " 1", "١"] {
            let text = format!("\"{text}\"");
            assert_eq!(normalised(&["number"], &text), text);
        }
    }

    #[test]
    fn the_smallest_and_largest_doubles_stay_short() {
        assert_eq!(normalised(&["number"], "5e-324").len(), "\"0.\"".len() + 324);
        assert_eq!(normalised(&["number"], "1e308").len(), "\"\"".len() + 309);
    }
}
