//! The limit: a bare log that appends and syncs, with the same callers, channel and batching as the embedded store, and
//! nothing else. It looks up no key and cannot be read back.

use std::fs::File;
use std::io::{Seek, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use onceward::store::batching::{BatchWait, Queue, ThreadTime};
use tokio::sync::oneshot;

use super::pairs::{self, PairSamples};
use super::samples::Samples;
use onceward_runtime::exit::{self, Fault};

/// As in the store.
const BATCH: usize = 512;
const QUEUE: usize = 4096;

/// About the size of a claim and a finish.
const ENTRY: usize = 320;

/// The log wraps at this length, like that of the store. It has this length from the start: a growing log is slower to sync
/// than one that is overwritten, and the store's log grows only once.
const LOG_BYTES: u64 = 64 * 1024 * 1024;

type Append = ([u8; ENTRY], oneshot::Sender<()>);

/// Creates the log and writes all of it once.
pub(super) fn prepare(path: &Path) -> Result<File, Fault> {
    let mut file = File::create_new(path).map_err(fault)?;
    let block = vec![0; 1 << 20];
    for _ in 0..LOG_BYTES >> 20 {
        file.write_all(&block).map_err(fault)?;
    }
    file.sync_all().map_err(fault)?;
    Ok(file)
}

#[expect(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
fn fault(error: std::io::Error) -> Fault {
    Fault::new(exit::STORE, format!("the bare log failed: {error}"))
}

/// Each caller appends twice per pair and waits for the sync each time. Also returns the time of each sync.
pub(super) async fn append_and_sync(
    log: &File,
    callers: usize,
    time: Duration,
) -> Result<(PairSamples, Samples), Fault> {
    let mut file = log.try_clone().map_err(fault)?;
    file.rewind().map_err(fault)?;
    let queue = Arc::new(Queue::new(QUEUE));
    let jobs = Arc::clone(&queue);
    let writer = std::thread::spawn(move || write(file, &jobs));
    let work = pairs::at_once(callers, time, {
        let queue = queue.clone();
        move || {
            let queue = queue.clone();
            async move {
                let started = Instant::now();
                append(&queue).await?;
                let claimed = started.elapsed();
                append(&queue).await?;
                Ok((claimed, started.elapsed()))
            }
        }
    })
    .await?;
    queue.close();
    let (done, ended) = oneshot::channel();
    std::thread::spawn(move || done.send(writer.join()));
    match ended.await {
        Ok(Ok(syncs)) => Ok((work, syncs.map_err(fault)?)),
        _ => Err(gone()),
    }
}

/// The log with a single writer that waits for each sync.
#[derive(Debug)]
pub(super) struct SingleWriter {
    log: File,
    length: u64,
}

impl SingleWriter {
    pub(super) fn new(log: &File) -> Result<Self, Fault> {
        let mut log = log.try_clone().map_err(fault)?;
        log.rewind().map_err(fault)?;
        Ok(Self { log, length: 0 })
    }

    /// Appends a small entry and syncs.
    pub(super) fn sync(&mut self) -> Result<(), String> {
        let append = |Self { log, length }: &mut Self| {
            if *length + ENTRY as u64 > LOG_BYTES {
                log.rewind()?;
                *length = 0;
            }
            *length += ENTRY as u64;
            log.write_all(&[7; ENTRY])?;
            log.sync_data()
        };
        append(self).map_err(|error| format!("the bare log failed: {error}"))
    }
}

async fn append(queue: &Queue<Append>) -> Result<(), Fault> {
    let (reply, answer) = oneshot::channel();
    queue.put(([7; ENTRY], reply)).await.map_err(|_| gone())?;
    answer.await.map_err(|_| gone())
}

fn gone() -> Fault {
    Fault::new(exit::STORE, "the bare log failed")
}

fn write(mut file: File, jobs: &Queue<Append>) -> std::io::Result<Samples> {
    let mut syncs = Samples::default();
    let mut batch = Vec::with_capacity(BATCH);
    let mut bytes = Vec::with_capacity(BATCH * ENTRY);
    let mut length = 0;
    let mut pace = BatchWait::none();
    while jobs.take(&mut batch, BATCH, &pace) {
        let (began, size) = (ThreadTime::now(), batch.len());
        bytes.clear();
        batch.iter().for_each(|(entry, _)| bytes.extend_from_slice(entry));
        if length + bytes.len() as u64 > LOG_BYTES {
            file.rewind()?;
            length = 0;
        }
        length += bytes.len() as u64;
        file.write_all(&bytes)?;
        let started = Instant::now();
        file.sync_data()?;
        syncs.note(started.elapsed());
        for (_, reply) in batch.drain(..) {
            let _ = reply.send(());
        }
        pace = BatchWait::after(&began, size + jobs.waiting());
    }
    Ok(syncs)
}
