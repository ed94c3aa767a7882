//! Looks at the keys of a Redis server, of a cluster, or of the primary that sentinels name, beside the store.

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster::ClusterClient;
use redis::{Client, RedisResult, cmd};

/// The keys whose names contain this text and that expire by themselves, with the milliseconds that are left. `server` is the URL of a
/// store without parameters that matter here.
pub async fn with_expiry(server: &str, name: &str) -> RedisResult<Vec<(String, i64)>> {
    let address = server.split('?').next().unwrap_or_default();
    if let Some(hosts) = address.strip_prefix("redis+cluster://") {
        let nodes: Vec<String> = hosts.split(',').map(|host| format!("redis://{host}")).collect();
        // It asks every primary for its keys.
        return expiring(&mut ClusterClient::new(nodes)?.get_async_connection().await?, name).await;
    }
    match address.strip_prefix("redis+sentinel://") {
        Some(sentinels) => expiring(&mut primary(sentinels).await?, name).await,
        None => expiring(&mut connected(address).await?, name).await,
    }
}

async fn connected(url: &str) -> RedisResult<MultiplexedConnection> {
    Client::open(url)?.get_multiplexed_async_connection().await
}

/// A connection to the primary. `sentinels` are their hosts and its name.
async fn primary(sentinels: &str) -> RedisResult<MultiplexedConnection> {
    let (hosts, name) = sentinels.split_once('/').unwrap_or((sentinels, ""));
    let first = hosts.split(',').next().unwrap_or_default();
    let mut sentinel = connected(&format!("redis://{first}")).await?;
    let mut question = cmd("SENTINEL");
    question.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
    let (host, port): (String, u16) = question.query_async(&mut sentinel).await?;
    connected(&format!("redis://{host}:{port}")).await
}

async fn expiring(connection: &mut (impl ConnectionLike + Send), name: &str) -> RedisResult<Vec<(String, i64)>> {
    let mut found = Vec::new();
    let keys: Vec<Vec<u8>> = cmd("KEYS").arg(format!("*{name}*")).query_async(connection).await?;
    for key in keys {
        let left: i64 = cmd("PTTL").arg(&key).query_async(connection).await?;
        if left > 0 {
            found.push((String::from_utf8_lossy(&key).into_owned(), left));
        }
    }
    Ok(found)
}
