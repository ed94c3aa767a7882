//! Finds the argument of a tool that takes an idempotency key, and the form of the downstream key that its schema accepts. Pure.

use onceward::core::hash::{Fields, digest};
use regex_automata::nfa::thompson::{self, pikevm::PikeVM};
use regex_automata::util::syntax;
use serde_json::Value;

use super::members::Members;

/// The shortest form of a key. 16 characters hold 80 bits: among a billion calls of a tool, the probability that two share a key is
/// below one in a million.
const MIN_CHARACTERS: usize = 16;

/// Characters of 5 bits each that hold at least 128 bits.
const COMPACT_CHARACTERS: usize = 26;

/// How many sample keys must match a schema before it counts as accepting all keys.
const SAMPLES: u32 = 64;

/// Limits of a pattern, compiled and as text: patterns come from the server.
const PATTERN_MEMORY: usize = 64 * 1024;
const PATTERN_LENGTH: usize = 1000;

/// How deep `anyOf` and `oneOf` are followed.
const MAX_DEPTH: u32 = 4;

/// Keywords that restrict a schema and are not evaluated here.
const NARROWING: [&str; 12] = [
    "enum",
    "const",
    "not",
    "allOf",
    "if",
    "$ref",
    "$dynamicRef",
    "$recursiveRef",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "disallow",
];

/// Other names of arguments that may take a key. They are suggested, and filled only if the configuration says so.
const CANDIDATES: [&str; 10] = [
    "clientrequestid",
    "clientrequesttoken",
    "clienttoken",
    "dedupekey",
    "dedupid",
    "deduplicationid",
    "deduplicationkey",
    "idempotencyid",
    "idempotencytoken",
    "idempotentkey",
];

/// The alphabet of RFC 4648 in lower case.
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Whether an argument is for an idempotency key, with case and separators ignored.
pub(super) fn is_key(name: &str) -> bool {
    normalised(name) == "idempotencykey"
}

/// Whether an argument with another name may be for an idempotency key.
pub(super) fn is_candidate(name: &str) -> bool {
    CANDIDATES.contains(&normalised(name).as_str())
}

fn normalised(name: &str) -> String {
    name.chars().filter(|character| character.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// The form of the downstream key. Every form but the first is derived from a hash of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeyForm {
    /// Unchanged: 40 characters.
    Whole,
    /// A UUID that looks random (version 4), because that is what most servers check for.
    Uuid,
    /// This many hexadecimal digits.
    Hex(usize),
    /// This many lower-case letters and digits.
    Compact(usize),
}

impl KeyForm {
    pub(super) fn write(self, key: &str) -> String {
        let digest = Fields::new().field(b"key argument v1").field(key).digest();
        match self {
            Self::Whole => key.to_owned(),
            Self::Hex(digits) => digest.to_hex().chars().take(digits).collect(),
            Self::Compact(characters) => {
                let bytes = digest.as_bytes().iter().take(characters);
                bytes.map(|byte| char::from(ALPHABET[usize::from(byte % 32)])).collect()
            }
            Self::Uuid => {
                let mut bytes = [0; 16];
                bytes.copy_from_slice(&digest.as_bytes()[..16]);
                bytes[6] = bytes[6] & 0x0f | 0x40;
                bytes[8] = bytes[8] & 0x3f | 0x80;
                let digits = format!("{:032x}", u128::from_be_bytes(bytes));
                [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
            }
        }
    }

    /// All forms, those that keep more of the key first.
    fn all() -> impl Iterator<Item = Self> {
        let shorter = (MIN_CHARACTERS..=COMPACT_CHARACTERS).rev().map(Self::Compact);
        [Self::Whole, Self::Uuid, Self::Hex(32), Self::Hex(64)].into_iter().chain(shorter)
    }
}

/// The argument of one tool that takes a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeySlot {
    pub(super) name: String,
    /// The form of the key, or why no form fits.
    pub(super) form: Result<KeyForm, &'static str>,
    /// Another part of the schema names it, so it must stay in the schema for clients that validate arguments.
    pub(super) is_entangled: bool,
}

impl KeySlot {
    /// Finds the argument in a tool's schema: the one with this name, or the one that is spelled like a key.
    pub(super) fn find(schema: &Members, named: Option<&str>) -> Option<Self> {
        let properties = schema.object("properties")?;
        let mut found = properties.names().filter(|name| named.map_or_else(|| is_key(name), |named| named == *name));
        let name = found.next()?.to_owned();
        let form = match found.next() {
            Some(_) => Err("several of its arguments are spelled like a key"),
            None => form(properties.get(&name)?.get()),
        };
        Some(Self { is_entangled: is_entangled(schema, &name), name, form })
    }
}

/// Whether conditions on all arguments name this one.
fn is_entangled(schema: &Members, name: &str) -> bool {
    let quoted = Value::from(name).to_string();
    let others = schema.names().filter(|keyword| !["properties", "required"].contains(keyword));
    others.filter_map(|keyword| schema.get(keyword)).any(|condition| condition.get().contains(&quoted))
}

/// The first form that a schema accepts.
fn form(schema: &str) -> Result<KeyForm, &'static str> {
    let schema = serde_json::from_str(schema).map_err(|_| "its schema cannot be read")?;
    let mut accepted = AcceptedKeys { least: 0, most: usize::MAX, patterns: Vec::new(), is_uuid: false };
    accepted.narrow(&schema, false, MAX_DEPTH)?;
    if accepted.most < MIN_CHARACTERS {
        return Err("its schema allows fewer than 16 characters");
    }
    let samples: Vec<String> = (0..SAMPLES).map(sample).collect();
    let fits = |form: &KeyForm| samples.iter().all(|key| accepted.takes(&form.write(key), *form));
    KeyForm::all().find(fits).ok_or("no key of the gateway fits the lengths, the pattern and the format of its schema")
}

