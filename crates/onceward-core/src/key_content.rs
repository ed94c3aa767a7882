//! Recognises personal data and timestamps in keys. It only looks at the text, and only for warnings and for masking in lists; no
//! decision depends on it.

use std::fmt;
use std::time::Duration;

use crate::hash::digest;
use crate::time::Timestamp;

/// How far from now a number may be and still count as the time of a call.
const MAX_DISTANCE_FROM_NOW: Duration = Duration::from_secs(366 * 86_400);

/// Payment cards have from 13 to 19 digits (ISO/IEC 7812).
const CARD_DIGITS: std::ops::RangeInclusive<usize> = 13..=19;

/// International phone numbers have at most 15 digits (E.164). Shorter than 8, they are not international.
const PHONE_DIGITS: std::ops::RangeInclusive<usize> = 8..=15;

/// The first four digits of payment cards that begin with 2: Mir, and the newer range of Mastercard. Other numbers that begin with
/// 2 are mostly dates and order numbers, such as 2026-0001.
const CARDS_FROM_2: [std::ops::RangeInclusive<u32>; 2] = [2200..=2204, 2221..=2720];

/// North American numbers, `+1`, have exactly this many digits, and their area codes do not begin with 0 or 1.
const NORTH_AMERICAN_DIGITS: usize = 11;

/// User names in front of an `@` that are programs, not people.
const PROGRAM_USERS: [&str; 2] = ["git", "cron"];

/// Top-level domains that are reserved for networks without public mail (RFC 6761, RFC 6762 and ICANN).
const PRIVATE_DOMAINS: [&str; 3] = ["local", "internal", "localhost"];

/// A kind of personal data that can be recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PersonalData {
    /// `ann@example.com`
    Email,
    /// `+49 30 1234567`
    Phone,
    /// `4242 4242 4242 4242`, with a valid check digit
    Card,
}

impl fmt::Display for PersonalData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Email => "an e-mail address",
            Self::Phone => "a phone number",
            Self::Card => "a card number",
        })
    }
}

/// The personal data that a text seems to contain.
pub fn personal_data(text: &str) -> Option<PersonalData> {
    if has_email(text) {
        return Some(PersonalData::Email);
    }
    if has_phone(text) {
        return Some(PersonalData::Phone);
    }
    has_card(text).then_some(PersonalData::Card)
}

/// The masked form of a text that seems to contain personal data: the kind and a short digest. `None` for other texts.
pub fn masked(text: &str) -> Option<String> {
    let kind = match personal_data(text)? {
        PersonalData::Email => "email",
        PersonalData::Phone => "phone",
        PersonalData::Card => "card",
    };
    Some(format!("[{kind} {}]", digest(text.as_bytes()).short()))
}

fn has_email(text: &str) -> bool {
    text.match_indices('@').any(|(at, _)| {
        let is_local = |c: char| c.is_alphanumeric() || "._%+-".contains(c);
        let is_domain = |c: char| c.is_alphanumeric() || ".-".contains(c);
        let before = &text[..at];
        let user = &before[before.trim_end_matches(is_local).len()..];
        let rest = &text[at + 1..];
        let domain = &rest[..rest.find(|c| !is_domain(c)).unwrap_or(rest.len())];
        let is_public = |(name, top): (&str, &str)| !name.is_empty() && is_public_domain(top);
        !user.is_empty()
            && !PROGRAM_USERS.contains(&user)
            && domain.trim_end_matches('.').rsplit_once('.').is_some_and(is_public)
    })
}

/// Whether a top-level domain consists of letters and is not reserved. A date may follow it: `com-2026-11-18`.
fn is_public_domain(top: &str) -> bool {
    let top = top.split('-').next().unwrap_or_default();
    top.chars().count() >= 2
        && top.chars().all(char::is_alphabetic)
        && !PRIVATE_DOMAINS.iter().any(|private| top.eq_ignore_ascii_case(private))
}

fn has_phone(text: &str) -> bool {
    text.match_indices('+').any(|(at, _)| {
        let starts = !text[..at].chars().next_back().is_some_and(char::is_alphanumeric);
        starts && leading_numbers(&text[at + 1..], " -.()").iter().any(|digits| is_phone(digits))
    })
}

fn is_phone(digits: &str) -> bool {
    match digits.as_bytes() {
        [b'0', ..] => false,
        [b'1', area, ..] => digits.len() == NORTH_AMERICAN_DIGITS && (b'2'..=b'9').contains(area),
        _ => PHONE_DIGITS.contains(&digits.len()),
    }
}

