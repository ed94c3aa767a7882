//! Lists, shows, counts and settles intents, in the form that a ledger in a file has.

use pyo3::prelude::*;
use serde_json::{Value, json};

use super::RemoteLedger;
use super::address::segment;
use super::client::ApiRequest;
use super::failure::{Refusal, RefusalKind, RemoteError, Trouble};
use super::messages::outcome;
use crate::error::{self, About};
use crate::runtime::wait;
use onceward_core::outcome::Verdict;

/// The largest page of the API.
const PAGE: usize = 200;

/// What a settled intent is based on, and what is said about it.
pub(crate) struct Settlement<'a> {
    pub(crate) operation: &'a str,
    pub(crate) key: &'a str,
    pub(crate) version: u64,
    /// The result as JSON; without it, it did not happen.
    pub(crate) result: Option<&'a [u8]>,
    pub(crate) by: Option<&'a str>,
    pub(crate) note: Option<&'a str>,
}

impl RemoteLedger {
    /// One intent as JSON, or `None`.
    pub(crate) fn get(&self, py: Python<'_>, tenant: &str, operation: &str, key: &str) -> PyResult<Option<String>> {
        self.check_tenant(py, Some(tenant))?;
        let path = format!("/v1/intents/{}/{}?show_keys=true", segment(operation), segment(key));
        match self.ask(py, ApiRequest::get(path))? {
            Ok(found) => Ok(Some(shown(&found["intent"], &found).to_string())),
            Err(Trouble::Refused(Refusal { kind: RefusalKind::NoIntent, .. })) => Ok(None),
            Err(trouble) => Err(RemoteError::from(trouble).raised(py, &self.about())),
        }
    }

    /// The newest intents, as a JSON list.
    pub(crate) fn list(
        &self,
        py: Python<'_>,
        tenant: Option<&str>,
        state: Option<&str>,
        limit: usize,
    ) -> PyResult<String> {
        self.check_tenant(py, tenant)?;
        let state = state.map(|state| format!("&state={}", segment(state))).unwrap_or_default();
        let (mut listed, mut after) = (Vec::new(), String::new());
        while listed.len() < limit {
            let page_size = PAGE.min(limit - listed.len());
            let path = format!("/v1/intents?show_keys=true&limit={page_size}{state}{after}");
            let page = self.answered(py, ApiRequest::get(path))?;
            listed.extend(page["intents"].as_array().into_iter().flatten().map(|one| shown(one, one)));
            match page["next"].as_str().map(|next| format!("&cursor={}", segment(next))) {
                // A server that names the same page again would never end.
                Some(next) if next != after => after = next,
                _ => break,
            }
        }
        Ok(json!(listed).to_string())
    }

    /// Settles an intent.
    pub(crate) fn resolve(&self, py: Python<'_>, tenant: &str, settlement: &Settlement<'_>) -> PyResult<()> {
        self.check_tenant(py, Some(tenant))?;
        let Settlement { operation, key, version, result, by, note } = settlement;
        let resolution = match result {
            Some(body) => json!({ "happened": outcome(Verdict::Success, Some(body)) }),
            None => json!("did_not_happen"),
        };
        let mut request = json!({ "operation": operation, "key": key, "version": version, "resolution": resolution });
        for (name, text) in [("by", by), ("note", note)] {
            if let Some(text) = text {
                request[name] = json!(text);
            }
        }
        let answer = self.answered(py, ApiRequest::post("/v1/resolve", &request))?;
        if answer["result"] == "settled" {
            return Ok(());
        }
        let reason = answer["reason"].as_str().unwrap_or("unknown").replace('_', " ");
        let about = About { operation: (*operation).to_owned(), key: (*key).to_owned(), ..self.about() };
        Err(error::invalid(py, &format!("not settled: {reason}"), &about))
    }

    /// Counters of the tenant since the server was started.
    pub(crate) fn stats(&self, py: Python<'_>) -> PyResult<Vec<(&'static str, u64)>> {
        let answer = self.answered(py, ApiRequest::get("/v1/stats".to_owned()))?;
        let decisions = &answer["decisions"];
        let names =
            [("acquired", "acquired"), ("replayed", "replay"), ("collisions", "collision"), ("unguarded", "unguarded")];
        Ok(names.map(|(name, decision)| (name, decisions[decision].as_u64().unwrap_or(0))).to_vec())
    }

    fn check_tenant(&self, py: Python<'_>, tenant: Option<&str>) -> PyResult<()> {
        match tenant {
            None | Some("default") => Ok(()),
            Some(_) => {
                let why = "the tenant of a ledger behind HTTP is that of its token";
                Err(error::invalid(py, why, &self.about()))
            }
        }
    }

    fn ask(&self, py: Python<'_>, request: ApiRequest) -> PyResult<Result<Value, Trouble>> {
        let client = self.client(py)?;
        wait(py, async move { client.ask_again(&request).await })
    }

    fn answered(&self, py: Python<'_>, request: ApiRequest) -> PyResult<Value> {
        self.ask(py, request)?.map_err(|trouble| RemoteError::from(trouble).raised(py, &self.about()))
    }
}

/// An intent of the API in the form of a record, which `_ledger.py` reads. `whole` is all that the API says.
fn shown(view: &Value, whole: &Value) -> Value {
    let names = ["tenant", "operation", "key"];
    let identity = match view["operation"].is_null() {
        true => Value::Null,
        false => {
            names.iter().map(|name| ((*name).to_owned(), view[name].clone())).collect::<serde_json::Map<_, _>>().into()
        }
    };
    let mut record = json!({ "identity": identity });
    for name in ["attempts", "version", "created_at", "doubt_since", "last_error", "updated_at", "expires_at"] {
        record[name] = view[name].clone();
    }
    json!({ "status": view["state"], "intent": { "record": record, "api": whole } })
}
