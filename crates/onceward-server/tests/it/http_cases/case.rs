//! What a case is: how the surface is set up, what the other side does, what is sent in which order, and what is expected.

use std::time::Duration;

use onceward::http::{KeyMode, Kind, Profile};

/// One case of the table.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) setting: Setting,
    /// One reply for each request that reaches the other side.
    pub(super) script: Vec<Reply>,
    pub(super) steps: Vec<Step>,
    /// Where it can arise.
    pub(super) on: On,
}

/// On which surfaces a case can arise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum On {
    Both,
    /// Only where there is an upstream, a configuration, or a path of the gateway itself.
    Gateway,
    /// Only where a handler is at hand.
    Layer,
}

/// How a surface is set up. The default is that of the products.
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
    /// Headers that tell callers apart, and headers that do not.
    pub(super) identity_headers: Vec<&'static str>,
    pub(super) ignored_headers: Vec<&'static str>,
    /// The status of what is in flight, where it is not 409.
    pub(super) in_flight_status: Option<u16>,
    /// JSON pointers: what makes the intent, and what must agree.
    pub(super) recipe: Option<(&'static str, &'static str)>,
    /// How long a derived key holds.
    pub(super) window: Option<Duration>,
    /// How long the upstream may take. A handler has no such limit.
    pub(super) timeout: Option<Duration>,
    /// How long the body of a request may take.
    pub(super) body_timeout: Option<Duration>,
    /// The upstream listens only when a step says so.
    pub(super) upstream_is_down: bool,
    /// How many records a tenant may have.
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

/// What the other side does with a request that reaches it.
#[derive(Clone, Debug)]
pub(super) enum Reply {
    Answer {
        status: u16,
        headers: Vec<(&'static str, &'static str)>,
        body: Vec<u8>,
        after: Duration,
    },
    /// Says with 201 what this header of the request was: `ours` for a key of the gateway, `nothing` if it was not there.
    Tells(&'static str),
    /// The connection is closed, or the handler panics.
    Nothing,
    /// A head that says how much comes, some of it, and then silence.
    Stalls,
    /// A head, a piece, and no end.
    BreaksOff(&'static str),
    /// A head, a piece, and then nothing, while the connection stays.
    Stops(&'static str),
    /// Pieces, each of which waits until the client has the one before.
    Pieces {
        content_type: &'static str,
        pieces: Vec<&'static str>,
    },
}

pub(super) fn replies(status: u16, body: impl Into<Vec<u8>>) -> Reply {
    let headers = vec![("content-type", "application/json")];
    Reply::Answer { status, headers, body: body.into(), after: Duration::ZERO }
}

impl Reply {
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

/// What is done next.
#[derive(Clone, Debug)]
pub(super) enum Step {
    Send(Sent, Expect),
    /// The first is sent and reaches the other side; then the others are sent, all at once.
    Together(Vec<(Sent, Expect)>),
    /// It is sent and reaches the other side; then the client goes away.
    GivesUp(Sent),
    /// Read piece by piece. The other side makes the next one only when this one has arrived.
    PieceByPiece(Sent, Vec<&'static str>),
    /// The last byte of its body never comes.
    Unfinished(Sent, Expect),
    Wait(Duration),
    UpstreamComesUp,
    /// The ledger can be neither read nor written any more.
    LedgerBreaks,
    /// Something else has used this key, of the tenant `acme`, as the head of a stream.
    StreamTakes(&'static str),
}

/// A request.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    pub(super) headers: Vec<(&'static str, Vec<u8>)>,
    pub(super) body: Vec<u8>,
}

/// A request without a key.
pub(super) fn bare(method: &'static str) -> Sent {
    let headers = vec![("authorization", b"Bearer sk_test_7".to_vec()), ("content-type", b"application/json".to_vec())];
    Sent { method, path: "/v1/charges", headers, body: br#"{"amount":4200}"#.to_vec() }
}

/// A guarded request.
pub(super) fn post(key: &str) -> Sent {
    bare("POST").with("idempotency-key", key)
}

impl Sent {
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

/// What the client should get.
#[derive(Clone, Debug)]
pub(super) struct Expect {
    pub(super) status: u16,
    pub(super) replayed: bool,
    /// The body, whole. `None` for one that breaks off, and for problems.
    pub(super) body: Option<Vec<u8>>,
    pub(super) problem: Option<Kind>,
    /// Headers that must be there with this value; `*` is any.
    pub(super) headers: Vec<(&'static str, &'static str)>,
    pub(super) absent: Vec<&'static str>,
    /// Members of the problem that must be there with this value; `*` is any.
    pub(super) members: Vec<(&'static str, &'static str)>,
}

fn expect(status: u16, replayed: bool, body: Option<Vec<u8>>, problem: Option<Kind>) -> Expect {
    Expect { status, replayed, body, problem, headers: Vec::new(), absent: Vec::new(), members: Vec::new() }
}

/// The answer of the other side.
pub(super) fn fresh(status: u16, body: impl Into<Vec<u8>>) -> Expect {
    expect(status, false, Some(body.into()), None)
}

/// The answer from the ledger.
pub(super) fn again(status: u16, body: impl Into<Vec<u8>>) -> Expect {
    expect(status, true, Some(body.into()), None)
}

/// An answer that starts and does not end.
pub(super) fn broken(status: u16) -> Expect {
    expect(status, false, None, None)
}

/// Something that we say ourselves.
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

/// A case with the default setting, on both surfaces.
pub(super) fn case(name: impl Into<String>, script: Vec<Reply>, steps: Vec<Step>) -> Case {
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

    /// The problems that it expects.
    pub(super) fn problems(&self) -> Vec<Kind> {
        let expected = self.steps.iter().flat_map(|step| match step {
            Step::Send(_, expect) | Step::Unfinished(_, expect) => vec![expect.problem],
            Step::Together(all) => all.iter().map(|(_, expect)| expect.problem).collect(),
            _ => Vec::new(),
        });
        expected.flatten().collect()
    }
}
