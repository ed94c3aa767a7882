//! The way to the servers: finds the primary, retries within a time limit, and waits for replicas. A retry sends the same
//! command, so what it sends must be safe to send twice.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::{
    AsyncConnectionConfig, Client, Cmd, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo,
    RedisConnectionInfo, RedisError, RedisResult, ServerErrorKind, TlsCertificates, TlsMode, Value, cmd,
};
use tokio::time::{Instant, sleep, timeout_at};

use super::address::{Address, Login, Topology};
use super::pipelined_connection::{ConnectionKind, Job, PipelinedConnection, Sends};
use super::scripts::Script;
use crate::step::{Step, reached};
use crate::store::Error;
use crate::store::tls_failure::is_tls_failure;

/// The first wait before a retry; it doubles from one to the next. A server that restarts refuses connections at once.
pub(super) const FIRST_WAIT: Duration = Duration::from_millis(20);

/// Long waits would only delay the first call after a failover.
pub(super) const LONGEST_WAIT: Duration = Duration::from_millis(400);

/// The connections to the servers.
pub(super) struct ServerConnection {
    pub(super) address: Address,
    /// The store in messages, without secrets.
    pub(super) name: String,
    certificates: Option<TlsCertificates>,
    reads: PipelinedConnection,
    /// Only if writes wait for replicas: WAIT stops everything that comes after it on its connection.
    writes: Option<PipelinedConnection>,
}

/// What an error of a server or of the connection means.
#[derive(Clone)]
pub(super) enum Failure {
    /// Try again, on a new connection.
    Reconnect(String),
    /// Try again, on the same connection.
    Again(String),
    /// The server does not know the script.
    NoScript,
    Final(Error),
}

/// The reply to a write, and how many replicas had it when the wait was over.
pub(super) struct Written {
    /// When it was about to be sent.
    pub(super) asked: std::time::Instant,
    pub(super) reply: Value,
    pub(super) replicas: Option<u32>,
}

impl ServerConnection {
    /// Prepares the connection, and makes it for the first time.
    pub(super) async fn open(address: Address) -> Result<Self, Error> {
        let name = address.to_string();
        let certificates = match (&address.ca, address.tls) {
            (Some(path), _) => {
                let root = std::fs::read(path).map_err(|error| Error::Refused {
                    store: name.clone(),
                    reason: format!("cannot read the certificates in {}: {error}", path.display()),
                })?;
                Some(TlsCertificates { client_tls: None, root_cert: Some(root) })
            }
            (None, true) => Some(TlsCertificates { client_tls: None, root_cert: None }),
            (None, false) => None,
        };
        if address.tls {
            // If a program has two implementations of cryptography, one of them must be chosen. Its own choice stays.
            let _ = rustls::crypto::ring::default_provider().install_default();
        }
        let writes = (address.replicas > 0).then(PipelinedConnection::default);
        let link = Self { address, name, certificates, reads: PipelinedConnection::default(), writes };
        link.query(&cmd("PING")).await?;
        Ok(link)
    }

    pub(super) fn refused(&self, reason: impl Into<String>) -> Error {
        Error::Refused { store: self.name.clone(), reason: reason.into() }
    }

    pub(super) fn unreachable(&self, reason: &str) -> Error {
        Error::Unreachable(format!("{}: {reason}", self.name))
    }

    /// Runs a command that may run twice.
    pub(super) async fn query(&self, command: &Cmd) -> Result<Value, Error> {
        self.retried(&self.reads, Job { command: command.clone(), whole: None, sends: Sends::Once }).await
    }

    /// Runs a command on every primary.
    pub(super) async fn query_each(&self, command: &Cmd) -> Result<Vec<Value>, Error> {
        let job = Job { command: command.clone(), whole: None, sends: Sends::ToEach };
        match self.retried(&self.reads, job).await? {
            Value::Array(values) => Ok(values),
            Value::Map(nodes) => Ok(nodes.into_iter().map(|(_, value)| value).collect()),
            other => Ok(vec![other]),
        }
    }

    /// Runs a script that only reads, or writes what may be lost.
    pub(super) async fn run(&self, script: &Script, fill: impl Fn(&mut Cmd) + Send + Sync) -> Result<Value, Error> {
        let command = |whole| filled(script, whole, &fill);
        let job = Job { command: command(false), whole: Some(&|| command(true)), sends: Sends::Once };
        self.retried(&self.reads, job).await
    }

    /// Runs a script that writes, and waits for replicas if the URL asks for that. `key` is one of its keys.
    pub(super) async fn write(
        &self,
        script: &Script,
        key: &str,
        fill: impl Fn(&mut Cmd) + Send + Sync,
    ) -> Result<Written, Error> {
        let asked = Instant::now().into_std();
        reached(Step::StoreUncommitted);
        let (reply, replicas) = match &self.writes {
            None => (self.run(script, fill).await?, None),
            Some(lane) => self.write_and_wait(lane, script, key, fill).await?,
        };
        reached(Step::StoreCommitted);
        Ok(Written { asked, reply, replicas })
    }

