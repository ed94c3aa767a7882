//! The sink `smtp` against a mail server that fails at every step.

use super::smtp_server::{Fault, FaultAt, Server, ServerTls};
use super::*;

const TLS: [ServerTls; 3] = [ServerTls::None, ServerTls::Starttls, ServerTls::Implicit];

fn table(server: &Server, tls: ServerTls, more: &str) -> String {
    let tls = match tls {
        ServerTls::None => "none",
        ServerTls::Starttls => "starttls",
        ServerTls::Implicit => "implicit",
    };
    format!(
        "type = \"smtp\"\nhost = \"127.0.0.1\"\nport = {}\ntls = \"{tls}\"\nallow_private = true\nca_file = {:?}\n\
         from = \"Shop <shop@example.com>\"\nsubject = \"Hello {{{{ payload.name }}}}\"\n{more}",
        server.address.port(),
        super::certificates::authority(),
    )
}

/// To one recipient, with a text.
const PLAIN: &str = "to = [\"ann@example.org\"]\ntext = \"Hi {{ payload.name }}\"";

const ANN: &str = "{\"name\":\"Ann\"}";

async fn attempt(server: &Server, tls: ServerTls, more: &str) -> SinkResult {
    sink(&table(server, tls, more)).deliver(&parcel(ANN)).await
}

#[tokio::test]
async fn a_mail_arrives_with_its_message_id_over_every_kind_of_connection() {
    for tls in TLS {
        let server = Server::start(tls, &[]).await;
        let sink = sink(&table(&server, tls, PLAIN));
        let kept = outcome(sink.deliver(&parcel(ANN)).await);
        assert_eq!((kept.status, kept.reference.as_deref()), (250, Some("<k1@example.com>")), "{tls:?}");
        outcome(sink.deliver(&Parcel { attempt: 3, ..parcel(ANN) }).await);
        let mails = server.mails();
        assert_eq!(mails.len(), 2);
        for mail in mails {
            assert_eq!(mail.recipients, ["<ann@example.org>"]);
            assert!(mail.text.contains("Message-ID: <k1@example.com>\n"), "{}", mail.text);
            assert!(mail.text.contains("Subject: Hello Ann\n") && mail.text.contains("\nHi Ann\n"), "{}", mail.text);
        }
    }
}

#[tokio::test]
async fn a_fault_before_the_final_dot_is_proven_and_one_after_it_is_in_doubt() {
    const AGAIN: End = End::Again(None);
    let rows: &[(FaultAt, End, usize)] = &[
        (("GREETING", Fault::Close), AGAIN, 0),
        (("GREETING", Fault::Reply("421 busy")), AGAIN, 0),
        (("GREETING", Fault::Reply("554 no")), End::Dead, 0),
        (("GREETING", Fault::Reply("HTTP/1.1 400 Bad Request")), AGAIN, 0),
        (("EHLO", Fault::Close), AGAIN, 0),
        (("EHLO", Fault::Reply("451 later")), AGAIN, 0),
        (("EHLO", Fault::Reply("550 no")), End::Dead, 0),
        (("MAIL", Fault::Close), AGAIN, 0),
        (("MAIL", Fault::Reply("451 later")), AGAIN, 0),
        (("MAIL", Fault::Reply("530 log in")), End::Dead, 0),
        (("MAIL", Fault::Reply("553 no such sender")), End::Failed, 0),
        (("RCPT", Fault::Close), AGAIN, 0),
        (("RCPT", Fault::Reply("450 greylisted")), AGAIN, 0),
        (("RCPT", Fault::Reply("550 no such user")), End::Failed, 0),
        (("DATA", Fault::Close), AGAIN, 0),
        (("DATA", Fault::Reply("451 later")), AGAIN, 0),
        (("DATA", Fault::Reply("554 no")), End::Failed, 0),
        (("DATA", Fault::Reply("250 what")), AGAIN, 0),
        ((".", Fault::Close), End::Unknown, 1),
        ((".", Fault::Reply("2")), End::Unknown, 1),
        ((".", Fault::Reply("200x")), End::Unknown, 1),
        ((".", Fault::Reply("451 later")), AGAIN, 0),
        ((".", Fault::Reply("554 spam")), End::Failed, 0),
        (("QUIT", Fault::Close), End::Done, 1),
    ];
    for tls in TLS {
        for (fault, expected, effects) in rows {
            // The dialogue before STARTTLS has the same steps.
            let server = Server::start(tls, std::slice::from_ref(fault)).await;
            let ended = attempt(&server, tls, PLAIN).await;
            assert_eq!(end(&ended), *expected, "{tls:?} {fault:?}: {ended:?}");
            assert_eq!(server.mails().len(), *effects, "{tls:?} {fault:?}");
        }
        // Whether the final dot was written before the close was seen is up to the system.
        let server = Server::start(tls, &[("TEXT", Fault::Close)]).await;
        assert!(matches!(end(&attempt(&server, tls, PLAIN).await), AGAIN | End::Unknown));
        assert_eq!(server.mails().len(), 0);
    }
}

