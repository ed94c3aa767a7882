//! What goes over all stores of a ledger: lists, counts, purges and checks. A store that fails is reported, and the others go on.

use std::time::Duration;

use onceward_core::name::Tenant;
use tokio::task::JoinSet;

use super::{Ledger, placement::DEFAULT};
use crate::store::{self, Counts, Cursor, Durability, Filter, Page, Purged};

/// A store of a ledger that failed.
#[derive(Clone, Debug)]
pub struct StoreFailure {
    /// Its name in the configuration; `default` for the one that has none.
    pub name: String,
    /// Why.
    pub error: store::Error,
}

/// What the stores of a ledger answered together, without those that failed.
#[derive(Clone, Debug)]
pub struct Answers<T> {
    value: T,
    answered: usize,
    failed: Vec<StoreFailure>,
}

impl<T> Answers<T> {
    fn new(value: T) -> Self {
        Self { value, answered: 0, failed: Vec::new() }
    }

    /// Counts the answer of a store, and returns it unless the store failed.
    fn note<A>(&mut self, name: &str, answer: Result<A, store::Error>) -> Option<A> {
        match answer {
            Ok(answer) => {
                self.answered += 1;
                Some(answer)
            }
            Err(error) => {
                self.failed.push(StoreFailure { name: name.to_owned(), error });
                None
            }
        }
    }

    /// The answer of all stores; the error of the first one that failed.
    pub fn all(self) -> Result<T, store::Error> {
        match self.failed.into_iter().next() {
            None => Ok(self.value),
            Some(failure) => Err(failure.error),
        }
    }

    /// The answer of those that did not fail, and those that did; an error if none answered.
    pub fn any(self) -> Result<(T, Vec<StoreFailure>), store::Error> {
        if self.answered == 0 {
            return self.all().map(|value| (value, Vec::new()));
        }
        Ok((self.value, self.failed))
    }
}

/// Whether a store can be used now.
#[derive(Clone, Debug)]
pub struct StoreCheck {
    /// Its name in the configuration; `default` for the one that has none.
    pub name: String,
    /// What an acknowledged write to it survives, if it can be read and written.
    pub durability: Result<Durability, store::Error>,
}

impl Ledger {
    /// Lists intents in the stores that can be reached, one store after the other, the newest first. The cursor says in which store
    /// the next page begins; a store that failed is left out.
    pub async fn list_reachable(&self, filter: &Filter, after: Option<Cursor>, limit: usize) -> Answers<Page> {
        let mut answers = Answers::new(Page::default());
        let mut after = after;
        let start = after.map_or(0, |cursor| cursor.place);
        let parts: Vec<_> = self.parts().map(|(name, ledger)| (name, place_of(name), ledger)).collect();
        let first = parts.iter().position(|(_, place, _)| *place == start).unwrap_or_default();
        for (index, (name, place, ledger)) in parts.iter().enumerate().skip(first) {
            let room = limit - answers.value.listed.len();
            let listed = ledger.inner.store.list(filter, after.take(), room).await;
            let Some(next) = answers.note(name, listed) else { continue };
            let page = &mut answers.value;
            page.listed.extend(next.listed);
            page.next = next.next.map(|cursor| Cursor { place: *place, ..cursor });
            if page.next.is_some() {
                return answers;
            }
            if page.listed.len() >= limit && index + 1 < parts.len() {
                // The next page begins with the next store.
                page.next = Some(Cursor::start_of(parts[index + 1].1));
                return answers;
            }
        }
        answers
    }

    /// Counts the intents in each state, in the stores that can be reached: of all tenants, or of one.
    pub async fn counts_reachable(&self, tenant: Option<&Tenant>) -> Answers<Counts> {
        let mut answers = Answers::new(Counts::default());
        for (name, ledger) in self.parts() {
            let counts = ledger.inner.store.counts(tenant).await;
            for (status, count) in answers.note(name, counts).unwrap_or_default().0 {
                *answers.value.0.entry(status).or_default() += count;
            }
        }
        answers
    }

    /// Frees at most `limit` expired records, in the stores that can be reached.
    pub async fn purge_reachable(&self, limit: usize) -> Answers<Purged> {
        let mut answers = Answers::new(Purged::default());
        for (name, ledger) in self.parts() {
            let freed = ledger.inner.store.purge(limit - answers.value.total()).await;
            let freed = answers.note(name, freed).unwrap_or_default();
            let all = &mut answers.value;
            *all = Purged { tombstones: all.tombstones + freed.tombstones, removed: all.removed + freed.removed };
            if all.total() >= limit {
                break;
            }
        }
        answers
    }

    /// Checks every store, all at once: whether it can be read and written, and what it survives. A store that takes longer than
    /// `limit` has failed.
    pub async fn check_stores(&self, limit: Duration) -> Vec<StoreCheck> {
        let mut checks = JoinSet::new();
        for (index, (name, ledger)) in self.parts().enumerate() {
            let (name, store) = (name.to_owned(), std::sync::Arc::clone(&ledger.inner.store));
            checks.spawn(async move {
                let checked = async {
                    store.get(onceward_core::hash::digest(b"ping")).await?;
                    store.check().await?;
                    store.durability().await
                };
                let late = |_| store::Error::Unreachable(format!("no answer within {} s", limit.as_secs_f32()));
                let durability = tokio::time::timeout(limit, checked).await.map_err(late).flatten();
                (index, StoreCheck { name, durability })
            });
        }
        let mut checked = checks.join_all().await;
        checked.sort_unstable_by_key(|(index, _)| *index);
        checked.into_iter().map(|(_, check)| check).collect()
    }
}

/// The number that stands for a store in a cursor: it stays the same when other stores are added. 0 is the default store.
fn place_of(name: &str) -> u32 {
    if name == DEFAULT {
        return 0;
    }
    let digest = onceward_core::hash::digest(name.as_bytes());
    let first = digest.as_bytes().first_chunk().map_or(0, |first| u32::from_be_bytes(*first));
    first.max(1)
}