/// A sample of a downstream key.
fn sample(number: u32) -> String {
    format!("once_v1_{}", &digest(&number.to_be_bytes()).to_hex()[..32])
}

/// The keys that a schema accepts.
struct AcceptedKeys {
    least: usize,
    most: usize,
    patterns: Vec<PikeVM>,
    is_uuid: bool,
}

impl AcceptedKeys {
    fn takes(&self, text: &str, form: KeyForm) -> bool {
        let is_long = (self.least..=self.most).contains(&text.len());
        let is_format = !self.is_uuid || form == KeyForm::Uuid;
        is_long && is_format && self.patterns.iter().all(|pattern| is_match(pattern, text))
    }

    /// Applies one level of a schema. `is_string` when the level above says that it is a string.
    fn narrow(&mut self, schema: &Value, is_string: bool, depth: u32) -> Result<(), &'static str> {
        const NOT_A_STRING: &str = "its schema does not say that it is a string";
        let schema = schema.as_object().ok_or(NOT_A_STRING)?;
        if depth == 0 || NARROWING.iter().any(|keyword| schema.contains_key(*keyword)) {
            return Err("its schema allows certain values only");
        }
        let is_string = match schema.get("type") {
            Some(Value::String(kind)) if kind == "string" => true,
            Some(Value::Array(kinds)) if kinds.iter().any(|kind| kind == "string") => true,
            Some(_) => return Err(NOT_A_STRING),
            None => is_string,
        };
        self.least = self.least.max(length(schema.get("minLength"))?.unwrap_or(0));
        self.most = self.most.min(length(schema.get("maxLength"))?.unwrap_or(usize::MAX));
        match schema.get("format").map(Value::as_str) {
            None => {}
            Some(Some("uuid")) => self.is_uuid = true,
            Some(_) => return Err("its schema has a format that a key does not have"),
        }
        match schema.get("pattern").map(Value::as_str) {
            None => {}
            Some(pattern) => self
                .patterns
                .push(pattern.and_then(compiled).ok_or("its schema has a pattern that cannot be evaluated")?),
        }
        let choices = ["anyOf", "oneOf"].into_iter().filter_map(|keyword| schema.get(keyword)).collect::<Vec<_>>();
        for choice in &choices {
            let branches = choice.as_array().map(Vec::as_slice).unwrap_or_default();
            let mut branches = branches.iter().filter(|branch| !is_null(branch));
            match (branches.next(), branches.next()) {
                (Some(branch), None) => self.narrow(branch, is_string, depth - 1)?,
                _ => return Err("its schema leaves a choice of types"),
            }
        }
        if is_string || !choices.is_empty() { Ok(()) } else { Err(NOT_A_STRING) }
    }
}

fn is_null(schema: &Value) -> bool {
    schema.get("type").is_some_and(|kind| kind == "null")
}

fn length(given: Option<&Value>) -> Result<Option<usize>, &'static str> {
    let Some(given) = given else { return Ok(None) };
    // Some schemas write 36.0.
    let text = given.to_string();
    let whole = text.strip_suffix(".0").unwrap_or(&text);
    whole.parse().map(Some).map_err(|_| "its schema has a length that is not a number")
}

/// Compiles a pattern. Keys are ASCII, so character classes are too, as in ECMAScript; patterns that only ECMAScript has are refused.
fn compiled(pattern: &str) -> Option<PikeVM> {
    let config = thompson::Config::new().nfa_size_limit(Some(PATTERN_MEMORY));
    let syntax = syntax::Config::new().unicode(false).utf8(false).nest_limit(50);
    let is_short = pattern.len() <= PATTERN_LENGTH;
    is_short.then(|| PikeVM::builder().thompson(config).syntax(syntax).build(pattern).ok())?
}

