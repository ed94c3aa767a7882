//! A case: the set-up of the surface, the behaviour of the upstream, the requests in order, and the expected responses.

use std::time::Duration;

use onceward::http::{KeyMode, Kind, Profile};

/// One case of the table.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) setting: Setting,
    /// One reply for each request that reaches the upstream.
    pub(super) script: Vec<UpstreamReply>,
    pub(super) steps: Vec<Step>,
    /// The surfaces on which it can occur.
    pub(super) on: On,
}

/// The surfaces on which a case can occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum On {
    Both,
    /// Only with an upstream, a configuration, or a path of the gateway itself.
    Gateway,
    /// Only with a handler in the same process.
    Layer,
}

/// The set-up of a surface. The defaults are those of the products.
#[derive(Clone, Debug)]
pub(super) struct Setting {
    pub(super) profile: Profile,
    pub(super) key_mode: KeyMode,
    /// `header:NAME` or `body:POINTER`.
    pub(super) key_from: Option<&'static str>,
    pub(super) honours_key: bool,
    pub(super) wait: Option<Duration>,
    /// `authorization`, `fixed:NAME`, or `header:NAME`.
    pub(super) tenant: &'static str,
    pub(super) refusals: Vec<u16>,
    /// Headers that distinguish callers, and headers that do not.
    pub(super) identity_headers: Vec<&'static str>,
    pub(super) ignored_headers: Vec<&'static str>,
    /// The status for requests in flight, if it is not 409.
    pub(super) in_flight_status: Option<u16>,
    /// JSON pointers: the fields that identify the intent, and those that must match.
    pub(super) recipe: Option<(&'static str, &'static str)>,
    /// How long a derived key is held.
    pub(super) window: Option<Duration>,
    /// The time-out of the upstream. A handler has none.
    pub(super) timeout: Option<Duration>,
    /// The time-out of request bodies.
    pub(super) body_timeout: Option<Duration>,
    /// The upstream starts to listen only at a step.
    pub(super) upstream_is_down: bool,
    /// Maximum number of records per tenant.
    pub(super) records_per_tenant: Option<u64>,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            profile: Profile::default(),
            key_mode: KeyMode::default(),
            key_from: None,
            honours_key: false,
            wait: None,
            tenant: "authorization",
            refusals: Vec::new(),
            identity_headers: Vec::new(),
            ignored_headers: Vec::new(),
            in_flight_status: None,
            recipe: None,
            window: None,
            timeout: None,
            body_timeout: None,
            upstream_is_down: false,
            records_per_tenant: None,
        }
    }
}