fn has_card(text: &str) -> bool {
    text.char_indices().any(|(at, first)| {
        // Cards begin with 2 to 6; timestamps in milliseconds, which have as many digits, begin with 1.
        let starts = ('2'..='6').contains(&first) && !text[..at].chars().next_back().is_some_and(char::is_alphanumeric);
        let is_card =
            |digits: &String| CARD_DIGITS.contains(&digits.len()) && has_card_prefix(digits) && is_luhn(digits);
        starts && leading_numbers(&text[at..], " -").iter().any(is_card)
    })
}

/// Whether payment cards begin with these digits.
fn has_card_prefix(digits: &str) -> bool {
    let first_four = digits.get(..4).and_then(|first| first.parse().ok());
    !digits.starts_with('2')
        || first_four.is_some_and(|number| CARDS_FROM_2.iter().any(|range| range.contains(&number)))
}

/// The numbers with which a text may begin: its first group of digits, its first two groups, and so on. Groups are separated by
/// at most two of the `separators`. A date may follow directly.
fn leading_numbers(text: &str, separators: &str) -> Vec<String> {
    let (mut found, mut digits, mut gap) = (Vec::new(), String::new(), 0);
    for c in text.chars() {
        if c.is_ascii_digit() {
            digits.push(c);
            gap = 0;
            continue;
        }
        if gap == 0 && !c.is_alphanumeric() && !digits.is_empty() {
            found.push(digits.clone());
        }
        gap += 1;
        if !separators.contains(c) || gap > 2 {
            return found;
        }
    }
    if gap == 0 {
        found.push(digits);
    }
    found
}

/// Whether the check digit of ISO/IEC 7812 (Luhn) is valid.
fn is_luhn(digits: &str) -> bool {
    let sum: u32 = digits
        .bytes()
        .rev()
        .enumerate()
        .map(|(position, byte)| {
            let digit = u32::from(byte - b'0');
            if position % 2 == 0 { digit } else { digit * 2 / 10 + digit * 2 % 10 }
        })
        .sum();
    sum.is_multiple_of(10)
}

/// Whether the whole text is a timestamp near `now`: seconds, milliseconds, microseconds or nanoseconds since the epoch, or an
/// ISO 8601 date with a time of day. A date alone is a good key, and so is midnight, which stands for the date.
pub fn is_timestamp(text: &str, now: Timestamp) -> bool {
    is_epoch(text, now) || is_iso(text)
}

fn is_epoch(text: &str, now: Timestamp) -> bool {
    let whole = text.split_once('.').map_or(text, |(whole, _)| whole);
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let per_second: i128 = match whole.len() {
        10 => 1,
        13 => 1_000,
        16 => 1_000_000,
        19 => 1_000_000_000,
        _ => return false,
    };
    let Some(number) = whole.parse::<i128>().ok().filter(|_| is_number) else { return false };
    let seconds = number / per_second;
    let apart = seconds - i128::from(now.as_millis() / 1000);
    apart.unsigned_abs() <= u128::from(MAX_DISTANCE_FROM_NOW.as_secs())
}

fn is_iso(text: &str) -> bool {
    let shape: String = text.chars().take(16).map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    let is_start = ["0000-00-00T00:00", "0000-00-00t00:00", "0000-00-00 00:00"].contains(&shape.as_str());
    is_start
        && text.chars().skip(16).all(|c| c.is_ascii_digit() || ":.,+-zZ".contains(c))
        && !is_midnight(text.get(11..).unwrap_or_default())
        || text.len() >= 15 && text.is_ascii() && is_iso_basic(text)
}

/// The basic format of ISO 8601: `20261115T083000`, with a fraction and a zone.
fn is_iso_basic(text: &str) -> bool {
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    is_digits(&text[..8])
        && text[8..9].eq_ignore_ascii_case("t")
        && is_digits(&text[9..15])
        && text[15..].bytes().all(|byte| byte.is_ascii_digit() || b".,+-zZ".contains(&byte))
        && !is_midnight(&text[9..])
}