    async fn write_and_wait(
        &self,
        lane: &PipelinedConnection,
        script: &Script,
        key: &str,
        fill: impl Fn(&mut Cmd) + Send + Sync,
    ) -> Result<(Value, Option<u32>), Error> {
        let mut wait = cmd("WAIT");
        wait.arg(self.address.replicas).arg(self.address.wait.as_millis() as u64);
        let command = |whole| filled(script, whole, &fill);
        let job = Job { command: command(false), whole: Some(&|| command(true)), sends: Sends::With(wait, key) };
        let Value::Array(mut values) = self.retried(lane, job).await? else {
            return Err(Error::Other("an unexpected reply to a write".to_owned()));
        };
        let replicas = match values.pop() {
            Some(Value::Int(number)) => u32::try_from(number).unwrap_or_default(),
            _ => 0,
        };
        let reply = values.pop().ok_or_else(|| Error::Other("no reply to a write".to_owned()))?;
        Ok((reply, Some(replicas)))
    }

    /// Tries until it succeeds or the time is over. An attempt without an answer takes its connection along: later answers on it
    /// would be those of earlier commands.
    async fn retried(&self, lane: &PipelinedConnection, mut job: Job<'_>) -> Result<Value, Error> {
        let deadline = Instant::now() + self.address.timeout;
        let mut wait = FIRST_WAIT;
        loop {
            let until = deadline.min(Instant::now() + self.address.timeout / 2);
            let connect = async { self.connect().await.map_err(|error| self.failure(&error)) };
            let (number, mut connection) = match lane.get(until, connect).await {
                Ok(connected) => connected,
                Err(Failure::Final(error)) => return Err(error),
                Err(Failure::Reconnect(reason) | Failure::Again(reason)) => {
                    self.pause(&mut wait, deadline, &reason).await?;
                    continue;
                }
                Err(Failure::NoScript) => return Err(self.unreachable("an unexpected error")),
            };
            let failure = match timeout_at(until, connection.attempt(&job)).await {
                Ok(Ok(value)) => match value.extract_error() {
                    Ok(value) => {
                        lane.works();
                        return Ok(value);
                    }
                    Err(error) => self.failure(&error),
                },
                Ok(Err(error)) => self.failure(&error),
                Err(_) => Failure::Reconnect("no answer in time".to_owned()),
            };
            match failure {
                Failure::NoScript => match job.whole.take() {
                    Some(whole) => job.command = whole(),
                    None => return Err(self.unreachable("the server does not keep scripts")),
                },
                Failure::Final(error) => return Err(error),
                Failure::Again(reason) => self.pause(&mut wait, deadline, &reason).await?,
                Failure::Reconnect(reason) => {
                    match self.address.topology {
                        // The other nodes still answer on the old connection.
                        Topology::Cluster => {
                            lane.replace(number, until.max(Instant::now() + wait), self.connect()).await
                        }
                        _ => lane.forget(number),
                    }
                    self.pause(&mut wait, deadline, &reason).await?;
                }
            }
        }
    }

    async fn pause(&self, wait: &mut Duration, deadline: Instant, reason: &str) -> Result<(), Error> {
        if Instant::now() + *wait >= deadline {
            return Err(self.unreachable(reason));
        }
        sleep(*wait).await;
        *wait = (*wait * 2).min(LONGEST_WAIT);
        Ok(())
    }

    async fn connect(&self) -> RedisResult<ConnectionKind> {
        let address = &self.address;
        match &address.topology {
            Topology::Single => {
                let (host, port) = &address.hosts[0];
                self.connect_to(host, *port, &address.login, address.database).await.map(ConnectionKind::Server)
            }
            Topology::Sentinel(name) => self.connect_to_primary(name).await.map(ConnectionKind::Server),
            Topology::Cluster => self.connect_to_cluster().await.map(ConnectionKind::Cluster),
        }
    }

    fn information(&self, host: &str, port: u16, login: &Login, database: i64) -> RedisResult<ConnectionInfo> {
        let address = match self.address.tls {
            false => ConnectionAddr::Tcp(host.to_owned(), port),
            true => ConnectionAddr::TcpTls { host: host.to_owned(), port, insecure: false, tls_params: None },
        };
        let mut settings =
            RedisConnectionInfo::default().set_db(database).set_lib_name("onceward", env!("CARGO_PKG_VERSION"));
        if let Some(user) = &login.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &login.password {
            settings = settings.set_password(password);
        }
        Ok(address.into_connection_info()?.set_redis_settings(settings))
    }

