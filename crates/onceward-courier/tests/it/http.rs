//! The sink `http` against a server that fails at every point.

use onceward::courier::LookUp;
use onceward::outcome::Body;

use super::http_server::{Behaviour, Server};
use super::*;

fn table(server: &Server, more: &str) -> String {
    format!("type = \"http\"\nurl = {:?}\nallow_private = true\n{more}", server.url("/v1/charges"))
}

async fn attempt(server: &Server, more: &str, payload: &str) -> SinkResult {
    sink(&table(server, more)).deliver(&parcel(payload)).await
}

const AGAIN: End = End::Again(None);
const IN_7: End = End::Again(Some(Duration::from_secs(7)));

#[tokio::test]
async fn every_status_ends_the_attempt_as_its_row_says() {
    let mut rows = Vec::new();
    for status in [200, 201, 202, 204, 299] {
        rows.push((status, "", "", End::Done));
    }
    for status in [400, 402, 404, 410, 422] {
        rows.push((status, "", "", End::Failed));
    }
    for status in [401, 403, 407, 409, 425] {
        rows.push((status, "", "", End::Dead));
        rows.push((status, "retry-after: 7\r\n", "", End::Dead));
    }
    for status in [408, 499, 502, 503, 504, 520, 529, 530, 598, 301, 302, 307] {
        rows.push((status, "", "", End::Unknown));
    }
    rows.push((429, "", "", AGAIN));
    for status in [429, 503, 529] {
        rows.push((status, "retry-after: 7\r\n", "", IN_7));
        let dated = "date: Sun, 06 Nov 1994 08:49:30 GMT\r\nretry-after: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
        rows.push((status, dated, "", IN_7));
    }
    for status in [502, 504] {
        rows.push((status, "retry-after: 7\r\n", "", End::Unknown));
    }
    rows.push((503, "", "refusals = [503]", AGAIN));
    rows.push((404, "", "refusals = [503, 404]", AGAIN));
    for status in [500, 501, 505] {
        rows.push((status, "", "", End::Unknown));
        rows.push((status, "", "keeps_server_errors = true", End::Failed));
    }
    rows.push((409, "", "honours_key = true", AGAIN));
    rows.push((425, "retry-after: 7\r\n", "honours_key = true", IN_7));
    rows.push((504, "", "honours_key = true", End::Unknown));
    for (status, headers, more, expected) in rows {
        let server = Server::answering(&format!("{status} X"), headers, if status == 204 { "" } else { "{}" }).await;
        let ended = attempt(&server, more, "{}").await;
        assert_eq!(end(&ended), expected, "{status} {headers} {more}: {ended:?}");
        assert_eq!(server.effects(), 1, "{status}");
        let is_failing = status == 429 || status >= 500 || expected == End::Unknown;
        // A final failure is an answer: the courier counts every outcome as a working downstream.
        let expected =
            if is_failing && !matches!(ended, SinkResult::Ended(_)) { Health::Failing } else { Health::Working };
        assert_eq!(health(&ended), expected, "{status}");
    }
}

#[tokio::test]
async fn an_attempt_that_no_server_saw_is_proven() {
    let server = Server::answering("200 OK", "", "{}").await;
    let refused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = format!("type = \"http\"\nurl = \"http://{refused}/\"\nallow_private = true");
    let ended = sink(&refused).deliver(&parcel("{}")).await;
    assert_eq!((end(&ended), health(&ended)), (AGAIN, Health::Failing));

    let unresolved = "type = \"http\"\nurl = \"http://name.invalid/\"";
    assert_eq!(end(&sink(unresolved).deliver(&parcel("{}")).await), AGAIN);

    let tls = format!("type = \"http\"\nurl = \"https://{}/\"\ntimeout = \"1s\"\nallow_private = true", server.address);
    assert_eq!(end(&sink(&tls).deliver(&parcel("{}")).await), AGAIN);

    let local = format!("type = \"http\"\nurl = \"http://localhost:{}/\"", server.address.port());
    let ended = sink(&local).deliver(&parcel("{}")).await;
    assert_eq!((end(&ended), health(&ended)), (End::Dead, Health::Working), "{ended:?}");
    assert_eq!(server.effects(), 0);
}

