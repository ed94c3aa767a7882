//! The CA certificates that an https server is verified with: those of the system, and those of a file.

use std::path::Path;
use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// Certificates, read once: a forked child uses them too.
pub(super) struct Authorities {
    roots: Arc<RootCertStore>,
}

impl Authorities {
    /// Reads the system's certificates only for an https server. `ca` is a PEM file with more.
    pub(super) fn load(is_secure: bool, ca: Option<&Path>) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        if ca.is_some() && !is_secure {
            return Err("ca= is for a ledger behind https://".to_owned());
        }
        if let Some(path) = ca {
            add(&mut roots, path).map_err(|what| format!("cannot use the CA file {}: {what}", path.display()))?;
        }
        if is_secure {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if roots.is_empty() {
                return Err("the system has no CA certificates; name a CA file with ca=".to_owned());
            }
        }
        Ok(Self { roots: Arc::new(roots) })
    }

    /// A configuration of its own for each process: it caches sessions.
    pub(super) fn config(&self) -> Result<ClientConfig, String> {
        let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| format!("cannot set up TLS: {error}"))?;
        Ok(builder.with_root_certificates(Arc::clone(&self.roots)).with_no_client_auth())
    }
}

fn add(roots: &mut RootCertStore, path: &Path) -> Result<(), String> {
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| error.to_string())? {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() { Err("it contains no certificate".to_owned()) } else { Ok(()) }
}
