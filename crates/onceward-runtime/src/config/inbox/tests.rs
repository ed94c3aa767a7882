//! `[[inbox]]` as it is written in TOML.

use crate::config::InvalidSigningSecret;

use super::*;

#[derive(Debug, Deserialize)]
struct InboxFile {
    inbox: Vec<Inbox>,
}

fn parsed(tables: &str) -> Vec<Inbox> {
    toml::from_str::<InboxFile>(tables).unwrap().inbox
}

/// A table with these lines in addition to the required ones.
fn table(more: &str) -> String {
    let required =
        [("path", "\"/hooks/x\""), ("scheme", "\"stripe\""), ("secret", "\"env:X\""), ("operation", "\"x_event\"")];
    let missing = required.iter().filter(|(name, _)| !more.lines().any(|line| line.starts_with(&format!("{name} ="))));
    let lines: String = missing.map(|(name, value)| format!("{name} = {value}\n")).collect();
    format!("[[inbox]]\n{lines}{more}\n")
}

fn mistakes(more: &str) -> Vec<(usize, &'static str, String)> {
    Inbox::mistakes(&parsed(&table(more)))
}

fn folder_with(secrets: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in secrets {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

#[test]
fn an_inbox_needs_only_path_scheme_secret_and_operation() {
    let folder = folder_with(&[("secret", "whsec_0123456789abcdef\n")]);
    let inboxes = parsed(&table("path = \"/hooks/stripe\"\nsecret = \"file:secret\""));
    assert!(Inbox::mistakes(&inboxes).is_empty());
    let settings = inboxes[0].settings(0, folder.path()).unwrap();
    assert_eq!((settings.path.as_str(), settings.tenant.as_str()), ("/hooks/stripe", "default"));
    assert_eq!(settings.signing.tolerance, Duration::from_secs(300));
    assert!(matches!(settings.signing.scheme, SignatureScheme::Stripe));
    assert_eq!(settings.signing.secrets[0].as_bytes(), b"whsec_0123456789abcdef");
}

#[test]
fn several_secrets_are_read_while_one_is_rotated() {
    let folder = folder_with(&[("old", "0123456789abcdef-old"), ("new", "0123456789abcdef-new")]);
    let inboxes = parsed(&table("secret = [\"file:old\", \"file:new\"]"));
    let settings = inboxes[0].settings(0, folder.path()).unwrap();
    let secrets: Vec<_> = settings.signing.secrets.iter().map(SigningSecret::as_bytes).collect();
    assert_eq!(secrets, [b"0123456789abcdef-old", b"0123456789abcdef-new"]);
    assert_eq!(mistakes("secret = []")[0].1, "secret");
    assert_eq!(mistakes("secret = [\"env:A\", \"env:B\", \"env:C\", \"env:D\", \"env:E\"]")[0].1, "secret");
}

#[test]
fn a_secret_in_plain_text_is_refused_without_showing_it() {
    for secret in ["\"whsec_hunter2hunter2\"", "[\"env:A\", \"whsec_hunter2hunter2\"]", "\"sha256:hunter2\""] {
        let error = toml::from_str::<InboxFile>(&table(&format!("secret = {secret}"))).unwrap_err();
        assert!(!error.message().contains("hunter2"), "{}", error.message());
    }
    let hashed = format!("secret = \"sha256:{}\"", "0".repeat(64));
    assert!(mistakes(&hashed)[0].2.contains("a hash is not enough"));
}

#[test]
fn a_standard_webhooks_secret_is_decoded_and_others_are_not() {
    let standard = SignatureScheme::StandardWebhooks;
    let secret = |text: &str| SigningSecret::parse(&standard, text).map(|secret| secret.as_bytes().to_vec());
    for text in ["whsec_MDEyMzQ1Njc4OWFiY2RlZg==", "v1,whsec_MDEyMzQ1Njc4OWFiY2RlZg==", "MDEyMzQ1Njc4OWFiY2RlZg=="] {
        assert_eq!(secret(text).unwrap(), b"0123456789abcdef");
    }
    assert_eq!(secret("whsec_not base64"), Err(InvalidSigningSecret::NotBase64));
    assert_eq!(secret("whpk_MDEyMzQ1Njc4OWFiY2RlZg=="), Err(InvalidSigningSecret::KeyPair));
    assert_eq!(secret("whsec_MDEyMzQ1"), Err(InvalidSigningSecret::TooShort));
}

#[test]
fn a_short_or_endless_secret_is_refused_without_showing_it() {
    let folder = folder_with(&[("short", "hunter2"), ("long", &"hunter2".repeat(100)), ("empty", "")]);
    for (name, what) in [("short", "guessed"), ("long", "more than"), ("empty", "guessed"), ("absent", "absent")] {
        let inboxes = parsed(&table(&format!("secret = \"file:{name}\"")));
        let error = format!("{:?}", inboxes[0].settings(3, folder.path()).unwrap_err());
        assert!(error.contains("inbox[3].secret") && error.contains(what), "{error}");
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn settings_never_show_a_secret() {
    let folder = folder_with(&[("secret", "hunter2-hunter2-hunter2")]);
    let settings = parsed(&table("secret = \"file:secret\""))[0].settings(0, folder.path()).unwrap();
    assert!(!format!("{settings:?}").contains("hunter2"));
}

#[test]
fn an_unusable_path_says_why() {
    let long = format!("/{}", "x".repeat(255));
    for path in [
        "hooks/x",
        "",
        "/a b",
        "/a?b",
        "/a#b",
        "/a/*",
        "/a%20",
        "/ä",
        "/a//b",
        "/a/../b",
        "/v1/begin",
        "/healthz",
        "/.well-known/x",
        &long,
    ] {
        let mistakes = mistakes(&format!("path = {path:?}"));
        assert!(mistakes.len() == 1 && mistakes[0].1 == "path", "{path}: {mistakes:?}");
    }
    assert!(mistakes("path = \"/\"").is_empty());
}

#[test]
fn two_inboxes_cannot_share_a_path() {
    let inboxes = parsed(&format!("{}{}", table(""), table("scheme = \"github\"")));
    assert_eq!(Inbox::mistakes(&inboxes), [(1, "path", "inbox[0] already has this path".to_owned())]);
}

#[test]
fn a_tolerance_is_short_and_only_where_a_time_is_signed() {
    assert!(mistakes("tolerance = \"10m\"").is_empty());
    for tolerance in ["0s", "25h"] {
        assert_eq!(mistakes(&format!("tolerance = \"{tolerance}\""))[0].1, "tolerance");
    }
    assert_eq!(mistakes("scheme = \"github\"\ntolerance = \"5m\"")[0].1, "tolerance");
    let hmac = "scheme = \"hmac\"\ntolerance = \"5m\"\nhmac = { header = \"X-S\"";
    assert_eq!(mistakes(&format!("{hmac} }}"))[0].1, "tolerance");
    assert!(mistakes(&format!("{hmac}, timestamp_header = \"X-T\" }}")).is_empty());
}

#[test]
fn only_the_hmac_scheme_has_its_table() {
    assert_eq!(mistakes("scheme = \"hmac\"")[0].1, "hmac");
    assert_eq!(mistakes("hmac = { header = \"X-S\" }")[0].1, "hmac");
    assert!(mistakes("scheme = \"hmac\"\nhmac = { header = \"X-S\" }").is_empty());
}

#[test]
fn every_field_of_the_hmac_table_is_checked() {
    for (field, value) in [
        ("hash", "sha1"),
        ("hash", "md5"),
        ("encoding", "base32"),
        ("prefix", "sha256=\u{7f}"),
        ("separator", ""),
        ("separator", "0"),
        ("timestamp_header", "X T"),
        ("timestamp_header", "x-signature"),
        ("id", "id"),
        ("id", ""),
    ] {
        let mut fields = BTreeMap::from([("header", "X-Signature"), ("timestamp_header", "X-Time")]);
        fields.insert(field, value);
        let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name} = {value:?}")).collect();
        let text = format!("scheme = \"hmac\"\nhmac = {{ {} }}", fields.join(", ").replace("\\u{7f}", "\\u007f"));
        let found = mistakes(&text);
        assert!(found.len() == 1 && found[0].1 == "hmac" && found[0].2.contains(field), "{text}: {found:?}");
    }
    assert!(mistakes("scheme = \"hmac\"\nhmac = { header = \"X-S\", separator = \":\" }")[0].2.contains("needs"));
    assert!(mistakes("scheme = \"hmac\"\nhmac = { header = \"X S\" }")[0].2.contains("header"));
}

#[test]
fn names_of_operation_and_tenant_are_checked() {
    assert_eq!(mistakes("operation = \"\"")[0].1, "operation");
    assert_eq!(mistakes("tenant = \"a\\nb\"")[0].1, "tenant");
}
