//! The client of one sink: sends a request to a permitted address, and says what is known about it afterwards.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use tokio::time::{Instant, timeout_at};

use super::dial::dial;
use super::driver::Exchange;
use super::http1::Http1;
use super::http2::Http2;
use super::pool::{Pool, PooledConnection};
use super::request::{Checked, Request};
use super::resolve::{Resolve, SystemResolver};
use super::rules::AddressRules;
use super::sent::{NotSent, Sent, Unknown};
use super::target::Origin;
use super::trust::{HTTP, Tls, Trust, is_http2};
use crate::exit::Fault;

/// The smallest limit for the head of an answer: hyper's smallest buffer.
pub(super) const LEAST_HEAD: usize = 8 * 1024;

/// Memory that one answer may take, whatever the configuration says.
const MOST_HEAD: usize = 1024 * 1024;
const MOST_BODY: usize = 256 * 1024 * 1024;

/// More sockets than a process should spend on one sink.
const MOST_REQUESTS: usize = 10_000;

/// A day: more than any sink needs, and far from the end of the clock.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// The limits of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For resolving, connecting and the TLS handshake together.
    pub connect: Duration,
    /// For everything, from the call to the last byte of the answer.
    pub total: Duration,
    /// How large the body of a request may be.
    pub request_bytes: usize,
    /// How much of the body of an answer is read.
    pub response_bytes: usize,
    /// How large the head of an answer may be.
    pub head_bytes: usize,
    /// Requests at a time. Bounds the connections, too.
    pub concurrent: usize,
    /// How long an unused connection is kept.
    pub idle: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            total: Duration::from_secs(30),
            request_bytes: 16 * 1024 * 1024,
            // What is kept of an answer by default is far smaller.
            response_bytes: 1024 * 1024,
            head_bytes: 64 * 1024,
            concurrent: 64,
            // A request that is written while the server closes the connection is in doubt. Servers close idle connections
            // after 2 seconds or more.
            idle: Duration::from_millis(1500),
        }
    }
}

impl Limits {
    fn check(&self) -> Result<(), Fault> {
        let times = [("connect", self.connect), ("total", self.total), ("idle", self.idle)];
        if let Some((name, _)) = times.iter().find(|(_, time)| time.is_zero() || *time > LONGEST) {
            return Err(Fault::config(format!("the time limit `{name}` must be more than zero and at most a day")));
        }
        let sizes = [
            ("concurrent", self.concurrent, 1, MOST_REQUESTS),
            ("head_bytes", self.head_bytes, LEAST_HEAD, MOST_HEAD),
            ("response_bytes", self.response_bytes, 1, MOST_BODY),
            ("request_bytes", self.request_bytes, 0, MOST_BODY),
        ];
        match sizes.iter().find(|(_, value, least, most)| value < least || value > most) {
            Some((name, _, least, most)) => Err(Fault::config(format!("`{name}` must be from {least} to {most}"))),
            None => Ok(()),
        }
    }
}

/// How to make a client.
#[derive(Clone)]
pub struct Settings {
    pub rules: AddressRules,
    pub limits: Limits,
    pub trust: Trust,
    pub resolver: Arc<dyn Resolve>,
}

impl Settings {
    /// The default rules and limits, and the resolver of the system.
    pub fn new(trust: Trust) -> Self {
        Self {
            rules: AddressRules::default(),
            limits: Limits::default(),
            trust,
            resolver: Arc::new(SystemResolver::default()),
        }
    }
}

/// The client of one sink. Cheap to clone; clones share connections. Two sinks never share a client, because connections belong
/// to the rules and credentials that they were made under.
#[derive(Clone)]
pub struct Client(Arc<Parts>);

struct Parts {
    rules: AddressRules,
    limits: Limits,
    resolver: Arc<dyn Resolve>,
    tls: Tls,
    pool: Arc<Pool>,
}

impl fmt::Debug for Client {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Client").field("rules", &self.0.rules).field("limits", &self.0.limits).finish_non_exhaustive()
    }
}

impl Client {
    /// Makes a client. Connects to nothing.
    pub fn new(settings: Settings) -> Result<Self, Fault> {
        let Settings { rules, limits, trust, resolver } = settings;
        limits.check()?;
        let (tls, pool) = (Tls::new(&trust, &HTTP)?, Pool::new(limits.concurrent, limits.idle));
        Ok(Self(Arc::new(Parts { rules, limits, resolver, tls, pool })))
    }

