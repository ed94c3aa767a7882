//! Results can be logged and kept: nothing in them repeats what the request or the answer contained.

use http::HeaderValue;
use onceward_runtime::egress::{AddressRules, AllowedHosts, Client, Request, Sent, Target};

use super::servers::Scripted;
use super::{answered, client, impatient, post, settings};

const SECRET: &str = "hunter2";

fn shown(sent: &Sent) -> String {
    let told = match sent {
        Sent::NotSent(why) => why.to_string(),
        Sent::Unknown(why) => why.to_string(),
        Sent::Answered(_) => String::new(),
    };
    format!("{told} {sent:?}")
}

fn secretive(url: String) -> Request {
    let mut request = post(url, SECRET);
    request.headers.insert("authorization", HeaderValue::from_static(SECRET));
    request
}

#[tokio::test]
async fn no_result_shows_the_query_the_user_the_headers_or_the_body() {
    let mut results = Vec::new();
    for url in [
        "http://USER:SECRET@127.0.0.1/",
        "http://127.0.0.1:1/SECRET?key=SECRET",
        "http://name.test/SECRET?key=SECRET",
        "http://169.254.169.254/SECRET?key=SECRET",
        "http://127.0.0.1:SECRET/",
        "http://127.0.0.1/SECRET#SECRET",
        "http://127.0.0.1/SECRET/../SECRET",
        "SECRET://127.0.0.1/SECRET",
        "http://[::SECRET]/",
        "http://127.0.0.1/\nSECRET",
    ] {
        results.push(client().send(secretive(url.replace("SECRET", SECRET))).await);
    }
    let mut only = settings();
    only.rules.allowed_hosts = Some(AllowedHosts::parse(&["a.test"]).unwrap());
    results.push(Client::new(only).unwrap().send(secretive(format!("http://b.test/{SECRET}"))).await);
    for answer in [
        "SECRET",
        "HTTP/1.1 SECRET\r\n\r\n",
        "HTTP/1.1 200 OK\r\nx y: SECRET\r\n\r\n",
        "HTTP/1.1 200 SECRET\r\nx: SECRET\r\ncontent-length: 99\r\n\r\nSECRET",
        "HTTP/1.1 200 SECRET\r\nx: SECRET\r\ntransfer-encoding: chunked\r\n\r\nSECRET\r\n",
        "HTTP/1.1 200 SECRET\r\nx: SECRET\r\ncontent-length: 7\r\n\r\nSECRET",
    ] {
        let server = Scripted::answering(answer.replace("SECRET", SECRET)).await;
        results.push(impatient().send(secretive(server.url("/hunter2?key=hunter2"))).await);
    }
    for sent in results {
        assert!(!shown(&sent).contains(SECRET), "{}", shown(&sent));
    }
    assert!(!format!("{:?}", secretive(format!("http://a/{SECRET}"))).contains(SECRET));
    let target = Target::parse(&format!("http://a.test/{SECRET}?{SECRET}"), &AddressRules::default()).unwrap();
    assert!(!format!("{target} {target:?}").contains(SECRET));
}

#[tokio::test]
async fn secrets_reach_the_server_all_the_same() {
    let server = Scripted::start(|_, mut stream| async move {
        let request = super::servers::read_request(&mut stream).await.unwrap();
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{request}", request.len());
        _ = tokio::io::AsyncWriteExt::write_all(&mut stream, answer.as_bytes()).await;
    })
    .await;
    let answer = answered(client().send(secretive(server.url("/?key=hunter2"))).await);
    assert_eq!(String::from_utf8_lossy(&answer.body).matches(SECRET).count(), 3);
}
