//! Templates with ordinary, missing and hostile values.

use bytes::Bytes;
use onceward::core::json;
use onceward::core::name::{Identity, Key, Operation, Tenant};
use onceward::courier::Parcel;
use onceward::record::Fence;

use super::*;

fn parcel(payload: &str) -> Parcel {
    Parcel {
        identity: Identity {
            tenant: Tenant::new("acme").unwrap(),
            operation: Operation::new("charge").unwrap(),
            key: Key::new("order 7").unwrap(),
        },
        payload: Bytes::copy_from_slice(payload.as_bytes()),
        downstream_key: "k1".to_owned(),
        attempt: 3,
        fence: Fence::from_bits(1),
    }
}

fn render(place: Escaping, source: &str, payload: &str) -> Result<String, String> {
    Template::parse("body", source, place)?.render(&Values::of(&parcel(payload)))
}

/// The payload with this text as its member `x`.
fn with(text: &str) -> String {
    json::Value::object([("x".to_owned(), json::Value::String(text.to_owned()))]).unwrap().canonical()
}

/// Texts that end strings, lines, tags, segments and hosts in careless code, and texts made of the same characters at random.
fn hostile() -> Vec<String> {
    const WRITTEN: [&str; 26] = [
        "\"",
        "\\",
        "\\\"",
        "\",\"admin\":true,\"y\":\"",
        "}",
        "\r\nX-Admin: 1",
        "\n",
        "\0",
        "\u{1}",
        "\u{2}1\u{1}",
        "..",
        ".",
        "../../admin",
        "a/b",
        "?admin=1",
        "&admin=1",
        "#x",
        "@evil.example",
        "%2e%2e%2f",
        "{{ key }}",
        "{% raw %}",
        "<script>alert(1)</script>",
        "' onload='x",
        "é\u{2028}\u{feff}",
        "a+b c=d;e",
        "\u{7f}\u{85}",
    ];
    const CHARACTERS: [char; 24] = [
        '"', '\\', '/', '.', '%', '\r', '\n', '\t', '\0', '\u{1}', '\u{2}', '{', '}', '[', ']', ',', ':', '<', '&',
        '?', '#', 'a', '2', 'é',
    ];
    let mut state = 0x5eed_u64;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let made = (0..3_000).map(|_| (0..=random(12)).map(|_| CHARACTERS[random(CHARACTERS.len())]).collect());
    WRITTEN.iter().map(|text| (*text).to_owned()).chain(made).collect()
}

#[test]
fn a_value_is_a_json_value_or_a_part_of_a_string() {
    let payload =
        r#"{"n":12345678901234567890123456789012345678901234567890,"f":0.1,"o":{"a":[1,null,true,"é"]},"s":"a\"b"}"#;
    for (source, expected) in [
        ("{{ payload.n }}", "12345678901234567890123456789012345678901234567890"),
        ("{\"a\": {{ payload.o }}, \"b\": {{ payload.f }}}", "{\"a\": {\"a\":[1,null,true,\"é\"]}, \"b\": 0.1}"),
        ("[{{ payload.s }}, \"say {{ payload.s }} {{ payload.f }}\"]", "[\"a\\\"b\", \"say a\\\"b 0.1\"]"),
        ("{\"{{ payload.s }}\": {{ attempt }}}", "{\"a\\\"b\": 3}"),
        ("[{{ key }},{{ tenant }},{{ operation }},{{ downstream_key }}]", "[\"order 7\",\"acme\",\"charge\",\"k1\"]"),
        ("[{% for e in payload.o.a %}{{ e }}{% if not loop.last %},{% endif %}{% endfor %}]", "[1,null,true,\"é\"]"),
        ("{{ payload.zero|default(7) }}", "7"),
        ("{{ payload.o.a|length }}", "4"),
        ("{{ {\"a\": payload.s} }}", "{\"a\":\"a\\\"b\"}"),
    ] {
        assert_eq!(render(Escaping::Json, source, payload).as_deref(), Ok(expected), "{source}");
    }
}