    /// Sends a request once. Follows no redirect and repeats nothing that a server may have seen.
    ///
    /// Dropping the future closes the connection and proves nothing about the request. Must be called in the tokio runtime
    /// that lives as long as the client: it drives the connections.
    pub async fn send(&self, request: Request) -> Sent {
        let Parts { rules, limits, pool, .. } = &*self.0;
        let deadline = Instant::now() + request.timeout.unwrap_or(limits.total).min(limits.total);
        let checked = match request.check(rules, limits.request_bytes) {
            Ok(checked) => checked,
            Err(why) => return Sent::NotSent(why),
        };
        let Ok(Some(_slot)) = timeout_at(deadline, pool.slot()).await else { return Sent::NotSent(NotSent::Busy) };
        if let Some(connection) = pool.take(&checked.target.origin)
            && let Some(sent) = self.exchange(connection, &checked, deadline).await
        {
            return sent;
        }
        // Either there was no connection, or it had ended before the request was written: the only case that is repeated, and
        // only once.
        let connection = match self.open(&checked.target.origin, deadline).await {
            Ok(connection) => connection,
            Err(why) => return Sent::NotSent(why),
        };
        let closed = || NotSent::Closed { to: checked.target.to_string() };
        self.exchange(connection, &checked, deadline).await.unwrap_or_else(|| Sent::NotSent(closed()))
    }

    /// `None` if the connection had ended before the request was written.
    async fn exchange(&self, mut connection: PooledConnection, request: &Checked, deadline: Instant) -> Option<Sent> {
        if Instant::now() >= deadline {
            return Some(Sent::NotSent(NotSent::Late));
        }
        let limit = self.0.limits.response_bytes;
        let invalid = Sent::NotSent(NotSent::Invalid("it cannot be written as HTTP"));
        let ended = match &mut connection {
            PooledConnection::Http1(connection) => match request.http1(Full::new(request.body.clone())) {
                Ok(head) => connection.exchange(head, limit, deadline).await,
                Err(_) => return Some(invalid),
            },
            PooledConnection::Http2(connection) => match request.http2() {
                Ok(head) => {
                    // Others may use it from now on.
                    self.0.pool.keep(&request.target.origin, PooledConnection::Http2(connection.clone()));
                    connection.exchange(head, request.body.clone(), limit, deadline).await
                }
                Err(_) => return Some(invalid),
            },
        };
        self.put_back(connection, &request.target.origin, &ended).await;
        let to = request.target.to_string();
        Some(match ended {
            Exchange::Answered(answer) => Sent::Answered(answer),
            Exchange::Returned => return None,
            Exchange::Late => Sent::NotSent(NotSent::Late),
            Exchange::Unprocessed(why) => Sent::NotSent(NotSent::Unprocessed { to, why }),
            Exchange::Lost(why, status) => Sent::Unknown(Unknown { to, why, status }),
        })
    }

    /// Keeps a connection only if its last exchange ended well.
    async fn put_back(&self, mut connection: PooledConnection, origin: &Origin, ended: &Exchange) {
        let pool = &self.0.pool;
        match (&mut connection, ended) {
            (PooledConnection::Http1(http1), Exchange::Answered(answer)) => {
                if !answer.cut && http1.is_reusable().await {
                    pool.keep(origin, connection);
                }
            }
            (PooledConnection::Http2(_), Exchange::Answered(_)) => pool.keep(origin, connection),
            // A connection that lost one request would lose the next one as well.
            _ => pool.forget(&connection),
        }
    }

    async fn open(&self, origin: &Origin, deadline: Instant) -> Result<PooledConnection, NotSent> {
        let Parts { rules, limits, resolver, tls, pool } = &*self.0;
        let deadline = deadline.min(Instant::now() + limits.connect);
        pool.make_room();
        let stream = dial(&**resolver, rules, (&origin.host, origin.port), &origin.to_string(), deadline).await?;
        let start = async {
            if !origin.is_tls {
                return Http1::start(stream, limits)
                    .await
                    .map(PooledConnection::Http1)
                    .map_err(|error| error.to_string());
            }
            let stream = tls.handshake(&origin.host, stream).await?;
            if is_http2(&stream) {
                Http2::start(stream, limits).await.map(PooledConnection::Http2)
            } else {
                Http1::start(stream, limits).await.map(PooledConnection::Http1).map_err(|error| error.to_string())
            }
        };
        let started =
            timeout_at(deadline, start).await.unwrap_or_else(|_| Err("the TLS handshake timed out".to_owned()));
        started.map_err(|why| NotSent::Unreachable { to: origin.to_string(), why })
    }
}
