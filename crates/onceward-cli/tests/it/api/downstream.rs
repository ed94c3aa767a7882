//! A downstream of the courier: an HTTP server that counts effects by downstream key, and fails when it is told to.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// What the server does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// Acts and answers.
    Works,
    /// Refuses: nothing happens.
    Busy,
    /// Acts, and closes the connection without an answer.
    Silent,
    /// Acts, and answers only after a long time.
    Slow,
}

#[derive(Debug)]
struct DownstreamState {
    mode: Mutex<Mode>,
    /// Whether a key that was seen acts only once.
    honours_keys: bool,
    effects: Mutex<HashMap<String, usize>>,
    bodies: Mutex<Vec<String>>,
    stopped: AtomicBool,
}

pub(super) struct Downstream {
    address: SocketAddr,
    shared: Arc<DownstreamState>,
}

impl Downstream {
    pub(super) fn start(mode: Mode, honours_keys: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(DownstreamState {
            mode: Mutex::new(mode),
            honours_keys,
            effects: Mutex::default(),
            bodies: Mutex::default(),
            stopped: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&shared);
        thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                if of_thread.stopped.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&of_thread);
                thread::spawn(move || serve(connection, &shared));
            }
        });
        Self { address, shared }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn set(&self, mode: Mode) {
        *self.shared.mode.lock().unwrap() = mode;
    }

    /// How often each downstream key took effect.
    pub(super) fn effects(&self) -> HashMap<String, usize> {
        self.shared.effects.lock().unwrap().clone()
    }

    /// The bodies of all requests.
    pub(super) fn bodies(&self) -> Vec<String> {
        self.shared.bodies.lock().unwrap().clone()
    }
}

impl Drop for Downstream {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(self.address);
    }
}

fn serve(connection: TcpStream, shared: &DownstreamState) {
    let mut reader = BufReader::new(connection.try_clone().unwrap());
    let mut writer = connection;
    while let Some((key, body)) = request(&mut reader) {
        let mode = *shared.mode.lock().unwrap();
        shared.bodies.lock().unwrap().push(body);
        if mode == Mode::Busy {
            let _ =
                writer.write_all(b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 0\r\ncontent-length: 0\r\n\r\n");
            continue;
        }
        let mut effects = shared.effects.lock().unwrap();
        let times = effects.entry(key).or_default();
        if *times == 0 || !shared.honours_keys {
            *times += 1;
        }
        drop(effects);
        match mode {
            Mode::Silent => return,
            Mode::Slow => thread::sleep(Duration::from_secs(30)),
            Mode::Works | Mode::Busy => {}
        }
        let answer =
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 13\r\n\r\n{\"id\":\"ch_1\"}";
        if writer.write_all(answer).is_err() {
            return;
        }
    }
}

/// The downstream key and the body of the next request.
fn request(reader: &mut impl BufRead) -> Option<(String, String)> {
    let (mut key, mut length, mut line) = (String::new(), 0, String::new());
    loop {
        line.clear();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let (name, value) = line.trim_end().split_once(':').unwrap_or((line.trim_end(), ""));
        match name.to_ascii_lowercase().as_str() {
            "" => break,
            "idempotency-key" => key = value.trim().to_owned(),
            "content-length" => length = value.trim().parse().ok()?,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some((key, String::from_utf8_lossy(&body).into_owned()))
}