#[tokio::test]
async fn a_connection_that_is_lost_after_the_request_began_is_in_doubt() {
    let whole = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 13\r\n\r\n{\"id\":\"ch_1\"}";
    let mut faults = vec![
        (Behaviour::CloseAfterBytes(10), 0),
        (Behaviour::CloseAfterBytes(150), 0),
        (Behaviour::CloseInsteadOfAnswer, 1),
    ];
    faults.extend((1..whole.len()).step_by(7).map(|length| (Behaviour::Answer(whole[..length].to_vec()), 1)));
    for (behaviour, effects) in faults {
        let server = Server::start(behaviour.clone()).await;
        let ended = attempt(&server, "", &format!("{{\"x\":\"{}\"}}", "y".repeat(1000))).await;
        assert_eq!(end(&ended), End::Unknown, "{behaviour:?}: {ended:?}");
        assert_eq!(health(&ended), Health::Failing);
        assert_eq!(server.effects(), effects, "{behaviour:?}");
    }
    // Whether the request was written before the close was seen is up to the system.
    let server = Server::start(Behaviour::CloseAtOnce).await;
    assert!(matches!(end(&attempt(&server, "", "{}").await), AGAIN | End::Unknown));
    assert_eq!(server.effects(), 0);
    let server = Server::start(Behaviour::Answer(whole.to_vec())).await;
    assert_eq!(end(&attempt(&server, "", "{}").await), End::Done);
}

#[tokio::test]
async fn a_refusal_whose_body_is_lost_is_still_a_refusal() {
    let cut = |status: &str| format!("HTTP/1.1 {status}\r\ncontent-length: 100\r\n\r\nsome").into_bytes();
    for (status, expected) in [("429 X", AGAIN), ("401 X", End::Dead), ("400 X", End::Unknown), ("500 X", End::Unknown)]
    {
        let server = Server::start(Behaviour::Answer(cut(status))).await;
        assert_eq!(end(&attempt(&server, "", "{}").await), expected, "{status}");
    }
}

#[tokio::test]
async fn a_body_without_a_length_must_be_whole_json() {
    let unframed = |body: &str| format!("HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n{body}").into_bytes();
    for (body, expected) in [("{\"id\":1}", End::Done), ("{\"id\":", End::Unknown), ("", End::Unknown)] {
        let server = Server::start(Behaviour::Answer(unframed(body))).await;
        let ended = attempt(&server, "", "{}").await;
        assert_eq!(end(&ended), expected, "{body}: {ended:?}");
    }
}

#[tokio::test]
async fn a_server_that_says_nothing_is_in_doubt_at_the_time_out() {
    let server = Server::start(Behaviour::Silent).await;
    let ended = attempt(&server, "timeout = \"300ms\"", "{}").await;
    assert_eq!((end(&ended), server.effects()), (End::Unknown, 1), "{ended:?}");
    assert!(error(&ended).contains("timed out"), "{ended:?}");
}

#[tokio::test]
async fn an_endless_answer_is_a_success_that_is_too_large_to_keep() {
    let server = Server::start(Behaviour::Endless).await;
    let kept = outcome(attempt(&server, "reference = \"/id\"", "{}").await);
    assert!(matches!(kept.body, Body::TooLarge { size, .. } if size >= 1024 * 1024), "{:?}", kept.body);
    assert_eq!((kept.status, kept.reference, server.effects()), (200, None, 1));
}

#[tokio::test]
async fn the_outcome_is_the_answer_byte_for_byte_without_cookies() {
    let body = "{\"id\": \"ch_1\",  \"amount\": 1.10}";
    let headers = "content-type: application/json\r\nset-cookie: s=1\r\nx-request-id: r1\r\n";
    let server = Server::answering("201 Created", headers, body).await;
    let kept = outcome(attempt(&server, "reference = \"/id\"", "{}").await);
    assert_eq!((kept.status, kept.content_type.as_str()), (201, "application/json"));
    assert_eq!(kept.body, Body::Kept(Bytes::from(body)));
    assert_eq!(kept.headers, [("x-request-id".to_owned(), "r1".to_owned())]);
    assert_eq!(kept.reference.as_deref(), Some("ch_1"));
}

#[tokio::test]
async fn without_templates_the_payload_goes_as_it_is_with_the_key_in_a_header() {
    let server = Server::answering("200 OK", "", "{}").await;
    let payload = "{ \"amount\": 123456789012345678901234567890,\t\"amount\": 1.10 }";
    assert_eq!(end(&attempt(&server, "", payload).await), End::Done);
    let request = server.last();
    assert!(request.starts_with("POST /v1/charges HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("\r\nidempotency-key: k1\r\n"), "{request}");
    assert!(request.contains("\r\ncontent-type: application/json\r\n"), "{request}");
    assert!(request.ends_with(payload), "{request}");
}

#[tokio::test]
async fn templates_fill_url_headers_and_body() {
    let server = Server::answering("200 OK", "", "{}").await;
    let more = "method = \"PUT\"\ndownstream_key = \"body:/meta\"\n\
                body = '{\"to\": {{ payload.to }}, \"note\": \"for {{ payload.to }}\"}'\n\
                headers = { X-Tenant = \"{{ tenant }}/{{ attempt }}\" }";
    let table = table(&server, more).replace("/v1/charges", "/v1/{{ payload.to }}?op={{ operation }}");
    let ended = sink(&table).deliver(&parcel("{\"to\":\"a b&c\"}")).await;
    assert_eq!(end(&ended), End::Done, "{ended:?}");
    let request = server.last();
    assert!(request.starts_with("PUT /v1/a%20b%26c?op=charge HTTP/1.1\r\n"), "{request}");
    assert!(request.contains("\r\nx-tenant: acme/2\r\n"), "{request}");
    assert!(request.ends_with("{\"meta\":\"k1\",\"note\":\"for a b&c\",\"to\":\"a b&c\"}"), "{request}");
    assert!(!request.contains("idempotency-key"), "{request}");
}

#[tokio::test]
async fn a_poisoned_entry_is_dead_and_its_neighbours_are_delivered() {
    let server = Server::answering("200 OK", "", "{}").await;
    let more = "body = '''{\"to\": {{ payload.to }}}'''\n[headers]\nX-To = \"{{ payload.to }}\"";
    let table = table(&server, more).replace("/v1/charges", "/v1/{{ payload.to }}");
    let sink = sink(&table);
    for payload in [
        "{}",
        "not JSON",
        "",
        "[]",
        "{\"to\":null}",
        "{\"to\":{\"a\":1}}",
        "{\"to\":\"..\"}",
        "{\"to\":\"\"}",
        "{\"to\":\"a/b\"}",
        "{\"to\":\"a\\r\\nX-Admin: 1\"}",
        "{\"to\":\"\\u0000\"}",
        "{\"to\":\"é\"}",
        &format!("{{\"to\":\"{}\"}}", "a".repeat(100_000)),
    ] {
        let ended = sink.deliver(&parcel(payload)).await;
        assert_eq!((end(&ended), health(&ended)), (End::Dead, Health::Working), "{payload:.40}: {ended:?}");
        assert_eq!(server.effects(), 0, "{payload:.40}");
    }
    let ended = sink.deliver(&parcel("{}")).await;
    assert!(error(&ended).contains("`payload.to` is missing"), "{ended:?}");
    assert_eq!(end(&sink.deliver(&parcel("{\"to\":\"ann\"}")).await), End::Done);
    assert_eq!(server.effects(), 1);
}

#[tokio::test]
async fn secrets_are_sent_and_never_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "hunter2-hunter2\n").unwrap();
    let server = Server::answering("401 X", "", "{}").await;
    let more = format!("[headers]\nAuthorization = {{ secret = \"file:{}\", prefix = \"Bearer \" }}", path.display());
    let sink_settings: SinkSettings = toml::from_str(&table(&server, &more)).unwrap();
    let SinkSettings::Http(settings) = sink_settings else { panic!() };
    let sink = onceward_courier::HttpSink::new("test", &settings, &around()).unwrap();
    let ended = sink.deliver(&parcel("{}")).await;
    assert!(server.last().contains("\r\nauthorization: Bearer hunter2-hunter2\r\n"), "{}", server.last());
    assert!(!format!("{sink:?} {ended:?} {settings:?}").contains("hunter2"));
    std::fs::write(&path, "hunter2\u{7}").unwrap();
    let error = try_sink(&table(&server, &more)).err().unwrap();
    assert!(error.contains("sink.test.headers.Authorization") && !error.contains("hunter2"), "{error}");
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused_with_their_name() {
    let server = Server::answering("200 OK", "", "{}").await;
    for (more, field) in [
        ("method = \"CONNECT\"", "method"),
        ("method = \"post\"", "method"),
        ("downstream_key = \"query:a\"", "downstream_key"),
        ("headers = { Idempotency-Key = \"{{ key }}\" }", "downstream_key"),
        ("method = \"GET\"\ndownstream_key = \"body:/a\"", "downstream_key"),
        ("headers = { Authorization = \"Bearer abc\" }", "headers.Authorization"),
        ("headers = { X = \"env:ONCEWARD_TEST_THAT_IS_NOT_SET\" }", "headers.X"),
        ("headers = { \"a b\" = \"c\" }", "headers.a b"),
        ("headers = { X = \"{{ nothing }}\" }", "headers.X"),
        ("headers = { Content-Type = \"{{ key }}\" }\nbody = \"{{ key }}\"", "headers.Content-Type"),
        ("headers = { Content-Type = \"image/png\" }\nbody = \"{{ key }}\"", "body"),
        ("body = \"{{ payload.a\"", "body"),
        ("refusals = [99]", "refusals"),
        ("reference = \"id\"", "reference"),
        ("probe = { url = \"https://{{ tenant }}.example/\" }", "probe.url"),
        ("probe = { url = \"https://a.example/\", found = \"data\" }", "probe.found"),
        ("allowed_hosts = []", "allowed_hosts"),
        ("ca_file = \"nowhere.pem\"", "ca_file"),
        ("timeout = \"0s\"", "timeout"),
    ] {
        let error = try_sink(&table(&server, more)).err().unwrap_or_else(|| panic!("{more}"));
        assert!(error.starts_with(&format!("sink.test.{field}: ")), "{more}: {error}");
    }
    for url in [
        "",
        "{{ payload.url }}",
        "https://{{ tenant }}.example/",
        "https://api.example{{ key }}/",
        "https://api.example:{{ key }}/",
        "https://user:hunter2@api.example/",
        "https://127.0.0.1/",
        "ftp://api.example/",
        "https://api.example/../x",
    ] {
        let error = try_sink(&format!("type = \"http\"\nurl = {url:?}")).err().unwrap_or_else(|| panic!("{url}"));
        assert!(error.starts_with("sink.test.url: ") && !error.contains("hunter2"), "{url}: {error}");
    }
}

async fn ask(server: &Server, found: &str) -> LookUp {
    let url = server.url("/v1/charges?key={{ downstream_key }}");
    let more = format!("reference = \"/id\"\nprobe = {{ url = {url:?}{found} }}");
    sink(&table(server, &more)).look_up(&parcel("{}")).await
}

#[tokio::test]
async fn a_probe_finds_the_effect_or_says_that_it_cannot_know() {
    const DATA: &str = ", found = \"/data/0\"";
    for (status, body, found, expected) in [
        ("200 OK", "{\"data\":[{\"id\":\"ch_1\"}]}", DATA, "happened"),
        ("200 OK", "{\"data\":[]}", DATA, "not found"),
        ("200 OK", "{\"data\":null}", DATA, "not found"),
        ("200 OK", "{\"data\":[null]}", DATA, "not found"),
        ("404 X", "{}", DATA, "not found"),
        ("404 X", "", "", "not found"),
        ("200 OK", "{\"id\":\"ch_1\"}", "", "happened"),
        ("200 OK", "{\"error\":\"busy\"}", DATA, "unknown"),
        ("200 OK", "<html>", DATA, "unknown"),
        ("200 OK", "", DATA, "unknown"),
        ("302 X", "", "", "unknown"),
        ("401 X", "", "", "unknown"),
        ("410 X", "", "", "unknown"),
        ("429 X", "", "", "unknown"),
        ("500 X", "{\"data\":[]}", DATA, "unknown"),
    ] {
        let server = Server::answering(status, "content-type: application/json\r\n", body).await;
        let known = ask(&server, found).await;
        let short = match &known {
            LookUp::Happened(outcome) => {
                assert_eq!(outcome.reference.as_deref(), Some("ch_1"));
                assert_eq!(outcome.body, Body::Kept(Bytes::from_static(b"{\"id\":\"ch_1\"}")));
                "happened"
            }
            LookUp::NotFound => "not found",
            LookUp::Unknown(_) => "unknown",
        };
        assert_eq!(short, expected, "{status} {body}: {known:?}");
        assert!(server.last().starts_with("GET /v1/charges?key=k1 HTTP/1.1\r\n"), "{}", server.last());
        assert!(!server.last().contains("idempotency-key"), "{}", server.last());
    }
    let server = Server::start(Behaviour::CloseInsteadOfAnswer).await;
    assert!(matches!(ask(&server, "").await, LookUp::Unknown(_)));
}
