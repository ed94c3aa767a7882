//! Dials addresses, and only those that the rules permitted.

use std::io;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use super::resolve::Resolve;
use super::rules::{AddressRules, Permitted, Refusal};
use super::sent::NotSent;
use super::target::Host;

/// More addresses than a service has. The rest of a longer answer is ignored.
const MAX_ADDRESSES: usize = 16;

/// How long one address may take before the next one is tried beside it (RFC 8305, 5).
const STAGGER: Duration = Duration::from_millis(250);

/// Connects to one of the permitted addresses of a host. `to` is its name in messages.
pub(super) async fn dial(
    resolver: &dyn Resolve,
    rules: &AddressRules,
    (host, port): (&Host, u16),
    to: &str,
    deadline: Instant,
) -> Result<TcpStream, NotSent> {
    let found = addresses(resolver, host, deadline).await?;
    let mut permitted = Vec::new();
    let mut refused: Option<Refusal> = None;
    for address in found {
        match rules.permit(address, port) {
            Ok(address) => permitted.push(address),
            Err(refusal) => _ = refused.get_or_insert(refusal),
        }
    }
    let unreachable = |why: String| NotSent::Unreachable {
        to: to.to_owned(),
        why: refused.as_ref().map_or_else(|| why.clone(), |refusal| format!("{why}; not dialled: {refusal}")),
    };
    match (permitted.is_empty(), &refused) {
        (true, Some(refusal)) => Err(refusal.clone().into()),
        (true, None) => Err(unresolved(host, "it has no address")),
        (false, _) => match timeout_at(deadline, race(&permitted)).await {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => Err(unreachable(error.to_string())),
            Err(_) => Err(unreachable("connecting timed out".to_owned())),
        },
    }
}

async fn addresses(resolver: &dyn Resolve, host: &Host, deadline: Instant) -> Result<Vec<std::net::IpAddr>, NotSent> {
    let name = match host {
        Host::Address(address) => return Ok(vec![*address]),
        Host::Name(name) => name,
    };
    let mut found = match timeout_at(deadline, resolver.resolve(name)).await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => return Err(unresolved(host, &error.to_string())),
        Err(_) => return Err(unresolved(host, "the lookup timed out")),
    };
    found.truncate(MAX_ADDRESSES);
    Ok(found)
}

fn unresolved(host: &Host, why: &str) -> NotSent {
    NotSent::Unresolved { host: host.to_string(), why: why.to_owned() }
}

/// Connects to the address that answers first. The connections that lose are closed without a byte.
async fn race(addresses: &[Permitted]) -> io::Result<TcpStream> {
    let mut waiting = addresses.iter().copied();
    let mut attempts = JoinSet::new();
    let mut failure = io::Error::other("there is no address");
    loop {
        match waiting.next() {
            Some(next) => _ = attempts.spawn(connect(next)),
            None if attempts.is_empty() => return Err(failure),
            None => {}
        }
        let others_wait = waiting.len() > 0;
        tokio::select! {
            Some(ended) = attempts.join_next() => match ended.unwrap_or_else(|error| Err(io::Error::other(error))) {
                Ok(stream) => return Ok(stream),
                Err(error) => failure = error,
            },
            () = tokio::time::sleep(STAGGER), if others_wait => {}
        }
    }
}

async fn connect(address: Permitted) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address.address()).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