#[test]
fn a_missing_value_is_named() {
    for (source, missing) in [
        ("{{ payload.customer.id }}", "`payload.customer`"),
        ("{{ payload.x.y }}", "`payload.x.y`"),
        ("{% if payload.vip %}1{% endif %}", "`payload.vip`"),
        ("{{ payload.no|upper }}", "`payload.no`"),
    ] {
        let error = render(Escaping::Text, source, r#"{"x":{"z":1}}"#).unwrap_err();
        assert!(error.contains("payload.") && error.contains("missing"), "{source}: {error} {missing}");
    }
    let error = render(Escaping::Text, "{{ payload.a }}", "not JSON").unwrap_err();
    assert!(error.contains("`payload") && error.contains("`body`"), "{error}");
}

#[test]
fn a_template_that_can_never_work_is_refused_when_it_is_parsed() {
    for source in [
        "{{ payload.a ",
        "{% if %}",
        "{{ env.HOME }}",
        "{{ payload.a|nofilter }}",
        "{{ payload.a|safe }}",
        "{{ range(9) }}",
        "{{ debug() }}",
        "{% if payload.a is notest %}{% endif %}",
        "{% include \"/etc/passwd\" %}",
        "{% import \"a\" as b %}",
        "{% macro m() %}{% endmacro %}",
        "a\u{1}b",
        &"x".repeat(MAX_SOURCE + 1),
    ] {
        assert!(Template::parse("body", source, Escaping::Text).is_err(), "{source:.40}");
    }
}

#[test]
fn a_template_ends_at_its_limits() {
    let list = format!("{{\"l\":[{}]}}", vec!["1"; 3_000].join(","));
    let nested = "{% for a in payload.l %}{% for b in payload.l %}{% endfor %}{% endfor %}";
    let error = render(Escaping::Text, nested, &list).unwrap_err();
    assert!(error.contains("steps"), "{error}");
    let long = with(&"x".repeat(10_000));
    let error = render(Escaping::Text, &"{{ payload.x }}".repeat(1_000), &long).unwrap_err();
    assert!(error.contains("longer than"), "{error}");
    let joined = format!("{{\"l\":[{}],\"x\":\"{}\"}}", vec!["1"; 3_000].join(","), "x".repeat(10_000));
    assert!(render(Escaping::Text, "{{ payload.l|join(payload.x) }}", &joined).is_err());
}

#[test]
fn no_error_repeats_a_value() {
    for (place, source) in [
        (Escaping::Line, "{{ payload.x }}"),
        (Escaping::Url, "http://a/{{ payload.x }}"),
        (Escaping::Text, "{{ payload.x + 1 }}"),
        (Escaping::Text, "{{ payload[payload.x].y }}"),
        (Escaping::Text, "{{ payload.x|int }}"),
        (Escaping::Json, "{{ payload.x }} x"),
        (Escaping::Text, "{{ payload }}"),
    ] {
        let error = render(place, source, &with("hunter2\n/")).unwrap_err();
        assert!(!error.contains("hunter2"), "{source}: {error}");
    }
}

#[test]
fn a_value_never_changes_the_structure_of_json() {
    let source = r#"{"a": {{ payload.x }}, "b": "<{{ payload.x }}>", "c": [{{ payload }}], "d": 1}"#;
    for text in hostile() {
        let written = render(Escaping::Json, source, &with(&text)).unwrap();
        let string = |text: String| json::Value::String(text);
        let inner = json::Value::parse(with(&text).as_bytes()).unwrap();
        let expected = json::Value::object([
            ("a".to_owned(), string(text.clone())),
            ("b".to_owned(), string(format!("<{text}>"))),
            ("c".to_owned(), json::Value::Array(vec![inner])),
            ("d".to_owned(), json::Value::Number(1_i64.into())),
        ]);
        assert_eq!(json::Value::parse(written.as_bytes()).unwrap(), expected.unwrap(), "{text:?}");
    }
    // A list in quotes would end the string.
    assert!(render(Escaping::Json, r#"["{{ payload.x }}"]"#, r#"{"x":[",",","]}"#).is_err());
    assert!(render(Escaping::Json, r#"["\{{ payload.x }}"]"#, &with("\"")).is_err());
    // A name that is already there.
    assert!(render(Escaping::Json, r#"{"amount": 1, {{ payload.x }}: 2}"#, &with("amount")).is_err());
}

#[test]
fn a_value_never_leaves_its_part_of_a_url() {
    let source = "https://api.example:8443/v1/{{ payload.x }}/items?id={{ payload.x }}&z=1";
    for text in hostile() {
        let Ok(url) = render(Escaping::Url, source, &with(&text)) else {
            let is_refused = text.is_empty() || text.contains(['/', '\\']) || text.chars().any(char::is_control);
            assert!(is_refused, "{text:?}");
            continue;
        };
        let rest = url.strip_prefix("https://api.example:8443/v1/").unwrap();
        let (path, query) = rest.split_once('?').unwrap();
        let (value, items) = path.split_once('/').unwrap();
        assert_eq!((decoded(value), items), (text.clone(), "items"), "{url}");
        let (id, z) = query.split_once('&').unwrap();
        assert_eq!((decoded(id.strip_prefix("id=").unwrap()), z), (text, "z=1"), "{url}");
    }
    assert!(render(Escaping::Url, "http://a/{{ payload.x }}", r#"{"x":["a"]}"#).is_err());
    assert!(render(Escaping::Url, "http://a/{{ payload.x }}", r#"{"x":null}"#).is_err());
    assert_eq!(render(Escaping::Url, "http://a/?q={{ payload.x }}", &with("")).as_deref(), Ok("http://a/?q="));
}

/// Percent-decoding, after a check that only unreserved characters are there as they are.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first == b'%' {
            bytes.push(u8::from_str_radix(std::str::from_utf8(&after[..2]).unwrap(), 16).unwrap());
            rest = &after[2..];
        } else {
            assert!(first.is_ascii_alphanumeric() || b"-._~".contains(first), "{text}");
            bytes.push(*first);
            rest = after;
        }
    }
    String::from_utf8(bytes).unwrap()
}

#[test]
fn a_value_never_ends_a_line_or_a_tag_or_a_field() {
    for text in hostile() {
        if let Ok(line) = render(Escaping::Line, "a {{ payload.x }}", &with(&text)) {
            assert_eq!(line, format!("a {text}"));
            assert!(!line.chars().any(char::is_control), "{line:?}");
        } else {
            assert!(text.chars().any(char::is_control), "{text:?}");
        }
        let markup = render(Escaping::Markup, "<p title=\"{{ payload.x }}\">", &with(&text)).unwrap();
        let inner = markup.strip_prefix("<p title=\"").unwrap().strip_suffix("\">").unwrap();
        assert!(!inner.contains(['<', '>', '"', '\'']), "{markup}");
        let form = render(Escaping::Form, "a={{ payload.x }}&b=1", &with(&text)).unwrap();
        assert_eq!(decoded(form.strip_prefix("a=").unwrap().strip_suffix("&b=1").unwrap()), text);
    }
}

#[test]
fn a_captured_block_is_refused() {
    let source = "{% set x %}{{ payload.x }}{% endset %}{{ x }}";
    assert!(render(Escaping::Text, source, &with("a")).is_err());
}
