//! What happens within and after the upstream's memory of a key, step by step: nothing is left to chance.

use std::time::Duration;

use super::client::ask;
use super::judge::{Judge, Response};
use super::process::Addresses;
use super::upstream::LOSES_FIRST;
use crate::rng::Rng;

/// Keys of each kind.
const KEYS: u64 = 3;

/// An upstream has certainly forgotten a key this long after the end of its memory.
const MARGIN: Duration = Duration::from_millis(200);

/// The first answer to each of these keys is lost after its effect. A retry within the memory gets the same effect; a
/// retry after it is answered in doubt, and has no second effect.
pub async fn play(judge: &Judge, addresses: &Addresses, memory: Duration) {
    for number in 0..KEYS {
        response(judge, addresses, &format!("{LOSES_FIRST}{number}")).await;
    }
    for number in 0..KEYS {
        let key = format!("{LOSES_FIRST}{}", KEYS + number);
        response(judge, addresses, &key).await;
        match response(judge, addresses, &key).await {
            Some(Response::Done { .. }) if judge.effects(&key) == 1 => {}
            other => judge.violation(format!("{key}: a retry within the memory was answered {other:?}")),
        }
    }
    tokio::time::sleep(memory + MARGIN).await;
    for number in 0..KEYS {
        let key = format!("{LOSES_FIRST}{number}");
        match response(judge, addresses, &key).await {
            Some(Response::Problem(name)) if name == "in-doubt" && judge.effects(&key) == 1 => {}
            other => judge.violation(format!(
                "{key}: after the memory a retry was answered {other:?}; it happened {} times",
                judge.effects(&key)
            )),
        }
    }
}

async fn response(judge: &Judge, addresses: &Addresses, key: &str) -> Option<Response> {
    judge.asked(key);
    let response = ask(addresses, key, &mut Rng::of(&[1])).await.ok()?;
    judge.record(key, response.clone());
    Some(response)
}