#[tokio::test]
async fn a_server_that_says_nothing_is_proven_before_the_final_dot_and_in_doubt_after_it() {
    for (at, expected, effects) in [
        ("GREETING", End::Again(None), 0),
        ("EHLO", End::Again(None), 0),
        ("RCPT", End::Again(None), 0),
        ("DATA", End::Again(None), 0),
        (".", End::Unknown, 1),
        ("QUIT", End::Done, 1),
    ] {
        let server = Server::start(ServerTls::None, &[(at, Fault::Silence)]).await;
        let ended = attempt(&server, ServerTls::None, &format!("{PLAIN}\ntimeout = \"1s\"")).await;
        assert_eq!(end(&ended), expected, "{at}: {ended:?}");
        assert_eq!(server.mails().len(), effects, "{at}");
    }
}

const THREE: &str =
    "to = [\"ann@example.org\", \"Bob <bob@example.org>\"]\nbcc = [\"carol@example.org\"]\ntext = \"Hi\"";

#[tokio::test]
async fn a_partial_refusal_is_a_doubt_with_the_masked_list() {
    let server = Server::start(ServerTls::None, &[("RCPT TO:<bob", Fault::Reply("550 no such user"))]).await;
    let ended = attempt(&server, ServerTls::None, THREE).await;
    assert_eq!(end(&ended), End::Unknown);
    assert!(error(&ended).ends_with("refused: b…@example.org (550)"), "{ended:?}");
    assert!(!error(&ended).contains("bob"));
    assert_eq!(server.mails()[0].recipients, ["<ann@example.org>", "<carol@example.org>"]);
    // The refusal of the whole mail is a refusal for everyone.
    let faults = [("RCPT TO:<bob", Fault::Reply("550 no")), (".", Fault::Reply("451 later"))];
    let server = Server::start(ServerTls::None, &faults).await;
    assert_eq!(end(&attempt(&server, ServerTls::None, THREE).await), End::Again(None));
    assert_eq!(server.mails().len(), 0);
}

#[tokio::test]
async fn a_recipient_who_is_refused_for_now_delays_the_mail_for_all() {
    for faults in [
        vec![("RCPT TO:<carol", Fault::Reply("452 mailbox full"))],
        vec![("RCPT TO:<ann", Fault::Reply("550 no")), ("RCPT TO:<carol", Fault::Reply("452 mailbox full"))],
    ] {
        let server = Server::start(ServerTls::None, &faults).await;
        assert_eq!(end(&attempt(&server, ServerTls::None, THREE).await), End::Again(None));
        assert_eq!(server.mails().len(), 0);
    }
    let server = Server::start(ServerTls::None, &[("RCPT", Fault::Reply("550 no"))]).await;
    assert_eq!(end(&attempt(&server, ServerTls::None, THREE).await), End::Failed);
    assert!(!server.lines().iter().any(|line| line == "DATA"));
}

