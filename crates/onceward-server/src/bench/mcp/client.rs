//! Who calls: it writes and reads the pipes itself, with nothing in between that would take time of its own.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::time::{Duration, Instant};

use super::super::raw::Appending;
use super::super::samples::Samples;
use super::case::{Case, Load};
use super::talk::{self, ACT, LOOK};

/// Calls of one slice: a machine that is faster than any does not fill the disk.
const MOST: u64 = 200_000;

/// The number that repeats have.
const SAME: u64 = 0;

/// One client, and what it has called so far.
#[derive(Debug)]
pub(super) struct Client {
    case: Case,
    to: File,
    from: BufReader<File>,
    /// How many calls it has made: each has its own number.
    pub(super) calls: u64,
    line: String,
}

/// What one slice came to.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) times: Samples,
    pub(super) seconds: f64,
}

impl Client {
    /// Greets the server, asks for its tools, and makes a first call: what has to be started is started then.
    pub(super) fn open(case: Case, to: File, from: File) -> Result<Self, String> {
        let mut client = Self { case, to, from: BufReader::new(from), calls: 0, line: String::new() };
        for line in talk::GREETING {
            client.line = format!("{line}\n");
            client.write()?;
            if line.contains(r#""id""#) {
                client.read()?;
            }
        }
        client.send()?;
        client.read()?;
        talk::answered(&client.line, false)?;
        Ok(client)
    }

    /// Calls for so long.
    pub(super) fn call(&mut self, load: Load, time: Duration) -> Result<Done, String> {
        let mut times = Samples::default();
        let mut under_way = HashMap::with_capacity(load.in_flight());
        let started = Instant::now();
        let (until, most) = (started + time, self.calls + MOST);
        let mut now = started;
        loop {
            while under_way.len() < load.in_flight() && now < until && self.calls < most {
                under_way.insert(self.send()?, now);
                now = Instant::now();
            }
            if under_way.is_empty() {
                return Ok(Done { times, seconds: started.elapsed().as_secs_f64() });
            }
            self.read()?;
            now = Instant::now();
            let id = talk::answered(&self.line, self.case == Case::Replay)?;
            let sent = under_way.remove(&id).ok_or_else(|| format!("nobody waits for an answer to {id}"))?;
            times.note(now - sent);
        }
    }

    /// Calls for so long, one at a time, each between two syncs.
    pub(super) fn call_synced(&mut self, log: &mut Appending, time: Duration) -> Result<Done, String> {
        let mut times = Samples::default();
        let started = Instant::now();
        while started.elapsed() < time && (times.len() as u64) < MOST {
            let began = Instant::now();
            log.sync()?;
            self.send()?;
            self.read()?;
            talk::answered(&self.line, false)?;
            log.sync()?;
            times.note(began.elapsed());
        }
        Ok(Done { times, seconds: started.elapsed().as_secs_f64() })
    }

    /// How often the server has acted.
    pub(super) fn acted(&mut self) -> Result<u64, String> {
        talk::call(&mut self.line, self.calls, LOOK, SAME);
        self.write()?;
        self.read()?;
        talk::acted(&self.line).ok_or_else(|| format!("the server does not say how often it acted: {}", self.line))
    }

    /// Makes the next call. The answer is its id.
    fn send(&mut self) -> Result<u64, String> {
        let id = self.calls;
        self.calls += 1;
        let (tool, number) = match self.case {
            Case::Direct | Case::Guarded => (ACT, id),
            Case::PassThrough => (LOOK, id),
            Case::Replay => (ACT, SAME),
        };
        talk::call(&mut self.line, id, tool, number);
        self.write()?;
        Ok(id)
    }

    fn write(&mut self) -> Result<(), String> {
        self.to.write_all(self.line.as_bytes()).map_err(|error| format!("it does not listen: {error}"))
    }

    fn read(&mut self) -> Result<(), String> {
        self.line.clear();
        match self.from.read_line(&mut self.line) {
            Ok(0) => Err("it ended before it answered".to_owned()),
            read => read.map(drop).map_err(|error| format!("it cannot be read: {error}")),
        }
    }
}
