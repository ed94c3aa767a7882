//! Encoded slashes and backslashes in paths: an upstream that decodes them must not see a guarded path that came through an
//! unguarded route.

use std::convert::Infallible;

use http::Response;
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::test_gateway::TestGateway;
use super::upstream::TestUpstream;
use crate::test_folder::TestFolder;

/// Charges a card for every POST whose decoded path is that of charges, and returns the path that it saw.
async fn decoding() -> TestUpstream {
    TestUpstream::start(|request| async move {
        let path = request.uri().path().to_owned();
        Response::new(Full::from(path).map_err(|never: Infallible| match never {}).boxed_unsync())
    })
    .await
}

/// The status and the body of the response to a request without a key.
async fn told(gateway: &TestGateway, method: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer sk_7\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut heard = String::new();
    stream.read_to_string(&mut heard).await.unwrap();
    let body = heard.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default();
    (heard[9..12].parse().unwrap(), body)
}

fn started(upstream: &TestUpstream, open: &str) -> TestGateway {
    let url = upstream.url();
    let routes = format!(
        "[[gateway.route]]\npath = \"/v1/charges\"\nupstream = {url:?}\n\
         [[gateway.route]]\nupstream = {url:?}\nkey_mode = \"optional\"\n{open}"
    );
    TestGateway::configured(TestFolder::new(), &format!("[gateway]\nlisten = \"127.0.0.1:0\"\n{routes}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encoded_separator_is_refused() {
    let upstream = decoding().await;
    let gateway = started(&upstream, "");
    assert_eq!(told(&gateway, "POST", "/v1/charges").await.0, 400, "this route needs a key");
    for path in ["/v1%2Fcharges", "/v1%2fcharges", "/v1%5Ccharges", "/v1\\charges", "/x/..%2fv1/charges", "/a%2Fb"] {
        for method in ["POST", "GET"] {
            let (status, body) = told(&gateway, method, path).await;
            assert_eq!((status, body.contains("bad-request")), (400, true), "{method} {path} {body}");
        }
    }
    assert_eq!(upstream.effects(), 0);
    for path in ["/v1/other", "/v1%252Fcharges", "/v1/a?next=%2Fv1%2Fcharges"] {
        assert_eq!(told(&gateway, "POST", path).await.0, 200, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_that_allows_encoded_slashes_does_not_bypass_a_guard() {
    let upstream = decoding().await;
    let gateway = started(&upstream, "encoded_slashes = \"allow\"");
    let named = (200, "/projects/group%2Fname".to_owned());
    assert_eq!(told(&gateway, "POST", "/projects/group%2Fname").await, named);
    for path in ["/v1%2Fcharges", "/v1%2fcharges", "/v1%5Ccharges", "/v1\\charges", "/v1%2F%2Fcharges;a=%2F.."] {
        assert_eq!(told(&gateway, "POST", path).await.0, 400, "{path}");
    }
    assert_eq!(upstream.effects(), 1);
}