#[tokio::test]
async fn the_other_recipients_do_not_see_a_blind_copy() {
    let server = Server::start(ServerTls::None, &[]).await;
    assert_eq!(end(&attempt(&server, ServerTls::None, THREE).await), End::Done);
    let mail = &server.mails()[0];
    assert_eq!(mail.recipients.len(), 3);
    assert!(mail.text.contains("bob@example.org") && !mail.text.contains("carol"), "{}", mail.text);
}

#[tokio::test]
async fn a_server_that_cannot_be_trusted_gets_no_mail_and_no_password() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("password"), "hunter2\n").unwrap();
    let login = format!("user = \"shop\"\npassword = \"file:{}/password\"\n{PLAIN}", folder.path().display());

    // Without STARTTLS, with another certificate, and without an encryption at all.
    let plain = Server::start(ServerTls::None, &[]).await;
    let ended = attempt(&plain, ServerTls::Starttls, &login).await;
    assert_eq!(end(&ended), End::Again(None), "{ended:?}");
    let server = Server::start(ServerTls::Implicit, &[]).await;
    let table = table(&server, ServerTls::Implicit, &login);
    let untrusted = table.lines().filter(|line| !line.starts_with("ca_file")).collect::<Vec<_>>().join("\n");
    assert_eq!(end(&sink(&untrusted).deliver(&parcel(ANN)).await), End::Again(None));
    let injected = Server::start(ServerTls::Starttls, &[("STARTTLS", Fault::Reply("220 go on\r\n250 injected"))]).await;
    assert_eq!(end(&attempt(&injected, ServerTls::Starttls, &login).await), End::Again(None));
    for server in [&plain, &server, &injected] {
        assert!(!server.lines().iter().any(|line| line.starts_with("AUTH") || line.starts_with("MAIL")));
        assert_eq!(server.mails().len(), 0);
    }
    let error = try_sink(&super::smtp::table(&plain, ServerTls::None, &login)).err().unwrap();
    assert!(error.starts_with("sink.test.tls: ") && !error.contains("hunter2"), "{error}");

    let server = Server::start(ServerTls::Starttls, &[]).await;
    assert_eq!(end(&attempt(&server, ServerTls::Starttls, &login).await), End::Done);
    assert!(server.lines().contains(&"AUTH PLAIN AHNob3AAaHVudGVyMg==".to_owned()), "{:?}", server.lines());
    let faults = [("AUTH", Fault::Reply("535 wrong password hunter2"))];
    let server = Server::start(ServerTls::Starttls, &faults).await;
    let ended = attempt(&server, ServerTls::Starttls, &login).await;
    assert_eq!(end(&ended), End::Dead);
    assert!(!format!("{ended:?}").contains("hunter2"), "{ended:?}");
}

#[tokio::test]
async fn a_private_address_gets_no_connection() {
    let server = Server::start(ServerTls::None, &[]).await;
    let table = table(&server, ServerTls::None, PLAIN).replace("allow_private = true", "");
    let error = try_sink(&table).err().unwrap();
    assert!(error.starts_with("sink.test.host: ") && error.contains("allow_private"), "{error}");
    let ended = sink(&table.replace("127.0.0.1", "localhost")).deliver(&parcel(ANN)).await;
    assert_eq!(end(&ended), End::Dead, "{ended:?}");
    assert!(server.lines().is_empty());
}

#[tokio::test]
async fn a_server_that_is_not_there_is_proven() {
    let server = Server::start(ServerTls::None, &[]).await;
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let table = table(&server, ServerTls::None, PLAIN).replace(&server.address.port().to_string(), &gone.to_string());
    let ended = sink(&table).deliver(&parcel(ANN)).await;
    assert_eq!((end(&ended), health(&ended)), (End::Again(None), Health::Failing));
}

