//! `[sink.NAME]`: the places to which the courier delivers. The doc comments here become the reference page.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, de};

use super::secret::Secret;
use super::values::{Length, OnError, Size};

/// A place to which the courier delivers.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SinkSettings {
    /// Requests to an API.
    Http(HttpSink),
    /// A program that runs once for each attempt.
    Command(CommandSink),
    /// Mails.
    Smtp(SmtpSink),
    /// A statement in the PostgreSQL database of the ledger, in one transaction with the end of the entry.
    Sql(SqlSink),
    /// Workers take the entries with the API.
    Pull(PullSink),
}

/// What an attempt at an API or a program may take, unless the file says otherwise.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// A transaction that takes longer than this holds up others.
const DEFAULT_STATEMENT_TIMEOUT: Duration = Duration::from_secs(10);

/// Servers check a mail before they accept it, which takes longer than an answer of an API.
const DEFAULT_MAIL_TIMEOUT: Duration = Duration::from_secs(60);

impl SinkSettings {
    /// Longest time for one attempt.
    pub fn timeout(&self) -> Duration {
        match self {
            Self::Http(sink) => sink.timeout(),
            Self::Command(sink) => sink.timeout(),
            Self::Smtp(sink) => sink.timeout(),
            Self::Sql(sink) => sink.timeout(),
            Self::Pull(_) => DEFAULT_TIMEOUT,
        }
    }

    /// Whether the downstream does the work once for each downstream key.
    pub fn honours_key(&self) -> bool {
        let written = match self {
            Self::Http(sink) => sink.honours_key,
            Self::Command(sink) => sink.honours_key,
            Self::Smtp(sink) => sink.honours_key,
            Self::Sql(_) | Self::Pull(_) => None,
        };
        written.unwrap_or(false)
    }

    /// Whether the downstream gets the key of the intent as it is.
    pub fn passes_key(&self) -> bool {
        matches!(self, Self::Http(HttpSink { passes_key: Some(true), .. }))
    }

    /// How long the downstream remembers a key, if the file says so.
    pub fn honours_key_for(&self) -> Option<Duration> {
        match self {
            Self::Http(sink) => sink.honours_key_for.map(|length| length.0),
            Self::Command(_) | Self::Smtp(_) | Self::Sql(_) | Self::Pull(_) => None,
        }
    }
}

/// Requests to an API: `type = "http"`. Where a field is a template, `{{ payload.customer }}` stands for a field of the payload;
/// `key`, `downstream_key`, `operation`, `tenant` and `attempt` are there too. Values are escaped for their place. A missing
/// field is an error: nothing is sent, and the entry is dead.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HttpSink {
    /// The method of the request.
    #[schemars(extend("x-type" = "string", "x-default" = "`\"POST\"`"))]
    pub method: Option<String>,
    /// The URL, as a template. Scheme, host and port are written out: only path and query can contain values.
    #[schemars(extend("x-type" = "template", "x-default" = "required"))]
    pub url: String,
    /// Headers: templates, `"env:NAME"` or `"file:PATH"` for a secret, or `{ secret = "env:NAME", prefix = "Bearer " }`.
    #[schemars(extend("x-type" = "table", "x-default" = "none"))]
    pub headers: BTreeMap<String, HeaderSource>,
    /// The body, as a template. The header `Content-Type` says how values are escaped: JSON, `application/x-www-form-urlencoded`,
    /// XML or plain text. In JSON, a value inside quotes becomes part of the string, and any other value is written as JSON.
    #[schemars(extend("x-type" = "template", "x-default" = "the payload, as `application/json`"))]
    pub body: Option<String>,
    /// Where the request carries the downstream key: `header:NAME`, `body:POINTER` for a member of a JSON body, or `none`.
    #[schemars(extend("x-type" = "string", "x-default" = "`\"header:Idempotency-Key\"`"))]
    pub downstream_key: Option<String>,
    /// Send the key of the intent unchanged, in place of a key that is derived from tenant, operation, key and sink. For the API,
    /// equal keys of two tenants are then one request; two operations cannot share such a sink.
    #[schemars(extend("x-type" = "boolean", "x-default" = "`false`"))]
    pub passes_key: Option<bool>,
    /// Whether the API does the work once for each downstream key. If so, an attempt with an unknown outcome is repeated with
    /// the same key.
    #[schemars(extend("x-type" = "boolean", "x-default" = "`false`"))]
    pub honours_key: Option<bool>,
    /// How long the API remembers a downstream key, counted from the first attempt that may have reached it.
    #[schemars(extend("x-type" = "duration", "x-default" = "`\"24h\"`"))]
    pub honours_key_for: Option<Length>,
    /// Response statuses that prove that the API did nothing. The entry is sent again later.
    #[schemars(extend("x-type" = "list of statuses", "x-default" = "`[]`"))]
    pub refusals: Option<Vec<u16>>,
    /// Whether a 500 is the final answer to a request, which the API repeats for the same key, as Stripe does. Otherwise the outcome
    /// of the attempt is unknown.
    #[schemars(extend("x-type" = "boolean", "x-default" = "`false`"))]
    pub keeps_server_errors: Option<bool>,
    /// A JSON pointer to the id in the response that the API gave the effect. It is kept beside the record.
    #[schemars(extend("x-type" = "JSON pointer", "x-default" = "none"))]
    pub reference: Option<String>,
    /// A request that asks whether an earlier attempt happened, for `in_doubt = "probe"`.
    #[schemars(extend("x-type" = "table", "x-default" = "none"))]
    pub probe: Option<HttpProbe>,
    /// Permit private networks and this machine. Addresses of cloud metadata are never permitted.
    #[schemars(extend("x-type" = "boolean", "x-default" = "`false`"))]
    pub allow_private: Option<bool>,
    /// The hosts that may be reached: names, addresses, or `*.DOMAIN` for every name below a domain.
    #[schemars(extend("x-type" = "list of hosts", "x-default" = "every public host"))]
    pub allowed_hosts: Option<Vec<String>>,
    /// Longest time for one attempt. After that, its outcome is unknown.
    #[schemars(extend("x-type" = "duration", "x-default" = "`\"30s\"`"))]
    pub timeout: Option<Length>,
    /// Additional CA certificates, as a PEM file.
    #[schemars(extend("x-type" = "path", "x-default" = "none"))]
    pub ca_file: Option<String>,
}

