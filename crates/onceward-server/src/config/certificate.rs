//! The files of a certificate, as they are written.

use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::exit::Fault;
use crate::tls::Tls;

/// The files of a certificate.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(crate) struct CertificateFiles {
    /// The certificate chain, as PEM.
    #[schemars(extend("x-type" = "path", "x-default" = "required"))]
    pub(crate) chain: String,
    /// Its private key, as PEM.
    #[schemars(extend("x-type" = "path", "x-default" = "required"))]
    pub(crate) key: String,
}

impl CertificateFiles {
    /// Reads both. A relative path starts from `folder`.
    pub(crate) fn read(&self, folder: &Path) -> Result<Tls, Fault> {
        Tls::read(&folder.join(&self.chain), &folder.join(&self.key))
    }
}
