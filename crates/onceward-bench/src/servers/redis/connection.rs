//! A connection without a ledger, to a server or a cluster.

use std::time::Duration;

use onceward_runtime::exit::Fault;
use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClientBuilder;
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo, SingleNodeRoutingInfo};
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, RedisResult, TlsCertificates, Value, cmd};

use super::super::failed;

/// How long a response may take before the measurement fails. On a busy machine a slow response is a result.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// A connection; clones share it.
#[derive(Clone)]
pub(super) enum BenchConnection {
    Server(MultiplexedConnection),
    Cluster(ClusterConnection),
}

/// A server that has keys: a node of a cluster, or the only one.
pub(super) struct Primary(Option<SingleNodeRoutingInfo>);

impl BenchConnection {
    /// Connects to the servers of a store URL, for this many concurrent callers.
    pub(super) async fn open(url: &str, callers: usize) -> Result<Self, Fault> {
        let ServerUrls { urls, is_cluster, ca } = server_urls(url)?;
        let certificates = match ca {
            Some(path) => {
                Some(TlsCertificates { client_tls: None, root_cert: Some(std::fs::read(path).map_err(failed)?) })
            }
            None => None,
        };
        let opened = match is_cluster {
            true => open_cluster(urls, certificates).await,
            false => open_server(&urls[0], certificates, callers).await,
        };
        opened.map_err(failed)
    }

    /// The reply to a command; a cluster finds the server by its keys.
    pub(super) async fn ask<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, Fault> {
        let reply = match self {
            Self::Server(server) => command.query_async(server).await,
            Self::Cluster(cluster) => command.query_async(cluster).await,
        };
        reply.map_err(failed)
    }

    /// All servers that have keys.
    pub(super) async fn primaries(&mut self) -> Result<Vec<Primary>, Fault> {
        let Self::Cluster(cluster) = self else { return Ok(vec![Primary(None)]) };
        let each = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
        let Value::Map(nodes) = cluster.route_command(cmd("PING"), each).await.map_err(failed)? else {
            return Err(failed("the cluster does not name its nodes"));
        };
        let primary = |(address, _): (Value, Value)| {
            let address: String = redis::from_redis_value(address).map_err(failed)?;
            let (host, port) = address.rsplit_once(':').ok_or_else(|| failed("a node has no port"))?;
            let (host, port) = (host.to_owned(), port.parse().map_err(failed)?);
            Ok(Primary(Some(SingleNodeRoutingInfo::ByAddress { host, port })))
        };
        nodes.into_iter().map(primary).collect()
    }

    /// The reply of one server.
    pub(super) async fn ask_at<T: FromRedisValue>(&mut self, primary: &Primary, command: &Cmd) -> Result<T, Fault> {
        match (self, &primary.0) {
            (Self::Cluster(cluster), Some(node)) => {
                let reply = cluster.route_command(command.clone(), RoutingInfo::SingleNode(node.clone())).await;
                redis::from_redis_value(reply.map_err(failed)?).map_err(failed)
            }
            (connection, _) => connection.ask(command).await,
        }
    }
}

async fn open_server(url: &str, certificates: Option<TlsCertificates>, callers: usize) -> RedisResult<BenchConnection> {
    let client = match certificates {
        Some(certificates) => Client::build_with_tls(url, certificates)?,
        None => Client::open(url)?,
    };
    // No caller waits for space in the queue of the driver.
    let settings = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(RESPONSE_TIMEOUT))
        .set_response_timeout(Some(RESPONSE_TIMEOUT))
        .set_pipeline_buffer_size(callers);
    client.get_multiplexed_async_connection_with_config(&settings).await.map(BenchConnection::Server)
}

async fn open_cluster(urls: Vec<String>, certificates: Option<TlsCertificates>) -> RedisResult<BenchConnection> {
    let mut builder =
        ClusterClientBuilder::new(urls).connection_timeout(RESPONSE_TIMEOUT).response_timeout(RESPONSE_TIMEOUT);
    if let Some(certificates) = certificates {
        builder = builder.certs(certificates);
    }
    builder.build()?.get_async_connection().await.map(BenchConnection::Cluster)
}

/// The URLs of the servers, as the driver reads them.
#[derive(Debug, PartialEq)]
struct ServerUrls<'a> {
    urls: Vec<String>,
    is_cluster: bool,
    /// A file with certificates.
    ca: Option<&'a str>,
}

fn server_urls(url: &str) -> Result<ServerUrls<'_>, Fault> {
    let invalid = || Fault::usage("the store is not a URL");
    let (scheme, rest) = url.split_once("://").ok_or_else(invalid)?;
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (family, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
    if kind == "sentinel" {
        return Err(Fault::usage(
            "a store behind Sentinel cannot be measured: name its primary, as in redis://HOST:PORT",
        ));
    }
    let parameter = |name: &str| query.split('&').filter_map(|pair| pair.split_once('=')).find(|pair| pair.0 == name);
    let family = if parameter("tls").is_some_and(|(_, value)| value == "true") { "rediss" } else { family };
    let (login, place) = rest.rsplit_once('@').map_or((None, rest), |(login, place)| (Some(login), place));
    let (hosts, path) = place.split_once('/').unwrap_or((place, ""));
    let login = login.map(|login| format!("{login}@")).unwrap_or_default();
    let urls = hosts.split(',').map(|host| format!("{family}://{login}{host}/{path}")).collect();
    Ok(ServerUrls { urls, is_cluster: kind == "cluster", ca: parameter("ca").map(|(_, value)| value) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_the_ledger_are_left_out() {
        let found = server_urls("rediss://u:p@h:1/2?prefix=x&ca=/c.pem").unwrap();
        let urls = vec!["rediss://u:p@h:1/2".to_owned()];
        assert_eq!(found, ServerUrls { urls, is_cluster: false, ca: Some("/c.pem") });
        assert_eq!(server_urls("redis://h?tls=true").unwrap().urls, ["rediss://h/"]);
    }

    #[test]
    fn every_node_of_a_cluster_has_a_url() {
        let found = server_urls("redis+cluster://:p@a:1,b:2?replicas=1").unwrap();
        let urls = vec!["redis://:p@a:1/".to_owned(), "redis://:p@b:2/".to_owned()];
        assert_eq!(found, ServerUrls { urls, is_cluster: true, ca: None });
    }

    #[test]
    fn a_store_behind_sentinel_is_refused() {
        assert!(server_urls("redis+sentinel://h/name").is_err());
    }
}
