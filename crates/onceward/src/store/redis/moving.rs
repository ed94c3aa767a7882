//! Moves whole ledgers. The seal is in the key of the epoch of every shard, where every script sees it. The first shard counts,
//! and a mark beside it says that others may not have its seal yet.

use std::collections::VecDeque;
use std::sync::PoisonError;

use async_trait::async_trait;
use futures_util::future::try_join_all;
use redis::{Value, cmd};

use onceward_core::hash::Digest;
use onceward_core::record::Record;
use onceward_core::time::When;

use super::address::Topology;
use super::codec::encode;
use super::epoch::EPOCH_LENGTH;
use super::keys::{Keys, SHARDS};
use super::reply::{self, DONE, integer, unexpected};
use super::scripts::SCRIPTS;
use super::{Redis, Shard, random, writing};
use crate::store::transfer::{Arrival, Exported, MAX_EXPORT_BYTES, Seal, SealSet, Transfer, differs, not_receiving};
use crate::store::{AuditEntry, Error, MAX_PAGE_SIZE};

/// A shard is not empty, so the ledger cannot receive a copy.
const NOT_EMPTY: i64 = 2;
/// The ledger does not receive this copy.
const NOT_RECEIVING: i64 = 3;

/// How many ids to ask for at once, and how many records to read or write at once.
const IDS_AT_ONCE: usize = 4096;
const RECORDS_AT_ONCE: usize = 64;

/// How often to try again after another command has changed the seal. Only commands of operators do that.
const MAX_TRIES: usize = 16;

/// The ids of one shard that an export has not reached. Exports run in the order of the ids, under a seal, so they are read once.
#[derive(Debug, Default)]
pub(super) struct Export {
    shard: usize,
    after: Option<Digest>,
    ids: VecDeque<Digest>,
}

/// The number of a seal: each change gets the next one, so that a late write of an earlier seal is recognised.
fn number_of(text: &str) -> u32 {
    text.get(EPOCH_LENGTH + 1..EPOCH_LENGTH + 9)
        .and_then(|digits| u32::from_str_radix(digits, 16).ok())
        .unwrap_or_default()
}

/// The JSON of a seal, after the epoch, a letter and the number.
pub(super) fn seal_in(text: &str) -> Option<&str> {
    text.get(EPOCH_LENGTH + 9..).filter(|text| !text.is_empty())
}

impl Redis {
    /// The key of the epoch under this seal.
    fn sealed_text(&self, seal: &Seal, number: u32) -> Result<String, Error> {
        let letter = match seal {
            Seal::Open | Seal::Received(_) => '+',
            Seal::Draining(_) => '~',
            Seal::Sealed(_) | Seal::Moved(_) | Seal::Receiving(_) => '!',
        };
        Ok(format!("{}{letter}{number:08x}{}", self.epoch, seal.to_text()?.unwrap_or_default()))
    }

    /// The text in the first shard, when every shard has it.
    async fn settled_text(&self) -> Result<String, Error> {
        let first = &self.keys.shards[0];
        for _ in 0..MAX_TRIES {
            let found = self.link.query(cmd("MGET").arg(&first.epoch).arg(&self.keys.sealing)).await?;
            let Value::Array(found) = found else { return Err(unexpected()) };
            let mut found = found.into_iter().map(reply::bytes);
            let (text, unfinished) = (found.next().flatten(), found.next().flatten().is_some());
            let text = match text.map(String::from_utf8) {
                Some(Ok(text)) if text.starts_with(&self.epoch) => text,
                other => return Err(self.wrong_epoch(other.map(|text| text.unwrap_or_default().into_bytes()))),
            };
            if !unfinished {
                return Ok(text);
            }
            self.spread(&text).await?;
        }
        Err(self.link.unreachable("another command changes the seal of the ledger"))
    }

