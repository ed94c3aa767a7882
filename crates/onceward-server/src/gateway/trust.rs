//! Whose certificates are believed of an upstream: those that the system knows, and those of a private authority.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::exit::Fault;

/// What TLS with upstreams is made with. The system is asked only where there is an upstream to be checked.
pub(super) fn config(asks_system: bool, authority: Option<&Path>) -> Result<ClientConfig, Fault> {
    let mut roots = RootCertStore::empty();
    if asks_system {
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        for error in found.errors {
            tracing::warn!(%error, "some of the system's certificates cannot be read");
        }
    }
    if let Some(path) = authority {
        add(&mut roots, path).map_err(|what| Fault::config(format!("{} cannot be used: {what}", path.display())))?;
    }
    if asks_system && roots.is_empty() {
        return Err(Fault::config(
            "the system knows no certificates, so no https upstream can be believed; name an authority with \
             `upstream_ca` (--upstream-ca)",
        ));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Fault::config(format!("TLS cannot be used: {error}")))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

fn add(roots: &mut RootCertStore, path: &Path) -> Result<(), String> {
    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| error.to_string())?;
    let before = roots.len();
    for certificate in certificates {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.len() > before { Ok(()) } else { Err("it holds no certificate".to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_a_certificate_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ca.pem");
        for (text, what) in [
            ("", "holds no certificate"),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "cannot be used"),
        ] {
            std::fs::write(&file, text).unwrap();
            let told = config(false, Some(&file)).unwrap_err().message;
            assert!(told.contains(what) && told.contains("ca.pem"), "{told}");
        }
        assert!(config(false, Some(&folder.path().join("gone.pem"))).is_err());
        assert!(config(false, None).is_ok());
    }
}