/// Whether a time of day is zero, without regard to its zone.
fn is_midnight(time: &str) -> bool {
    let zone = time.find(['Z', 'z', '+', '-']).unwrap_or(time.len());
    !time[..zone].bytes().any(|byte| (b'1'..=b'9').contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn personal_data_is_recognised_anywhere_in_a_key() {
        for (text, kind) in [
            ("ann@example.com", PersonalData::Email),
            ("welcome:Ann.O+x@mail.example.co.uk:2026", PersonalData::Email),
            ("jürgen@bücher.example", PersonalData::Email),
            ("+4930123456", PersonalData::Phone),
            ("sms/+1 (555) 123-4567/2026-11-15", PersonalData::Phone),
            ("4242424242424242", PersonalData::Card),
            ("charge 4242-4242-4242-4242 today", PersonalData::Card),
            ("378282246310005", PersonalData::Card),
            ("4242 4242 4242 4242-2026-11-15", PersonalData::Card),
            ("+49 30 1234567-2026-11-15", PersonalData::Phone),
            ("+4915112345678", PersonalData::Phone),
            ("tel:+4915112345678", PersonalData::Phone),
            ("sms:+12025550123", PersonalData::Phone),
            ("2223003122003222", PersonalData::Card),
            ("2200 0000 0000 0004", PersonalData::Card),
            ("2720-9900-0000-0007", PersonalData::Card),
            ("digit@example.com", PersonalData::Email),
            ("mailto:ann@example.com, later", PersonalData::Email),
            ("git@github.com:x ann@example.com", PersonalData::Email),
            ("ann@example.com:welcome", PersonalData::Email),
            ("ann@example.com.", PersonalData::Email),
            ("welcome-ann@example.com-2026-11-18", PersonalData::Email),
            ("ann@local.example", PersonalData::Email),
            ("ann@xn--bcher-kva.xn--p1ai", PersonalData::Email),
        ] {
            assert_eq!(personal_data(text), Some(kind), "{text}");
            assert!(masked(text).is_some_and(|masked| !masked.contains("ann") && !masked.contains("4242")), "{text}");
        }
    }

    #[test]
    fn ordinary_keys_are_not_personal_data() {
        for text in [
            "invoice-42",
            "2026-11-15",
            "1763190000000",
            "4242424242424241",
            "550e8400-e29b-41d4-a716-446655440000",
            "idem_v1_4242424242424242abcdef0123456789",
            "user@host",
            "@everyone",
            "a+b",
            "1+12345678x",
            "x4242424242424242",
            "once_v1_9c651a7d3fbfa3dd00e5f295f39afbca",
            "",
            "@",
            "+",
            "é@é",
            "2026-0001-0002-0003",
            "2026111800000003",
            "2205000000000009",
            "2199 0000 0000 0007",
            "2721000000000004",
            "git@github.com:org/repo.git#42",
            "deploy/git@github.com",
            "job@worker.local",
            "ops@db.internal",
            "root@box.localhost",
            "backup@10.0.0.12",
            "build@v1.rc1",
            "cron@daily.digest",
            "delta:+10000000",
            "delta:+10000000000",
        ] {
            assert_eq!(personal_data(text), None, "{text}");
            assert_eq!(masked(text), None);
        }
    }

    #[test]
    fn equal_keys_have_equal_masks_and_different_keys_do_not() {
        assert_eq!(masked("ann@example.com"), masked("ann@example.com"));
        assert_ne!(masked("ann@example.com"), masked("bob@example.com"));
    }

    #[test]
    fn a_timestamp_is_recognised_and_a_date_is_not_one() {
        let now = Timestamp::from_millis(1_763_190_000_000);
        for text in [
            "1763190000",
            "1763190000.25",
            "1763190000123",
            "1763190000123456",
            "1763190000123456789",
            "2026-11-15T08:00",
            "2026-11-15T08:00:00Z",
            "2026-11-15 08:00:00.123+01:00",
            "20261115T083000Z",
            "2026-11-15T00:00:01Z",
            "2026-11-15T00:00:00.001Z",
            "2026-11-15T00:30:00+01:00",
        ] {
            assert!(is_timestamp(text, now), "{text}");
        }
        for text in [
            "2026-11-15",
            "20261115",
            "1000000000",
            "4242424242",
            "invoice-1763190000",
            "2026-W46",
            "",
            "ü",
            "20261115T",
            "2026-11-18T00:00:00Z",
            "2026-11-18T00:00",
            "2026-11-18 00:00:00.000+01:00",
            "20261118T000000Z",
            "äöüäöüäöüäöüäöü",
        ] {
            assert!(!is_timestamp(text, now), "{text}");
        }
    }
}