/// How the upstream replies to a request.
#[derive(Clone, Debug)]
pub(super) enum UpstreamReply {
    Answer {
        status: u16,
        headers: Vec<(&'static str, &'static str)>,
        body: Vec<u8>,
        after: Duration,
    },
    /// Responds with 201 and the value of this request header: `ours` for a key of the gateway, `nothing` if it is missing.
    EchoesHeader(&'static str),
    /// Closes the connection, or the handler panics.
    NoResponse,
    /// Sends a head with a length, a part of the body, and then nothing.
    Stalls,
    /// Sends a head and a piece, and closes the connection.
    BreaksOff(&'static str),
    /// Sends a head and a piece, and then nothing, while the connection stays open.
    Stops(&'static str),
    /// Sends pieces, each after the client has received the previous one.
    Pieces {
        content_type: &'static str,
        pieces: Vec<&'static str>,
    },
}

pub(super) fn replies(status: u16, body: impl Into<Vec<u8>>) -> UpstreamReply {
    let headers = vec![("content-type", "application/json")];
    UpstreamReply::Answer { status, headers, body: body.into(), after: Duration::ZERO }
}

impl UpstreamReply {
    pub(super) fn header(mut self, name: &'static str, value: &'static str) -> Self {
        if let Self::Answer { headers, .. } = &mut self {
            headers.retain(|(known, _)| *known != name);
            headers.push((name, value));
        }
        self
    }

    pub(super) fn after(mut self, millis: u64) -> Self {
        if let Self::Answer { after, .. } = &mut self {
            *after = Duration::from_millis(millis);
        }
        self
    }
}

/// One step of a case.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Send(TestRequest, Expect),
    /// The first request is sent and reaches the upstream; then the others are sent concurrently.
    Together(Vec<(TestRequest, Expect)>),
    /// The request is sent and reaches the upstream; then the client disconnects.
    GivesUp(TestRequest),
    /// The response is read piece by piece. The upstream sends the next piece only after the previous one has arrived.
    PieceByPiece(TestRequest, Vec<&'static str>),
    /// The last byte of the request body is never sent.
    Unfinished(TestRequest, Expect),
    Wait(Duration),
    UpstreamComesUp,
    /// The ledger can be neither read nor written from now on.
    LedgerBreaks,
    /// This key of the tenant `acme` is used as the head of a stream.
    StreamTakes(&'static str),
}

/// A request.
#[derive(Clone, Debug)]
pub(super) struct TestRequest {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) headers: Vec<(&'static str, Vec<u8>)>,
    pub(super) body: Vec<u8>,
}

/// A request without a key.
pub(super) fn bare(method: &'static str) -> TestRequest {
    let headers = vec![("authorization", b"Bearer sk_test_7".to_vec()), ("content-type", b"application/json".to_vec())];
    TestRequest { method, path: "/v1/charges", headers, body: br#"{"amount":4200}"#.to_vec() }
}

/// A guarded request.
pub(super) fn post(key: &str) -> TestRequest {
    bare("POST").with("idempotency-key", key)
}

impl TestRequest {
    pub(super) fn with(mut self, name: &'static str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name, value.as_ref().to_vec()));
        self
    }

    pub(super) fn without(mut self, name: &'static str) -> Self {
        self.headers.retain(|(known, _)| *known != name);
        self
    }

    pub(super) fn to(mut self, path: &'static str) -> Self {
        self.path = path;
        self
    }

    pub(super) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    pub(super) fn gets(self, expect: Expect) -> Step {
        Step::Send(self, expect)
    }
}

/// The expected response.
#[derive(Clone, Debug)]
pub(super) struct Expect {
    pub(super) status: u16,
    pub(super) replayed: bool,
    /// The whole body. `None` for a truncated body, and for problems.
    pub(super) body: Option<Vec<u8>>,
    pub(super) problem: Option<Kind>,
    /// Headers that must have this value; `*` is any.
    pub(super) headers: Vec<(&'static str, &'static str)>,
    pub(super) absent: Vec<&'static str>,
    /// Members of the problem that must have this value; `*` is any.
    pub(super) members: Vec<(&'static str, &'static str)>,
}

fn expect(status: u16, replayed: bool, body: Option<Vec<u8>>, problem: Option<Kind>) -> Expect {
    Expect { status, replayed, body, problem, headers: Vec::new(), absent: Vec::new(), members: Vec::new() }
}

/// The response of the upstream.
pub(super) fn fresh(status: u16, body: impl Into<Vec<u8>>) -> Expect {
    expect(status, false, Some(body.into()), None)
}

/// A replay from the ledger.
pub(super) fn again(status: u16, body: impl Into<Vec<u8>>) -> Expect {
    expect(status, true, Some(body.into()), None)
}

/// A response that starts and does not end.
pub(super) fn broken(status: u16) -> Expect {
    expect(status, false, None, None)
}

/// A problem document of the surface itself.
pub(super) fn problem(kind: Kind) -> Expect {
    expect(kind.status().as_u16(), false, None, Some(kind))
}

impl Expect {
    pub(super) fn header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    pub(super) fn no_header(mut self, name: &'static str) -> Self {
        self.absent.push(name);
        self
    }

    pub(super) fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    pub(super) fn member(mut self, name: &'static str, value: &'static str) -> Self {
        self.members.push((name, value));
        self
    }
}

/// A case with the default set-up, on both surfaces.
pub(super) fn case(name: impl Into<String>, script: Vec<UpstreamReply>, steps: Vec<Step>) -> Case {
    Case { name: name.into(), setting: Setting::default(), script, steps, on: On::Both }
}

impl Case {
    pub(super) fn set(mut self, change: impl FnOnce(&mut Setting)) -> Self {
        change(&mut self.setting);
        self
    }

    pub(super) fn on(mut self, on: On) -> Self {
        self.on = on;
        self
    }

    /// The kinds of problems that it expects.
    pub(super) fn problems(&self) -> Vec<Kind> {
        let expected = self.steps.iter().flat_map(|step| match step {
            Step::Send(_, expect) | Step::Unfinished(_, expect) => vec![expect.problem],
            Step::Together(all) => all.iter().map(|(_, expect)| expect.problem).collect(),
            _ => Vec::new(),
        });
        expected.flatten().collect()
    }
}