    /// Writes the seal of the first shard to the others. If it cannot receive a copy, the ledger is open again.
    async fn spread(&self, text: &str) -> Result<SealSet, Error> {
        let seal = Seal::from_text(&self.link.name, seal_in(text))?;
        let must_be_empty = matches!(seal, Seal::Receiving(_));
        let one = async |shard: &Shard| {
            let code = self.link.run(&SCRIPTS.seal_shard, |command| {
                command.arg(2).arg(&shard.epoch).arg(&shard.order).arg(&self.epoch).arg(text);
                command.arg(i32::from(must_be_empty));
            });
            self.seal_code(code.await?)
        };
        let codes = try_join_all(self.keys.shards[1..].iter().map(one)).await?;
        if codes.contains(&NOT_EMPTY) {
            let open = self.sealed_text(&Seal::Open, number_of(text) + 1)?;
            if self.change_seal(text, &open, true, false).await? == DONE {
                Box::pin(self.spread(&open)).await?;
            }
            return Ok(SealSet::NotEmpty);
        }
        // Before the change counts as finished: until then the next command writes it again.
        self.confirm(self.keys.shards.iter(), text).await?;
        let first = &self.keys.shards[0];
        let finished = self.link.run(&SCRIPTS.seal_finished, |command| {
            command.arg(2).arg(&first.epoch).arg(&self.keys.sealing).arg(text);
        });
        finished.await?;
        Ok(SealSet::Written)
    }

    async fn change_seal(&self, from: &str, to: &str, for_all: bool, must_be_empty: bool) -> Result<i64, Error> {
        let first = &self.keys.shards[0];
        let code = self.link.run(&SCRIPTS.seal, |command| {
            command.arg(3).arg(&first.epoch).arg(&self.keys.sealing).arg(&first.order).arg(from).arg(to);
            command.arg(i32::from(for_all)).arg(i32::from(must_be_empty));
        });
        self.seal_code(code.await?)
    }

    /// Waits until replicas have what was written to these shards, if the URL asks for that: a seal or a record that is lost with
    /// the primary would leave two ledgers open, or a gap in the copy. A server replicates its writes in their order, so one
    /// write that waits, here that of the present seal, covers all before it.
    async fn confirm(&self, shards: impl Iterator<Item = &Shard>, text: &str) -> Result<(), Error> {
        let each_node = match self.link.address.topology {
            Topology::Cluster => SHARDS,
            _ => 1,
        };
        let one = async |shard: &Shard| {
            for _ in 0..writing::MAX_CONFIRMATIONS {
                let written = self.link.write(&SCRIPTS.seal_shard, &shard.epoch, |command| {
                    command.arg(2).arg(&shard.epoch).arg(&shard.order).arg(&self.epoch).arg(text).arg(0);
                });
                let written = written.await?;
                self.seal_code(written.reply)?;
                if !self.is_short(written.replicas) {
                    return Ok(());
                }
            }
            Err(self.short(None, "a part of the copy or its seal may be lost with the primary; run the command again"))
        };
        match self.link.address.replicas {
            0 => Ok(()),
            _ => try_join_all(shards.take(each_node).map(one)).await.map(drop),
        }
    }

    /// The code of a script that compares only the epoch, whatever the seal is.
    pub(super) fn seal_code(&self, value: Value) -> Result<i64, Error> {
        let Value::Array(parts) = value else { return Err(unexpected()) };
        let mut parts = parts.into_iter();
        match parts.next().and_then(|code| integer(&code)) {
            Some(-1) => Err(self.wrong_epoch(parts.next().and_then(reply::bytes))),
            code => code.ok_or_else(unexpected),
        }
    }

    /// All ids of a shard, in their order.
    async fn ids_of(&self, shard: &Shard) -> Result<Vec<Digest>, Error> {
        let mut ids = Vec::new();
        loop {
            let (first, last) = (ids.len(), ids.len() + IDS_AT_ONCE - 1);
            let Value::Array(found) = self.link.query(cmd("ZRANGE").arg(&shard.order).arg(first).arg(last)).await?
            else {
                return Err(unexpected());
            };
            let is_last = found.len() < IDS_AT_ONCE;
            for id in found {
                ids.push(reply::id(id)?);
            }
            if is_last {
                ids.sort_unstable();
                return Ok(ids);
            }
        }
    }

    /// The next ids after this one, at most `limit`; none at the end.
    async fn next_export(&self, after: Option<Digest>, limit: usize) -> Result<Vec<Digest>, Error> {
        let lock = || self.export.lock().unwrap_or_else(PoisonError::into_inner);
        let mut export = std::mem::take(&mut *lock());
        if after.is_none() || export.after != after {
            // Another export, or this one goes on where an earlier process has ended.
            let shard = after.map_or(0, |after| Keys::number_of(&after));
            let mut ids = self.ids_of(&self.keys.shards[shard]).await?;
            ids.retain(|id| after.is_none_or(|after| *id > after));
            export = Export { shard, after, ids: ids.into() };
        }
        while export.ids.is_empty() && export.shard + 1 < self.keys.shards.len() {
            export.shard += 1;
            export.ids = self.ids_of(&self.keys.shards[export.shard]).await?.into();
        }
        let ids = export.ids.iter().take(limit).copied().collect();
        *lock() = export;
        Ok(ids)
    }