/// A request that asks an API whether an earlier attempt happened. It must change nothing.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct HttpProbe {
    /// The method of the request.
    #[schemars(extend("x-type" = "string", "x-default" = "`\"GET\"`"))]
    pub method: Option<String>,
    /// The URL, as a template.
    #[schemars(extend("x-type" = "template", "x-default" = "required"))]
    pub url: String,
    /// Headers in addition to those of the sink.
    #[schemars(extend("x-type" = "table", "x-default" = "none"))]
    pub headers: BTreeMap<String, HeaderSource>,
    /// The body, as a template.
    #[schemars(extend("x-type" = "template", "x-default" = "none"))]
    pub body: Option<String>,
    /// A JSON pointer into the response to the effect, such as `/data/0`. Without a value there, it did not happen.
    #[schemars(extend("x-type" = "JSON pointer", "x-default" = "none: every 2xx means that it happened"))]
    pub found: Option<String>,
}

/// A program that runs once for each attempt: `type = "command"`. It gets the payload on stdin, and `ONCEWARD_KEY`,
/// `ONCEWARD_ATTEMPT`, `ONCEWARD_OPERATION` and `ONCEWARD_TENANT` in its environment.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CommandSink {
    /// The program and its arguments. No shell is involved.
    #[schemars(extend("x-type" = "list of strings", "x-default" = "required"))]
    pub command: Vec<String>,
    /// Additional environment variables: texts, `"env:NAME"` or `"file:PATH"`.
    #[schemars(extend("x-type" = "table of strings", "x-default" = "none"))]
    pub env: BTreeMap<String, String>,
    /// The folder in which it runs. A relative path starts at the folder of this file.
    #[schemars(extend("x-type" = "path", "x-default" = "the working directory"))]
    pub folder: Option<String>,
    /// Exit codes that prove that nothing happened. The entry is sent again later.
    #[schemars(extend("x-type" = "list of exit codes", "x-default" = "`[75]`"))]
    pub not_sent: Option<Vec<u8>>,
    /// Exit codes that mean a final failure.
    #[schemars(extend("x-type" = "list of exit codes", "x-default" = "`[64]`"))]
    pub failed: Option<Vec<u8>>,
    /// What any other exit code means, except after a signal, which always leaves the outcome unknown. With `"classify"`, a
    /// failure without evidence in exit code and stderr that something happened counts as one that did nothing.
    #[schemars(extend("x-default" = "`\"doubt\"`"))]
    pub on_error: Option<OnError>,
    /// Whether the program does the work once for each `ONCEWARD_KEY`.
    #[schemars(extend("x-type" = "boolean", "x-default" = "`false`"))]
    pub honours_key: Option<bool>,
    /// Longest time for one attempt. After that, the program and its children are killed, and the outcome is unknown.
    #[schemars(extend("x-type" = "duration", "x-default" = "`\"30s\"`"))]
    pub timeout: Option<Length>,
    /// How much output is kept. A larger output is read to its end, and only its size and digest are kept.
    #[schemars(extend("x-type" = "bytes", "x-default" = "`\"256KiB\"`"))]
    pub output_limit: Option<Size>,
}

