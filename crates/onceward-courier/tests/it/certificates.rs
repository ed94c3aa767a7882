//! A private certificate authority, and a server certificate for `localhost` that it has signed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, LazyLock};

use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::server::TlsStream;

static FILES: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("names"), "subjectAltName=DNS:localhost,IP:127.0.0.1\n").unwrap();
    let new_key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    openssl(folder.path(), &format!("req -x509 {new_key} -keyout ca.key -out ca.pem -subj /CN=test -days 2"));
    openssl(folder.path(), &format!("req {new_key} -keyout key.pem -out request.pem -subj /CN=localhost"));
    let signed = "-CA ca.pem -CAkey ca.key -CAcreateserial -days 2";
    openssl(folder.path(), &format!("x509 -req -in request.pem -out chain.pem -extfile names {signed}"));
    folder
});

fn openssl(folder: &Path, arguments: &str) {
    let ended = Command::new("openssl").args(arguments.split(' ')).current_dir(folder).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

/// The CA file.
pub(super) fn authority() -> PathBuf {
    FILES.path().join("ca.pem")
}

/// Performs the handshake of a server.
pub(super) async fn accept(stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
    let chain = CertificateDer::from_pem_file(FILES.path().join("chain.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(FILES.path().join("key.pem")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config = config.with_single_cert(vec![chain], key).unwrap();
    TlsAcceptor::from(Arc::new(config)).accept(stream).await
}