    /// The first of these ids whose records fit on a page that has this size already, and at least one for an empty page. The
    /// records are not read for that: 64 of them may have 512 MiB.
    pub(super) async fn that_fit(&self, mut ids: Vec<Digest>, mut size: usize) -> Result<Vec<Digest>, Error> {
        let is_empty = size == 0;
        let lengths =
            ids.iter().map(|id| async { self.link.query(cmd("STRLEN").arg(self.shard(id).record(id))).await });
        let mut fit = 0;
        for length in try_join_all(lengths).await? {
            let length = integer(&length).and_then(|length| usize::try_from(length).ok()).ok_or_else(unexpected)?;
            size = size.saturating_add(length);
            if size > MAX_EXPORT_BYTES && !(is_empty && fit == 0) {
                break;
            }
            fit += 1;
        }
        ids.truncate(fit);
        Ok(ids)
    }

    /// Notes that an export has reached this id.
    fn exported(&self, last: Digest) {
        let mut export = self.export.lock().unwrap_or_else(PoisonError::into_inner);
        while export.ids.front().is_some_and(|id| *id <= last) {
            export.ids.pop_front();
        }
        export.after = Some(last);
    }

    /// A whole record; `None` if it is gone.
    async fn whole(&self, id: Digest) -> Result<Option<Exported>, Error> {
        let Some(seen) = self.read_record(id).await?.0 else { return Ok(None) };
        Ok(Some(Exported::new(seen.record, self.read_whole_trail(id).await?)))
    }

    /// Notes that a copy goes on after this id. Another command that continues the same copy may note its own meanwhile.
    async fn note_imported(&self, arrival: &Arrival, last: Option<Digest>) -> Result<(), Error> {
        for _ in 0..MAX_TRIES {
            let text = self.settled_text().await?;
            let seal = Seal::from_text(&self.link.name, seal_in(&text))?;
            let present = seal.receiving(&arrival.token).ok_or_else(|| not_receiving(&self.link.name))?;
            let next = Seal::Receiving(Arrival { after: last.max(present.after), ..present.clone() });
            let next = self.sealed_text(&next, number_of(&text) + 1)?;
            if self.change_seal(&text, &next, false, false).await? == DONE {
                return Ok(());
            }
        }
        Err(self.link.unreachable("another command changes the seal of the ledger"))
    }

    async fn import_one(&self, token: &str, exported: &Exported) -> Result<(), Error> {
        let Exported { record, trail } = exported;
        let (id, write_id) = (record.id, random()?);
        let encoded = encode(record.clone().map(When::At), &write_id)?;
        let entries: Vec<Vec<u8>> = trail.iter().map(trail_entry).collect::<Result<_, _>>()?;
        let shard = self.shard(&id);
        let (key, trail_key) = (shard.record(&id), shard.trail(&id));
        let reply = self.link.run(&SCRIPTS.import, |command| {
            let index = shard.index(encoded.index);
            let keys = [&*shard.epoch, &key, &shard.order, index, &shard.tenants, &trail_key];
            self.arguments(command, keys.into_iter().chain(shard.places()).collect::<Vec<_>>());
            writing::record_arguments(command, token, &id, &write_id, &encoded);
            command.arg(position(record));
            entries.iter().for_each(|entry| {
                command.arg(entry);
            });
        });
        match self.reply(reply.await?)?.code {
            DONE => Ok(()),
            NOT_RECEIVING => Err(not_receiving(&self.link.name)),
            // Written since it was looked for: by another command, which continues the same copy.
            _ => match self.whole(id).await? {
                Some(there) if there == *exported => Ok(()),
                _ => Err(differs(&self.link.name, id)),
            },
        }
    }
}

/// The position of an imported record in the order of recording.
fn position(record: &Record) -> i64 {
    record.created_at.as_millis().clamp(0, super::codec::LATEST / 1000).saturating_mul(1000)
}

