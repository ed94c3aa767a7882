//! The service behind the proxies: a minimal axum server that echoes requests.

use std::net::Ipv4Addr;

use axum::Router;
use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::routing::post;
use axum::serve::ListenerExt;

use super::wire::{JSON, PATH};
use onceward_runtime::exit::{self, Fault};
use onceward_runtime::output;

/// Serves until the process is ended.
pub(in super::super) fn run() -> Result<u8, Fault> {
    let cannot = |error: std::io::Error| Fault::new(exit::STORE, format!("cannot serve: {error}"));
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(cannot)?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(cannot)?;
        output::out(&listener.local_addr().map_err(cannot)?.to_string());
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        let router = Router::new().route(PATH, post(async |body: Bytes| ([(CONTENT_TYPE, JSON)], body)));
        axum::serve(listener, router).await.map_err(cannot)?;
        Ok(0)
    })
}