    async fn connect_to(
        &self,
        host: &str,
        port: u16,
        login: &Login,
        database: i64,
    ) -> RedisResult<MultiplexedConnection> {
        let information = self.information(host, port, login, database)?;
        let client = match &self.certificates {
            Some(certificates) => Client::build_with_tls(information, certificates.clone())?,
            None => Client::open(information)?,
        };
        // The limits are those of the callers.
        let settings = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.address.timeout / 2))
            .set_response_timeout(None);
        client.get_multiplexed_async_connection_with_config(&settings).await
    }

    /// Asks one sentinel after another. What they name must itself say that it is the primary.
    async fn connect_to_primary(&self, name: &str) -> RedisResult<MultiplexedConnection> {
        let mut last = RedisError::from((ErrorKind::Io, "no sentinel answers"));
        for (host, port) in &self.address.hosts {
            match self.ask_sentinel(name, host, *port).await {
                Ok(connection) => return Ok(connection),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    async fn ask_sentinel(&self, name: &str, host: &str, port: u16) -> RedisResult<MultiplexedConnection> {
        // Each sentinel gets a share of the time, so that one that hangs does not take all of it.
        let share = self.address.timeout / 2 / u32::try_from(self.address.hosts.len()).unwrap_or(1);
        let silent = |_| RedisError::from((ErrorKind::Io, "a sentinel or the primary does not answer"));
        let connect = async {
            let mut sentinel = self.connect_to(host, port, &self.address.sentinel_login, 0).await?;
            let mut question = cmd("SENTINEL");
            question.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
            let answer: Option<(String, u16)> = question.query_async(&mut sentinel).await?;
            let unknown = (ErrorKind::Io, "the sentinels do not know this primary");
            let (host, port) = answer.ok_or(unknown)?;
            let mut server = self.connect_to(&host, port, &self.address.login, self.address.database).await?;
            let role = server.send_packed_command(&cmd("ROLE")).await?.extract_error()?;
            let is_primary =
                matches!(&role, Value::Array(parts) if parts.first() == Some(&Value::BulkString(b"master".to_vec())));
            if !is_primary {
                return Err(RedisError::from((
                    ErrorKind::Io,
                    "the server that the sentinels name is not the primary yet",
                )));
            }
            Ok(server)
        };
        tokio::time::timeout(share, connect).await.map_err(silent)?
    }

    async fn connect_to_cluster(&self) -> RedisResult<ClusterConnection> {
        let Address { hosts, login, timeout, .. } = &self.address;
        let nodes: Vec<ConnectionInfo> =
            hosts.iter().map(|(host, port)| self.information(host, *port, login, 0)).collect::<RedisResult<_>>()?;
        let mut builder = ClusterClientBuilder::new(nodes)
            // The callers retry until their time is over.
            .retries(2)
            .max_retry_wait(LONGEST_WAIT.as_millis() as u64)
            .connection_timeout(*timeout / 2)
            .response_timeout(*timeout / 2);
        if let Some(certificates) = &self.certificates {
            builder = builder.tls(TlsMode::Secure).certs(certificates.clone());
        }
        builder.build()?.get_async_connection().await
    }

    fn failure(&self, error: &RedisError) -> Failure {
        let text = error.to_string();
        // Not an unreachable store: a server that is not the right one answers. The client of a cluster keeps only the text.
        if is_tls_failure(error) || text.contains("invalid peer certificate") {
            return Failure::Final(self.refused(text));
        }
        match (error.kind(), error.code()) {
            (ErrorKind::Server(ServerErrorKind::NoScript), _) => Failure::NoScript,
            // Only a client of a cluster can follow this.
            (ErrorKind::Server(ServerErrorKind::Moved | ServerErrorKind::Ask | ServerErrorKind::CrossSlot), _)
                if self.address.topology != Topology::Cluster =>
            {
                let scheme = if self.address.tls { "rediss" } else { "redis" };
                Failure::Final(self.refused(format!("it is a node of a cluster: use a URL with {scheme}+cluster://")))
            }
            (
                ErrorKind::Server(
                    ServerErrorKind::BusyLoading
                    | ServerErrorKind::TryAgain
                    | ServerErrorKind::ClusterDown
                    | ServerErrorKind::MasterDown
                    | ServerErrorKind::Moved
                    | ServerErrorKind::Ask,
                ),
                _,
            )
            | (_, Some("BUSY" | "NOREPLICAS")) => Failure::Again(text),
            (ErrorKind::Server(ServerErrorKind::ReadOnly), _) => Failure::Reconnect(text),
            (ErrorKind::Server(ServerErrorKind::NoPerm), _)
            | (ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig, _)
            | (_, Some("NOAUTH" | "WRONGPASS")) => Failure::Final(self.refused(text)),
            (_, Some("OOM")) => Failure::Final(self.unreachable("it has no memory left; nothing was written")),
            (_, Some("MISCONF")) => {
                Failure::Final(self.unreachable("it cannot write to its disk, and accepts no writes"))
            }
            (ErrorKind::Server(_) | ErrorKind::Extension | ErrorKind::UnexpectedReturnType, _) => {
                Failure::Final(Error::Other(text))
            }
            _ => Failure::Reconnect(text),
        }
    }
}

fn filled(script: &Script, whole: bool, fill: &impl Fn(&mut Cmd)) -> Cmd {
    let mut command = script.call(whole);
    fill(&mut command);
    command
}
