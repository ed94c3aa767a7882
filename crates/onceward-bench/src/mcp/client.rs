//! The client: writes and reads the pipes directly, so that no layer in between takes time.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::time::{Duration, Instant};

use super::super::raw::SingleWriter;
use super::super::samples::Samples;
use super::case::{Case, Load};
use super::messages::{self, ACT, LOOK};

/// Maximum number of calls in one slice, so that a very fast machine does not fill the disk.
const MAX_CALLS: u64 = 200_000;

/// The number in the arguments of repeats.
const REPEATED: u64 = 0;

/// One client and its calls so far.
#[derive(Debug)]
pub(super) struct BenchClient {
    case: Case,
    to: File,
    from: BufReader<File>,
    /// The number of its calls: each has its own number.
    pub(super) calls: u64,
    line: String,
}

/// The result of one slice.
#[derive(Debug)]
pub(super) struct SliceResult {
    pub(super) times: Samples,
    pub(super) seconds: f64,
}

impl BenchClient {
    /// Performs the handshake, lists the tools, and makes a first call, so that everything is started.
    pub(super) fn open(case: Case, to: File, from: File) -> Result<Self, String> {
        let mut client = Self { case, to, from: BufReader::new(from), calls: 0, line: String::new() };
        for line in messages::HANDSHAKE {
            client.line = format!("{line}\n");
            client.write()?;
            if line.contains(r#""id""#) {
                client.read()?;
            }
        }
        client.send()?;
        client.read()?;
        messages::answered(&client.line, false)?;
        Ok(client)
    }

    /// Calls for this long.
    pub(super) fn call(&mut self, load: Load, time: Duration) -> Result<SliceResult, String> {
        let mut times = Samples::default();
        let mut under_way = HashMap::with_capacity(load.in_flight());
        let started = Instant::now();
        let (until, most) = (started + time, self.calls + MAX_CALLS);
        let mut now = started;
        loop {
            while under_way.len() < load.in_flight() && now < until && self.calls < most {
                under_way.insert(self.send()?, now);
                now = Instant::now();
            }
            if under_way.is_empty() {
                return Ok(SliceResult { times, seconds: started.elapsed().as_secs_f64() });
            }
            self.read()?;
            now = Instant::now();
            let id = messages::answered(&self.line, self.case == Case::Replay)?;
            let sent = under_way.remove(&id).ok_or_else(|| format!("a response to an unknown call: {id}"))?;
            times.note(now - sent);
        }
    }

    /// Calls for this long, one at a time, each between two syncs.
    pub(super) fn call_synced(&mut self, log: &mut SingleWriter, time: Duration) -> Result<SliceResult, String> {
        let mut times = Samples::default();
        let started = Instant::now();
        while started.elapsed() < time && (times.len() as u64) < MAX_CALLS {
            let began = Instant::now();
            log.sync()?;
            self.send()?;
            self.read()?;
            messages::answered(&self.line, false)?;
            log.sync()?;
            times.note(began.elapsed());
        }
        Ok(SliceResult { times, seconds: started.elapsed().as_secs_f64() })
    }

    /// How often the server has acted.
    pub(super) fn acted(&mut self) -> Result<u64, String> {
        messages::call(&mut self.line, self.calls, LOOK, REPEATED);
        self.write()?;
        self.read()?;
        messages::acted(&self.line)
            .ok_or_else(|| format!("the server does not report how often it acted: {}", self.line))
    }

    /// Makes the next call and returns its id.
    fn send(&mut self) -> Result<u64, String> {
        let id = self.calls;
        self.calls += 1;
        let (tool, number) = match self.case {
            Case::Direct | Case::Guarded => (ACT, id),
            Case::PassThrough => (LOOK, id),
            Case::Replay => (ACT, REPEATED),
        };
        messages::call(&mut self.line, id, tool, number);
        self.write()?;
        Ok(id)
    }

    fn write(&mut self) -> Result<(), String> {
        self.to.write_all(self.line.as_bytes()).map_err(|error| format!("cannot write to it: {error}"))
    }

    fn read(&mut self) -> Result<(), String> {
        self.line.clear();
        match self.from.read_line(&mut self.line) {
            Ok(0) => Err("it ended before it responded".to_owned()),
            read => read.map(drop).map_err(|error| format!("cannot read from it: {error}")),
        }
    }
}
