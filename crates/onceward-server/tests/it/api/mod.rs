//! The HTTP API of a real server, over real connections.

mod claims;
mod document;
mod example;
mod front;
mod limits;
mod operating;
mod process;
mod repeats;
mod server;
mod walls;
