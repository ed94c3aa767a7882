//! Connections over TLS: which servers are trusted, and what callers are told about the others.

use onceward::store::Store;
use onceward::store::postgres::{Postgres, migrate};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::server::Database;

/// A database that its user can reach over TLS only, and the authority that signed the server's certificate.
struct Encrypted {
    /// The URL without parameters.
    address: String,
    authority: String,
    /// Dropped last.
    _database: Database,
}

impl Encrypted {
    async fn create() -> Option<Self> {
        let (Ok(url), Ok(authority)) = (std::env::var("ONCEWARD_TEST_POSTGRES_TLS"), std::env::var("ONCEWARD_TEST_CA"))
        else {
            assert!(std::env::var_os("CI").is_none(), "ONCEWARD_TEST_POSTGRES_TLS names no server");
            println!("skipped: ONCEWARD_TEST_POSTGRES_TLS names no server");
            return None;
        };
        let database = Database::empty("ONCEWARD_TEST_POSTGRES").await?;
        let (_, name) = database.url.rsplit_once('/').unwrap();
        let (credentials, _) = url.rsplit_once('@').unwrap();
        let (_, user) = credentials.split_once("://").unwrap();
        let user = user.split(':').next().unwrap();
        database.run(&format!("GRANT CREATE ON DATABASE {name} TO {user}")).await.unwrap();
        let (address, _) = url.rsplit_once('/').unwrap();
        let address = format!("{address}/{name}");
        Some(Self { address, authority, _database: database })
    }

    fn with(&self, parameters: &str) -> String {
        format!("{}?{parameters}", self.address)
    }

    fn checked(&self) -> String {
        self.with(&format!("sslmode=verify-full&sslrootcert={}", self.authority))
    }
}

/// Why a server is refused. It answers, so that no policy lets work run without it.
async fn refusal(url: &str) -> String {
    let opened = Postgres::open(url).await.map(drop).unwrap_err();
    let migrated = migrate(url, false).await.unwrap_err();
    for error in [&opened, &migrated] {
        assert!(!error.is_out_of_reach(), "{error}");
    }
    migrated.to_string()
}

#[tokio::test]
async fn a_server_with_a_certificate_of_the_right_authority_is_trusted() {
    let Some(encrypted) = Encrypted::create().await else { return };
    migrate(&encrypted.checked(), false).await.unwrap();
    let store = Postgres::open(&encrypted.checked()).await.unwrap();
    store.check().await.unwrap();
    store.close().await;
    let without_name = encrypted.with(&format!("sslmode=verify-ca&sslrootcert={}", encrypted.authority));
    Postgres::open(&without_name).await.unwrap().close().await;
    Postgres::open(&encrypted.with("sslmode=require")).await.unwrap().close().await;
}

#[tokio::test]
async fn a_server_of_an_unknown_authority_is_refused() {
    let Some(encrypted) = Encrypted::create().await else { return };
    // The authorities of the system do not include that of the tests.
    let why = refusal(&encrypted.with("sslmode=verify-full")).await;
    assert!(why.contains("certificate"), "{why}");
    let why = refusal(&encrypted.with("sslmode=verify-ca")).await;
    assert!(why.contains("certificate"), "{why}");
}

#[tokio::test]
async fn a_certificate_for_another_host_is_refused_unless_the_name_does_not_count() {
    let Some(encrypted) = Encrypted::create().await else { return };
    let (_, rest) = encrypted.address.rsplit_once('@').unwrap();
    let server = rest.split('/').next().unwrap().to_owned();
    // An address of this machine that the certificate does not name.
    let listener = TcpListener::bind("127.0.0.2:0").await.unwrap();
    let other = listener.local_addr().unwrap().to_string();
    let target = server.clone();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut server = TcpStream::connect(&target).await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut client, &mut server).await });
        }
    });
    let why = refusal(&encrypted.checked().replace(&server, &other)).await;
    assert!(why.contains("certificate") && why.contains("127.0.0.2"), "{why}");
    let without_name = encrypted.checked().replace(&server, &other).replace("verify-full", "verify-ca");
    migrate(&without_name, false).await.unwrap();
}

#[tokio::test]
async fn a_server_that_requires_encryption_says_so_to_a_client_without_it() {
    let Some(encrypted) = Encrypted::create().await else { return };
    let why = refusal(&encrypted.with("sslmode=disable")).await;
    assert!(why.contains("no encryption"), "{why}");
    assert!(!why.contains("test-password"), "{why}");
}

#[tokio::test]
async fn a_server_that_offers_no_encryption_is_refused_where_it_is_required() {
    let Some(plain) = Database::empty("ONCEWARD_TEST_POSTGRES_SYNC").await else { return };
    let why = refusal(&format!("{}?sslmode=require", plain.url)).await;
    assert!(why.contains("does not support TLS"), "{why}");
}

/// The host that answers may be the one with the records, in whatever order they are tried.
#[tokio::test]
async fn a_host_that_is_not_there_does_not_hide_one_that_is_refused() {
    let Some(encrypted) = Encrypted::create().await else { return };
    let (credentials, rest) = encrypted.address.rsplit_once('@').unwrap();
    let (server, name) = rest.split_once('/').unwrap();
    // A port on which nothing listens.
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    for hosts in [format!("{server},{gone}"), format!("{gone},{server}")] {
        let why = refusal(&format!("{credentials}@{hosts}/{name}?sslmode=verify-full")).await;
        assert!(why.contains("certificate"), "{why}");
    }
    let url = format!("{credentials}@{gone},{gone}/{name}?sslmode=verify-full");
    assert!(migrate(&url, false).await.unwrap_err().is_out_of_reach());
}

/// A server that restarts closes connections at any moment.
#[tokio::test]
async fn a_server_that_closes_the_connection_during_the_handshake_is_out_of_reach() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            // Reads the request for TLS and agrees to it.
            let _ = client.read_exact(&mut [0; 8]).await;
            let _ = client.write_all(b"S").await;
        }
    });
    let error = migrate(&format!("postgres://ana@{address}/app?sslmode=require"), false).await.unwrap_err();
    assert!(error.is_out_of_reach(), "{error}");
}
