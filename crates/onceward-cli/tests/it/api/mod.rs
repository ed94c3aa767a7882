//! The HTTP API of a real server, over real connections.

mod access_control;
mod claims;
mod courier;
mod document;
mod downstream;
mod example;
mod limits;
mod operating;
mod outbox;
mod outbox_decisions;
mod outbox_example;
mod outbox_workers;
mod process;
mod repeats;
mod rerun;
mod server;
mod webhooks;
mod with_gateway;