/// Mails: `type = "smtp"`. Subject, texts, addresses and headers are templates, as in an `http` sink.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SmtpSink {
    /// The name of the mail server.
    #[schemars(extend("x-type" = "string", "x-default" = "required"))]
    pub host: String,
    /// Its port.
    #[schemars(extend("x-type" = "number", "x-default" = "by `tls`: 587, 465 or 25"))]
    pub port: Option<u16>,
    /// How the connection is encrypted.
    #[schemars(extend("x-default" = "`\"starttls\"`"))]
    pub tls: Option<SmtpTls>,
    /// The user name, if the server asks for one.
    #[schemars(extend("x-type" = "string", "x-default" = "none"))]
    pub user: Option<String>,
    /// The password: `"env:NAME"` or `"file:PATH"`.
    #[schemars(extend("x-type" = "reference to a secret", "x-default" = "none"))]
    pub password: Option<Secret>,
    /// The sender.
    #[schemars(extend("x-type" = "template", "x-default" = "required"))]
    pub from: String,
    /// The recipients: a template for each address.
    #[schemars(extend("x-type" = "list of templates", "x-default" = "required"))]
    pub to: Vec<String>,
    /// Recipients of a copy.
    #[schemars(extend("x-type" = "list of templates", "x-default" = "`[]`"))]
    pub cc: Vec<String>,
    /// Recipients that the others do not see.
    #[schemars(extend("x-type" = "list of templates", "x-default" = "`[]`"))]
    pub bcc: Vec<String>,
    /// The subject.
    #[schemars(extend("x-type" = "template", "x-default" = "required"))]
    pub subject: String,
    /// The plain text.
    #[schemars(extend("x-type" = "template", "x-default" = "none"))]
    pub text: Option<String>,
    /// The HTML text.
    #[schemars(extend("x-type" = "template", "x-default" = "none"))]
    pub html: Option<String>,
    /// Further headers, such as `Reply-To`.
    #[schemars(extend("x-type" = "table of templates", "x-default" = "none"))]
    pub headers: BTreeMap<String, String>,
    /// Whether the server drops a mail whose `Message-ID` it has seen. Most servers do not.
    #[schemars(extend("x-type" = "boolean", "x-default" = "`false`"))]
    pub honours_key: Option<bool>,
    /// Permit private networks and this machine.
    #[schemars(extend("x-type" = "boolean", "x-default" = "`false`"))]
    pub allow_private: Option<bool>,
    /// Longest time for one attempt. Many servers check a mail before they accept it.
    #[schemars(extend("x-type" = "duration", "x-default" = "`\"60s\"`"))]
    pub timeout: Option<Length>,
    /// Additional CA certificates, as a PEM file.
    #[schemars(extend("x-type" = "path", "x-default" = "none"))]
    pub ca_file: Option<String>,
}

/// How the connection to a mail server is encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SmtpTls {
    /// By `STARTTLS`, which the server must offer.
    #[default]
    Starttls,
    /// From the first byte.
    Implicit,
    /// Not at all: for a mail server on this machine. Passwords are refused.
    None,
}

/// A statement in the PostgreSQL database of the ledger: `type = "sql"`. It runs in one transaction with the end of the entry: both
/// commit, or neither does, so that no entry is ever in doubt.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SqlSink {
    /// One `INSERT`, `UPDATE`, `DELETE`, `MERGE` or `SELECT`, with `$1`, `$2` and so on for its values. PostgreSQL infers their types;
    /// write `$1::jsonb` where it cannot.
    #[schemars(extend("x-type" = "SQL", "x-default" = "required"))]
    pub statement: String,
    /// The values, in the order of their numbers: JSON pointers into the payload, such as `"/to"`, or `payload`, `key`,
    /// `downstream_key`, `operation`, `tenant` and `attempt`. JSON's `null` is `NULL`; objects and arrays are passed as JSON. If the
    /// payload has nothing at a pointer, the entry is dead.
    #[schemars(extend("x-type" = "list of strings", "x-default" = "`[]`"))]
    pub values: Vec<String>,
    /// How many rows it must change. After any other number it is rolled back, and the entry is dead.
    #[schemars(extend("x-type" = "number", "x-default" = "any number"))]
    pub rows: Option<u64>,
    /// The role under which it runs. The user of the ledger must be a member of it.
    #[schemars(extend("x-type" = "string", "x-default" = "the user of the ledger"))]
    pub role: Option<String>,
    /// Longest time for the statement. After that, PostgreSQL rolls it back.
    #[schemars(extend("x-type" = "duration", "x-default" = "`\"10s\"`"))]
    pub timeout: Option<Length>,
}

