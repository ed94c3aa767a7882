//! What happens within and after the upstream's memory of a key, step by step: nothing here depends on luck.

use std::time::Duration;

use super::book::{Book, Told};
use super::client::ask;
use super::process::Addresses;
use super::upstream::LOSES_FIRST;
use crate::dice::Dice;

/// Keys of each kind.
const KEYS: u64 = 3;

/// An upstream has forgotten a key for certain after so much more than its memory.
const MARGIN: Duration = Duration::from_millis(200);

/// The first answer to each of these keys is lost after its effect. A retry within the memory gets the same effect; one that
/// comes after it is told that the outcome is in doubt, and has no second effect.
pub async fn play(book: &Book, addresses: &Addresses, memory: Duration) {
    for number in 0..KEYS {
        told(book, addresses, &format!("{LOSES_FIRST}{number}")).await;
    }
    for number in 0..KEYS {
        let key = format!("{LOSES_FIRST}{}", KEYS + number);
        told(book, addresses, &key).await;
        match told(book, addresses, &key).await {
            Some(Told::Done { .. }) if book.effects(&key) == 1 => {}
            other => book.violation(format!("{key}: a retry within the memory was told {other:?}")),
        }
    }
    tokio::time::sleep(memory + MARGIN).await;
    for number in 0..KEYS {
        let key = format!("{LOSES_FIRST}{number}");
        match told(book, addresses, &key).await {
            Some(Told::Problem(name)) if name == "in-doubt" && book.effects(&key) == 1 => {}
            other => book.violation(format!(
                "{key}: after the memory a retry was told {other:?}; it happened {} times",
                book.effects(&key)
            )),
        }
    }
}

async fn told(book: &Book, addresses: &Addresses, key: &str) -> Option<Told> {
    book.asked(key);
    let told = ask(addresses, key, &mut Dice::of(&[1])).await.ok()?;
    book.told(key, told.clone());
    Some(told)
}