#[tokio::test]
async fn no_value_adds_a_header_a_recipient_or_a_second_mail() {
    let server = Server::start(ServerTls::None, &[]).await;
    let more = "to = [\"{{ payload.name }} <ann@example.org>\"]\ntext = \"Hi {{ payload.name }}\"\n\
                html = \"<p>{{ payload.name }}</p>\"\nheaders = { X-Name = \"{{ payload.name }}\" }";
    let sink = sink(&table(&server, ServerTls::None, more));
    let mut delivered = 0;
    for name in [
        "Ann",
        "Ann\r\nBcc: eve@evil.example",
        "Ann\nBcc: eve@evil.example",
        "Ann\rBcc: eve@evil.example",
        "<eve@evil.example>",
        "eve@evil.example,",
        "\"Ann\" <eve@evil.example>,",
        "Ann> <eve@evil.example",
        "Ann\"",
        "Ann \\",
        "(Ann",
        "Ann\u{85}Bcc: eve@evil.example",
        "Ann\u{2028}Bcc: eve@evil.example",
        "=?utf-8?q?a=0D=0ABcc:_eve@evil.example?=",
        "é ü",
        &"x".repeat(3_000),
    ] {
        let payload = onceward::core::json::Value::object([(
            "name".to_owned(),
            onceward::core::json::Value::String(name.to_owned()),
        )]);
        let ended = sink.deliver(&parcel(&payload.unwrap().canonical())).await;
        match end(&ended) {
            End::Done => delivered += 1,
            other => assert_eq!(other, End::Dead, "{name:?}: {ended:?}"),
        }
        let mails = server.mails();
        assert_eq!(mails.len(), delivered, "{name:?}");
        for mail in mails {
            assert_eq!(mail.recipients, ["<ann@example.org>"], "{name:?}");
            let (head, _) = mail.text.split_once("\n\n").unwrap();
            assert!(!head.lines().any(|line| line.to_ascii_lowercase().starts_with("bcc")), "{head}");
        }
    }
    assert!(delivered >= 2, "{delivered}");
}

#[tokio::test]
async fn a_text_with_dots_and_bare_line_breaks_arrives_as_one_mail() {
    let server = Server::start(ServerTls::None, &[]).await;
    let sink = sink(&table(&server, ServerTls::None, PLAIN));
    let hostile = r#"{"name":"a\r\n.\r\nMAIL FROM:<eve@evil.example>\n.\n.\r.b"}"#;
    let more = table(&server, ServerTls::None, PLAIN).replace("Hello {{ payload.name }}", "Hello");
    assert_eq!(end(&sink.deliver(&parcel(hostile)).await), End::Dead);
    assert_eq!(end(&super::sink(&more).deliver(&parcel(hostile)).await), End::Done);
    let mails = server.mails();
    assert_eq!((mails.len(), server.lines().iter().filter(|line| line.starts_with("MAIL")).count()), (1, 1));
}

#[tokio::test]
async fn settings_of_a_mail_that_cannot_work_are_refused() {
    let server = Server::start(ServerTls::None, &[]).await;
    for (more, field) in [
        ("text = \"a\"", "to"),
        ("to = [\"a@b.example\"]", "text"),
        ("to = [\"{{ nothing }}\"]\ntext = \"a\"", "to"),
        ("to = [\"a@b.example\"]\ntext = \"{{ payload.a\"", "text"),
        ("to = [\"a@b.example\"]\ntext = \"a\"\nheaders = { Bcc = \"x\" }", "headers.Bcc"),
        ("to = [\"a@b.example\"]\ntext = \"a\"\nheaders = { \"a b\" = \"x\" }", "headers.a b"),
        ("to = [\"a@b.example\"]\ntext = \"a\"\nuser = \"x\"", "password"),
        ("to = [\"a@b.example\"]\ntext = \"a\"\ntimeout = \"0s\"", "timeout"),
    ] {
        let error = try_sink(&table(&server, ServerTls::None, more)).err().unwrap_or_else(|| panic!("{more}"));
        assert!(error.starts_with(&format!("sink.test.{field}: ")), "{more}: {error}");
    }
}