/// Workers that take the entries with the API: `type = "pull"`.
#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PullSink {}

impl HttpSink {
    /// Longest time for one attempt.
    pub fn timeout(&self) -> Duration {
        self.timeout.map_or(DEFAULT_TIMEOUT, |length| length.0)
    }
}

impl CommandSink {
    /// Longest time for one attempt.
    pub fn timeout(&self) -> Duration {
        self.timeout.map_or(DEFAULT_TIMEOUT, |length| length.0)
    }
}

impl SmtpSink {
    /// Longest time for one attempt.
    pub fn timeout(&self) -> Duration {
        self.timeout.map_or(DEFAULT_MAIL_TIMEOUT, |length| length.0)
    }
}

impl SqlSink {
    /// Longest time for one attempt.
    pub fn timeout(&self) -> Duration {
        self.timeout.map_or(DEFAULT_STATEMENT_TIMEOUT, |length| length.0)
    }
}

/// Where the value of a header comes from.
#[derive(Clone, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(with = "String")]
pub enum HeaderSource {
    Template(String),
    Secret {
        secret: Secret,
        /// Put in front of the secret, such as `Bearer `.
        prefix: String,
    },
}

impl<'de> Deserialize<'de> for HeaderSource {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Table {
            secret: Secret,
            #[serde(default)]
            prefix: String,
        }

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = HeaderSource;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a template, \"env:NAME\", \"file:PATH\", or a table of `secret` and `prefix`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<HeaderSource, E> {
                if !is_reference(text) {
                    return Ok(HeaderSource::Template(text.to_owned()));
                }
                let secret = text.parse().map_err(E::custom)?;
                Ok(HeaderSource::Secret { secret, prefix: String::new() })
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<HeaderSource, A::Error> {
                let Table { secret, prefix } = Table::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(HeaderSource::Secret { secret, prefix })
            }
        }

        deserializer.deserialize_any(Visitor)
    }
}

/// Whether a text refers to a secret.
pub fn is_reference(text: &str) -> bool {
    text.starts_with("env:") || text.starts_with("file:")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_sink_is_read() {
        let http: SinkSettings = toml::from_str(
            "type = \"http\"\nurl = \"https://api.example/v1\"\ntimeout = \"5s\"\n[headers]\nA = \"{{ key }}\"\nB = \
             \"env:B\"\nC = { secret = \"file:c\", prefix = \"Bearer \" }",
        )
        .unwrap();
        let SinkSettings::Http(http) = http else { panic!("{http:?}") };
        assert_eq!(http.headers["A"], HeaderSource::Template("{{ key }}".to_owned()));
        assert_eq!(http.headers["B"], HeaderSource::Secret { secret: "env:B".parse().unwrap(), prefix: String::new() });
        assert!(matches!(&http.headers["C"], HeaderSource::Secret { prefix, .. } if prefix == "Bearer "));
        for (text, expected) in [
            ("type = \"command\"\ncommand = [\"true\"]", "Command"),
            (
                "type = \"smtp\"\nhost = \"mail\"\ntls = \"none\"\nfrom = \"a@b\"\nto = [\"c@d\"]\nsubject = \"s\"",
                "Smtp",
            ),
            ("type = \"sql\"\nstatement = \"INSERT INTO mail VALUES ($1)\"\nvalues = [\"/to\"]", "Sql"),
            ("type = \"pull\"", "Pull"),
        ] {
            let sink: SinkSettings = toml::from_str(text).unwrap();
            assert!(format!("{sink:?}").starts_with(expected), "{sink:?}");
            assert!(!sink.honours_key() && !sink.passes_key());
            assert_eq!(
                sink.timeout(),
                Duration::from_secs(match expected {
                    "Smtp" => 60,
                    "Sql" => 10,
                    _ => 30,
                })
            );
        }
        assert!(toml::from_str::<SinkSettings>("type = \"fax\"").is_err());
        assert!(toml::from_str::<SinkSettings>("type = \"http\"\nurl = \"u\"\nheaders = { A = \"env:\" }").is_err());
    }
}