fn trail_entry(entry: &AuditEntry) -> Result<Vec<u8>, Error> {
    let mut bytes = random()?.to_vec();
    bytes.extend(entry.at.as_millis().to_be_bytes());
    serde_json::to_writer(&mut bytes, &entry.event).map_err(|error| Error::Other(error.to_string()))?;
    Ok(bytes)
}

#[async_trait]
impl Transfer for Redis {
    async fn ledger_id(&self) -> Result<String, Error> {
        Ok(self.epoch.clone())
    }

    async fn seal(&self) -> Result<Seal, Error> {
        let text = self.settled_text().await?;
        Seal::from_text(&self.link.name, seal_in(&text))
    }

    async fn set_seal(&self, expected: &Seal, next: &Seal) -> Result<SealSet, Error> {
        let must_be_empty = matches!((expected, next), (Seal::Open, Seal::Receiving(_)));
        for _ in 0..MAX_TRIES {
            let text = self.settled_text().await?;
            let present = Seal::from_text(&self.link.name, seal_in(&text))?;
            if present != *expected {
                return Ok(SealSet::Changed(present));
            }
            let sealed = self.sealed_text(next, number_of(&text) + 1)?;
            match self.change_seal(&text, &sealed, true, must_be_empty).await? {
                DONE => return self.spread(&sealed).await,
                NOT_EMPTY => return Ok(SealSet::NotEmpty),
                _ => {}
            }
        }
        Err(self.link.unreachable("another command changes the seal of the ledger"))
    }

    async fn export(&self, after: Option<Digest>, limit: usize) -> Result<Vec<Exported>, Error> {
        let mut page: Vec<Exported> = Vec::new();
        let (mut size, mut reached) = (0, after);
        let limit = limit.clamp(1, MAX_PAGE_SIZE);
        loop {
            let ids = self.next_export(reached, RECORDS_AT_ONCE.min(limit - page.len())).await?;
            if ids.is_empty() {
                return Ok(page);
            }
            let ids = self.that_fit(ids, size).await?;
            let Some(last) = ids.last().copied() else { return Ok(page) };
            for found in try_join_all(ids.into_iter().map(|id| self.whole(id))).await? {
                // A tombstone may have expired by itself.
                let Some(exported) = found else { continue };
                size += exported.size();
                page.push(exported);
            }
            self.exported(last);
            reached = Some(last);
            if page.len() == limit {
                return Ok(page);
            }
        }
    }

    async fn import(&self, arrival: &Arrival, batch: Vec<Exported>) -> Result<(), Error> {
        let name = &self.link.name;
        let text = self.settled_text().await?;
        let seal = Seal::from_text(name, seal_in(&text))?;
        seal.receiving(&arrival.token).ok_or_else(|| not_receiving(name))?;
        let mut new = Vec::new();
        for part in batch.chunks(RECORDS_AT_ONCE) {
            let found = try_join_all(part.iter().map(|exported| self.whole(exported.record.id))).await?;
            for (exported, there) in part.iter().zip(found) {
                match there {
                    None => new.push(exported),
                    Some(there) if there == *exported => {}
                    Some(_) => return Err(differs(name, exported.record.id)),
                }
            }
        }
        for part in new.chunks(RECORDS_AT_ONCE) {
            try_join_all(part.iter().map(|exported| self.import_one(&arrival.token, exported))).await?;
        }
        // Before the page counts as imported: a later command goes on after it. Records that were there already may be those of
        // a command that ended while it waited.
        let mut shards: Vec<usize> = batch.iter().map(|exported| Keys::number_of(&exported.record.id)).collect();
        shards.dedup();
        self.confirm(shards.into_iter().map(|number| &self.keys.shards[number]), &text).await?;
        self.note_imported(arrival, batch.last().map(|last| last.record.id)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_and_the_json_of_a_seal_are_found_after_the_epoch() {
        let epoch = "0".repeat(EPOCH_LENGTH);
        assert_eq!((number_of(&epoch), seal_in(&epoch)), (0, None));
        let open = format!("{epoch}+0000000a");
        assert_eq!((number_of(&open), seal_in(&open)), (10, None));
        let sealed = format!("{epoch}!0000000b{{}}");
        assert_eq!((number_of(&sealed), seal_in(&sealed)), (11, Some("{}")));
    }
}
