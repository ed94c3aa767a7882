//! The files of a TLS certificate.

use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::exit::Fault;
use crate::net::tls::Tls;

/// The files of a TLS certificate.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct CertificateFiles {
    /// The certificate chain, in PEM form.
    #[schemars(extend("x-type" = "path", "x-default" = "required"))]
    pub chain: String,
    /// The private key, in PEM form.
    #[schemars(extend("x-type" = "path", "x-default" = "required"))]
    pub key: String,
}

impl CertificateFiles {
    /// Reads both files. A relative path starts at `folder`.
    pub fn read(&self, folder: &Path) -> Result<Tls, Fault> {
        Tls::read(&folder.join(&self.chain), &folder.join(&self.key))
    }
}
