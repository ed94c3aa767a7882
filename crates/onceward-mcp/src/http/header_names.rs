//! What the name of a header says about its value: a credential, an account, or neither. Pure.

use http::HeaderName;
use onceward::http::stored_response::HOP_BY_HOP;

/// What a header means, judged by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// It may be a credential.
    Credential,
    /// It names the account, user or system that a call is for.
    Scope,
    /// Neither.
    Other,
}

/// Words for credentials.
const CREDENTIAL: [&str; 22] = [
    "apikey",
    "assertion",
    "auth",
    "authentication",
    "authorization",
    "bearer",
    "cookie",
    "credential",
    "credentials",
    "cred",
    "creds",
    "jwt",
    "key",
    "keys",
    "pass",
    "passcode",
    "passphrase",
    "passwd",
    "password",
    "pat",
    "secret",
    "token",
];

/// Endings of compound words for a credential, as in `accesstoken`. Not `key` alone, as in `turkey`, nor `tokens`, which are units of
/// text for a model.
const CREDENTIAL_END: [&str; 14] = [
    "accesskey",
    "apikey",
    "appkey",
    "auth",
    "authkey",
    "authorization",
    "jwt",
    "passwd",
    "password",
    "passwords",
    "privatekey",
    "secret",
    "secrets",
    "token",
];

/// Words for the account, user or system that a call is for. With `id` or `name` at the end they mean the same.
const SCOPE: [&str; 56] = [
    "account",
    "actor",
    "baseurl",
    "cert",
    "certificate",
    "claim",
    "claims",
    "clientcert",
    "clientid",
    "cloudid",
    "company",
    "connectionstring",
    "consumer",
    "customer",
    "database",
    "db",
    "dn",
    "dsn",
    "email",
    "endpoint",
    "from",
    "identity",
    "impersonate",
    "license",
    "login",
    "member",
    "merchant",
    "namespace",
    "oidc",
    "org",
    "organisation",
    "organization",
    "owner",
    "principal",
    "profile",
    "project",
    "realm",
    "repo",
    "repository",
    "role",
    "session",
    "shop",
    "sid",
    "store",
    "sub",
    "subaccount",
    "subject",
    "subscription",
    "team",
    "tenant",
    "uid",
    "upn",
    "uri",
    "url",
    "user",
    "workspace",
];

/// Two words that mean so only together.
const SCOPE_PAIRS: [[&str; 2]; 6] = [
    ["behalf", "of"],
    ["client", "cert"],
    ["client", "id"],
    ["cloud", "id"],
    ["connection", "string"],
    ["ssl", "client"],
];

/// A word for whom a call is, and the word after it with which it means something else: the program, the network address, or
/// the server that a load balancer prefers.
const OTHER_PAIRS: [[&str; 2]; 3] = [["session", "affinity"], ["user", "agent"], ["user", "ip"]];

/// Keys that are not secret.
const OTHER_KEYS: [&str; 4] = ["idempotency-key", "surrogate-key", "x-cache-key", "x-idempotency-key"];

/// Prefixes of headers that a browser sets, of the MCP session id, which the server issues, and of headers that repeat an argument.
/// Other names that begin with `mcp-` may be a server's own, such as `Mcp-Auth-Token`.
const OTHER_START: [&str; 3] = ["sec-", "mcp-session-id", "mcp-param-"];

impl Meaning {
    /// Compares whole words, so that `X-Author` is not read as `auth` and `X-Max-Tokens` means nothing. A cookie may name an account or
    /// only a load balancer's server, and its name does not say which. A guess would show one caller's result to another, or make a
    /// retry another caller's call, so it counts as a credential, which the operator must decide about.
    pub(super) fn of(name: &HeaderName) -> Self {
        let text = name.as_str();
        let is_other = OTHER_KEYS.contains(&text) || OTHER_START.iter().any(|start| text.starts_with(start));
        if is_other || HOP_BY_HOP.contains(name) {
            return Self::Other;
        }
        // Names are in lower case. A dot is a rare separator.
        let words: Vec<&str> = text.split(|letter: char| !letter.is_ascii_alphanumeric()).collect();
        if words.iter().any(|word| is_credential(word)) {
            return Self::Credential;
        }
        // A signature is made anew for each request: counted, it would make each retry a new caller's call.
        if !words.contains(&"signature") && has_scope(&words) { Self::Scope } else { Self::Other }
    }
}

fn is_credential(word: &str) -> bool {
    CREDENTIAL.contains(&word) || CREDENTIAL_END.iter().any(|end| word.ends_with(end))
}

fn has_scope(words: &[&str]) -> bool {
    let is_pair = |pairs: &[[&str; 2]], at: usize| {
        words.get(at + 1).is_some_and(|next| pairs.iter().any(|pair| pair == &[words[at], *next]))
    };
    (0..words.len()).any(|at| is_pair(&SCOPE_PAIRS, at) || is_scope(words[at]) && !is_pair(&OTHER_PAIRS, at))
}

fn is_scope(word: &str) -> bool {
    let ends = ["id", "name"].iter().filter_map(|end| word.strip_suffix(end));
    SCOPE.contains(&word) || ends.into_iter().any(|start| SCOPE.contains(&start))
}
