//! The CA certificates for https upstreams: those of the system and those of a private authority.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::exit::Fault;

/// The TLS configuration for upstreams. Loads the system's certificates only if there is an https upstream.
pub(super) fn config(asks_system: bool, authority: Option<&Path>) -> Result<ClientConfig, Fault> {
    let roots = roots(asks_system, authority)?;
    if asks_system && roots.is_empty() {
        return Err(Fault::config(
            "the system has no CA certificates, so no https upstream can be verified; name a CA file with `upstream_ca` \
             (--upstream-ca)",
        ));
    }
    client(roots)
}

/// The certificates to trust: those of the system, if asked for, and those in a file.
pub(crate) fn roots(asks_system: bool, authority: Option<&Path>) -> Result<RootCertStore, Fault> {
    let mut roots = RootCertStore::empty();
    if asks_system {
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        for error in found.errors {
            tracing::warn!(%error, "failed to read some of the system's certificates");
        }
    }
    if let Some(path) = authority {
        add(&mut roots, path).map_err(|what| Fault::config(format!("cannot use {}: {what}", path.display())))?;
    }
    Ok(roots)
}

/// A TLS client without a certificate of its own.
pub(crate) fn client(roots: impl Into<Arc<RootCertStore>>) -> Result<ClientConfig, Fault> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Fault::config(format!("cannot set up TLS: {error}")))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn add(roots: &mut RootCertStore, path: &Path) -> Result<(), String> {
    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| error.to_string())?;
    let before = roots.len();
    for certificate in certificates {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.len() > before { Ok(()) } else { Err("it contains no certificate".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_certificate_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        for (text, what) in [
            ("", "contains no certificate"),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "cannot use"),
        ] {
            std::fs::write(&file, text).unwrap();
            let told = config(false, Some(&file)).unwrap_err().message;
            assert!(told.contains(what) && told.contains("ca.pem"), "{told}");
        }
        assert!(config(false, Some(&folder.path().join("gone.pem"))).is_err());
        assert!(config(false, None).is_ok());
    }
}
