//! A Redis server of one test, which may change its settings and break it.

use std::process::{Child, Command as Process, Stdio};
use std::time::Duration;

use ::redis::aio::MultiplexedConnection;
use ::redis::{Client, FromRedisValue, cmd};
use tokio::net::TcpStream;

use crate::redis::server;
use crate::redis_faults::SINGLE;

/// A connection of the test's own, to look at the keys.
pub(crate) async fn raw(url: &str) -> MultiplexedConnection {
    let plain = url.split('?').next().unwrap();
    Client::open(plain).unwrap().get_multiplexed_async_connection().await.unwrap()
}

/// A server of the test's own, so that it can change its settings.
pub(crate) struct Private {
    pub(crate) process: Child,
    pub(crate) port: u16,
    _folder: tempfile::TempDir,
}

impl Private {
    pub(crate) async fn start(settings: &[&str]) -> Option<Self> {
        server(SINGLE)?;
        let folder = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let process = Process::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--dir"])
            .arg(folder.path())
            .args(settings)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self { process, port, _folder: folder };
        for _ in 0..200 {
            if TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
                return Some(server);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("redis-server does not start");
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/0?prefix=private", self.port)
    }

    pub(crate) async fn set(&self, name: &str, value: &str) {
        let _: String = self.ask(&["CONFIG", "SET", name, value]).await;
    }

    pub(crate) async fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = cmd(words[0]);
        words[1..].iter().for_each(|word| drop(command.arg(word).clone()));
        command.query_async(&mut raw(&self.url()).await).await.unwrap()
    }

    /// Waits until the information that the server shows about a part contains this.
    pub(crate) async fn shows(&self, part: &str, text: &str) {
        for _ in 0..500 {
            if self.ask::<String>(&["INFO", part]).await.contains(text) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("the server does not show {text}");
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