fn is_match(pattern: &PikeVM, text: &str) -> bool {
    pattern.is_match(&mut pattern.create_cache(), text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(property: &str) -> Result<KeyForm, &'static str> {
        let schema = format!(r#"{{"properties":{{"idempotency_key":{property}}}}}"#);
        KeySlot::find(&Members::read(&schema).unwrap(), None).unwrap().form
    }

    #[test]
    fn a_key_has_the_first_form_that_its_schema_accepts() {
        for (property, expected) in [
            (r#"{"type":"string"}"#, KeyForm::Whole),
            (r#"{"type":["null","string"],"maxLength":45.0,"title":"x"}"#, KeyForm::Whole),
            (r#"{"type":"string","maxLength":39}"#, KeyForm::Uuid),
            (r#"{"type":"string","maxLength":35}"#, KeyForm::Hex(32)),
            (r#"{"type":"string","maxLength":31}"#, KeyForm::Compact(26)),
            (r#"{"type":"string","maxLength":17}"#, KeyForm::Compact(17)),
            (r#"{"type":"string","minLength":41}"#, KeyForm::Hex(64)),
            (r#"{"type":"string","format":"uuid"}"#, KeyForm::Uuid),
            (r#"{"type":"string","pattern":"^[0-9a-f]+$"}"#, KeyForm::Hex(32)),
            (r#"{"type":"string","pattern":"^[a-z\\d]{20}$"}"#, KeyForm::Compact(20)),
            (r#"{"anyOf":[{"type":"null"},{"type":"string","maxLength":36}]}"#, KeyForm::Uuid),
            (r#"{"type":"string","oneOf":[{"maxLength":36}]}"#, KeyForm::Uuid),
        ] {
            assert_eq!(found(property), Ok(expected), "{property}");
        }
    }

    #[test]
    fn an_argument_whose_schema_may_refuse_a_key_is_not_filled() {
        for property in [
            "true",
            "{}",
            r#"{"type":"object"}"#,
            r#"{"type":"string","maxLength":15}"#,
            r#"{"type":"string","maxLength":-1}"#,
            r#"{"type":"string","maxLength":"x"}"#,
            r#"{"type":"string","minLength":65}"#,
            r#"{"type":"string","minLength":41,"maxLength":63}"#,
            r#"{"type":"string","enum":["a"]}"#,
            r#"{"type":"string","not":{"pattern":"once"}}"#,
            r#"{"type":"string","format":"email"}"#,
            r#"{"type":"string","format":"uuid","maxLength":35}"#,
            r#"{"type":"string","pattern":"^[A-Z]+$"}"#,
            r#"{"type":"string","pattern":"^[g-n]"}"#,
            r#"{"type":"string","pattern":"(?!x)"}"#,
            r#"{"type":"string","pattern":7}"#,
            r#"{"type":"string","pattern":"((((a{999}){999}){999}){999})"}"#,
            r#"{"anyOf":[{"type":"string"},{"type":"integer"}]}"#,
            r#"{"anyOf":[{"anyOf":[{"anyOf":[{"anyOf":[{"type":"string"}]}]}]}]}"#,
            r#"{"anyOf":[]}"#,
        ] {
            assert!(found(property).is_err(), "{property}: {:?}", found(property));
        }
    }

    #[test]
    fn a_form_is_the_same_for_a_key_and_differs_between_keys() {
        for form in KeyForm::all() {
            assert_eq!(form.write("once_v1_a"), form.write("once_v1_a"));
            assert_ne!(form.write("once_v1_a"), form.write("once_v1_b"));
        }
        let uuid = KeyForm::Uuid.write("once_v1_a");
        assert_eq!((uuid.len(), &uuid[14..15], &uuid[8..9]), (36, "4", "-"), "{uuid}");
    }

    #[test]
    fn all_spellings_of_the_name_count_and_two_of_them_are_ambiguous() {
        for name in ["idempotency_key", "Idempotency-Key", "IDEMPOTENCYKEY", "idempotencyKey", "idempotency key"] {
            assert!(is_key(name) && !is_candidate(name), "{name}");
        }
        assert!(!is_key("idempotency_keys") && is_candidate("clientToken") && !is_candidate("token"));
        let both = r#"{"properties":{"idempotencyKey":{"type":"string"},"idempotency_key":{"type":"string"}}}"#;
        assert!(KeySlot::find(&Members::read(both).unwrap(), None).unwrap().form.is_err());
        assert!(KeySlot::find(&Members::read(both).unwrap(), Some("idempotencyKey")).unwrap().form.is_ok());
        assert!(KeySlot::find(&Members::read(both).unwrap(), Some("token")).is_none());
    }

    #[test]
    fn an_argument_that_conditions_name_is_entangled() {
        let schema = |more: &str| format!(r#"{{"properties":{{"idempotency_key":{{"type":"string"}}}}{more}}}"#);
        let find = |more: &str| KeySlot::find(&Members::read(&schema(more)).unwrap(), None).unwrap().is_entangled;
        assert!(find(r#","anyOf":[{"required":["idempotency_key"]}]"#));
        assert!(!find(r#","required":["idempotency_key"],"description":"an idempotency_key is needed""#));
    }
}
