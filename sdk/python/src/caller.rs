//! Whose request an HTTP client sends: judges the headers as the gateway judges those of the requests that it receives.

use http::Request;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName};
use onceward::http::identity_headers::{self, identifying_values};
use onceward::http::tenant::{TenantNames, of_authorization};
use onceward_core::hash::Fields;
use onceward_runtime::proxy::CREDENTIALS;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::http::header_map;

/// Headers in which a request names the account of a provider that it is for.
const ACCOUNTS: [&str; 4] = ["openai-organization", "openai-project", "stripe-account", "stripe-context"];

/// Why a request is refused, and what the program can do.
const CHANGES: &str = "the header Authorization has a credential that changes (a JSON Web Token, or a signature of one request) or that \
                       cannot be read, so it does not say whose intent this is. Say it with tenant=: a name, or a function of \
                       the request";

/// A digest of the account that the headers of a request name, and of its credential unless the tenant is known; `None` if there is
/// neither. Headers in `listed` do not count. Refuses a credential that another attempt would not have.
#[pyfunction]
pub(crate) fn caller_digest(
    headers: &Bound<'_, PyAny>,
    listed: Vec<String>,
    has_tenant: bool,
) -> PyResult<Option<String>> {
    let (headers, listed) = (read(headers)?, names(listed)?);
    let credentials = CREDENTIALS.into_iter().filter(|_| !has_tenant);
    let counted = credentials.chain(ACCOUNTS).map(HeaderName::from_static);
    let counted: Vec<_> = counted.filter(|name| headers.contains_key(name) && !listed.contains(name)).collect();
    let mut all = Fields::new().field(b"http caller v1");
    for name in &counted {
        let values = match *name == AUTHORIZATION {
            true => vec![credential(&headers)?.into_bytes()],
            false => identifying_values(&headers, name),
        };
        let with_name = all.field(name.as_str()).field(values.len().to_be_bytes());
        all = values.into_iter().fold(with_name, Fields::field);
    }
    Ok((!counted.is_empty()).then(|| all.digest().to_hex()))
}

/// The credential as the gateway makes a tenant of it.
fn credential(headers: &HeaderMap) -> PyResult<String> {
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.headers.clone_from(headers);
    of_authorization(&parts, &TenantNames::default(), "").map_err(|_| PyValueError::new_err(CHANGES))
}

/// The tenant's name combined with the values of the `listed` headers, as for `identity_headers` of a gateway.
#[pyfunction]
pub(crate) fn tenant_with_headers(tenant: &str, headers: &Bound<'_, PyAny>, listed: Vec<String>) -> PyResult<String> {
    Ok(identity_headers::tenant(tenant, &read(headers)?, &names(listed)?, &TenantNames::default()))
}

fn read(headers: &Bound<'_, PyAny>) -> PyResult<HeaderMap> {
    header_map(headers)?.map_err(PyValueError::new_err)
}

fn names(listed: Vec<String>) -> PyResult<Vec<HeaderName>> {
    let name = |text: String| {
        HeaderName::try_from(&text).map_err(|_| PyValueError::new_err(format!("invalid header name {text:?}")))
    };
    listed.into_iter().map(name).collect()
}
