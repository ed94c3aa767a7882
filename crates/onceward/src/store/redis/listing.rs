//! Lists, the newest record first: the shards' orders of recording are merged, and records are read until the page is full.

use std::collections::VecDeque;

use futures_util::future::try_join_all;
use redis::cmd;

use onceward_core::hash::Digest;
use onceward_core::record::{Record, Status};
use onceward_core::time::Timestamp;

use super::reply;
use super::scripts::SCRIPTS;
use super::{Redis, Shard};
use crate::store::{Cursor, Error, Filter, ListedRecord, MAX_PAGE_SIZE, Page};

/// A position in the order of recording: the time of the server in microseconds, and the id.
type Position = (i64, Digest);

/// How many ids to ask each shard for at first: enough for a page, if the records are spread evenly over the shards.
const FIRST_IDS: usize = 32;

/// How many to ask for later: the filter excludes most records.
const MORE_IDS: usize = 512;

/// How many records to read at once.
const RECORDS_AT_ONCE: usize = 256;

/// Where a page begins.
struct Start {
    /// The records before this position.
    before: Option<Position>,
    /// Only records from this time or before.
    latest: Option<Timestamp>,
}

/// The ids of one shard that are still to come.
struct Source<'a> {
    shard: &'a Shard,
    ids: VecDeque<Position>,
    /// How many to skip in the order of the shard; `None` before the first question.
    next: Option<u64>,
    is_over: bool,
}

impl Redis {
    pub(super) async fn list_records(
        &self,
        filter: &Filter,
        after: Option<Cursor>,
        limit: usize,
    ) -> Result<Page, Error> {
        let limit = limit.clamp(1, MAX_PAGE_SIZE);
        let start = self.page_start(filter, after).await?;
        let (mut sources, now) = self.sources(filter, &start).await?;
        let mut page = Page::default();
        loop {
            let ids = self.next_ids(&mut sources, &start, limit.clamp(FIRST_IDS, RECORDS_AT_ONCE)).await?;
            if ids.is_empty() {
                page.next = None;
                return Ok(page);
            }
            for listed in self.read_listed(&ids, now).await? {
                if !matches(filter, &start, &listed) {
                    continue;
                }
                page.next = Some(Cursor::at(&listed.seen.record));
                page.listed.push(listed);
                if page.listed.len() == limit {
                    return Ok(page);
                }
            }
        }
    }

    /// The position of the cursor. If its record is gone or belongs to another tenant, only its time counts.
    async fn page_start(&self, filter: &Filter, after: Option<Cursor>) -> Result<Start, Error> {
        let Some(cursor) = after else { return Ok(Start { before: None, latest: None }) };
        let is_listed = |record: &Record| {
            let owner = record.identity.as_ref().map(|identity| &identity.tenant);
            filter.tenant.is_none() || owner == filter.tenant.as_ref()
        };
        let found = self.read_listed(&[cursor.id], cursor.at).await?;
        if found.first().is_some_and(|listed| is_listed(&listed.seen.record)) {
            let order = &self.shard(&cursor.id).order;
            let score = self.link.query(cmd("ZSCORE").arg(order).arg(cursor.id.as_bytes())).await?;
            if let Ok(score) = reply::score_of(&score) {
                return Ok(Start { before: Some((score, cursor.id)), latest: None });
            }
        }
        // A record is recorded at its time or before. With the clock of a test, positions have another time.
        let before = match self.clock {
            Some(_) => None,
            None => Some((cursor.at.as_millis().saturating_add(1).saturating_mul(1000), Digest::from_bytes([0; 32]))),
        };
        Ok(Start { before, latest: Some(cursor.at) })
    }

    /// The first ids of each shard, and the time.
    async fn sources<'a>(&'a self, filter: &Filter, start: &Start) -> Result<(Vec<Source<'a>>, Timestamp), Error> {
        let is_settled = |status: &Status| matches!(status, Status::Done | Status::Tombstone);
        let only_unsettled = !filter.status.is_empty() && !filter.status.iter().any(is_settled);
        let sources = self.keys.shards.iter().map(|shard| async move {
            let mut source = Source { shard, ids: VecDeque::new(), next: None, is_over: false };
            let (mut ids, now) = match &filter.reference {
                Some(reference) => self.referred(shard, reference).await?,
                None if only_unsettled => self.unsettled(shard).await?,
                None => {
                    let now = self.refill(&mut source, start, FIRST_IDS).await?;
                    return Ok((source, now));
                }
            };
            ids.sort_unstable_by(|one, other| other.cmp(one));
            ids.retain(|position| start.before.is_none_or(|before| *position < before));
            (source.ids, source.is_over) = (ids.into(), true);
            Ok::<_, Error>((source, now))
        });
        let (sources, times): (Vec<_>, Vec<_>) = try_join_all(sources).await?.into_iter().unzip();
        let now = times.into_iter().max().unwrap_or(Timestamp::from_millis(0));
        Ok((sources, now))
    }

    async fn refill(&self, source: &mut Source<'_>, start: &Start, count: usize) -> Result<Timestamp, Error> {
        let reply = self.link.run(&SCRIPTS.page, |command| {
            self.arguments(command, [&*source.shard.epoch, &source.shard.order]);
            match start.before {
                Some((score, _)) => command.arg(score),
                None => command.arg(""),
            };
            match source.next {
                Some(next) => command.arg(next),
                None => command.arg(""),
            };
            command.arg(count);
        });
        let mut reply = self.reply(reply.await?)?;
        let first = reply.number()?;
        let ids = reply::scored_ids(reply.list())?;
        source.next = Some(first + ids.len() as u64);
        source.is_over = ids.len() < count;
        source.ids.extend(ids.into_iter().filter(|position| start.before.is_none_or(|before| *position < before)));
        Ok(reply.now)
    }

    /// The next ids of all shards together, the newest first.
    async fn next_ids(&self, sources: &mut [Source<'_>], start: &Start, most: usize) -> Result<Vec<Digest>, Error> {
        let mut ids = Vec::with_capacity(most);
        while ids.len() < most {
            for source in sources.iter_mut() {
                while source.ids.is_empty() && !source.is_over {
                    self.refill(source, start, MORE_IDS).await?;
                }
            }
            let newest = sources
                .iter_mut()
                .filter(|source| !source.ids.is_empty())
                .max_by_key(|source| source.ids.front().copied());
            match newest.and_then(|source| source.ids.pop_front()) {
                Some((_, id)) => ids.push(id),
                None => break,
            }
        }
        Ok(ids)
    }
}

fn matches(filter: &Filter, start: &Start, listed: &ListedRecord) -> bool {
    let record = &listed.seen.record;
    let Some(standing) = listed.seen.standing() else { return false };
    let identity = record.identity.as_ref();
    (filter.status.is_empty() || filter.status.contains(&standing.status()))
        && start.latest.is_none_or(|latest| record.created_at <= latest)
        && filter.tenant.as_ref().is_none_or(|tenant| identity.is_some_and(|identity| identity.tenant == *tenant))
        && filter.operation.as_ref().is_none_or(|name| identity.is_some_and(|identity| identity.operation == *name))
        && filter.has_reference_of(record)
        && filter.created_before.is_none_or(|time| record.created_at < time)
        && filter.created_since.is_none_or(|time| record.created_at >= time)
}
