//! The rules of retries, for clients of Python: what a response proves, when the next attempt is made, and how many retries a
//! downstream gets.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use onceward::clock::{Clock, SystemClock};
use onceward::retry::backoff::{self, Failed, Next};
use onceward::retry::budget::{Account, Settings, Withdrawal};
use onceward::retry::http_status::{self, Downstream, Verdict};
use onceward::retry::retry_after;
use onceward_core::duration;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// What a response says: `success`, `refused`, `failed` or `unknown`; whether waiting or repeating helps; and for how many seconds
/// the downstream asks to wait.
#[pyfunction]
#[pyo3(signature = (status, retry_after, date, honours_key, keeps_server_errors, refusals))]
pub(crate) fn judge_response(
    status: u16,
    retry_after: Option<&str>,
    date: Option<&str>,
    honours_key: bool,
    keeps_server_errors: bool,
    refusals: Vec<u16>,
) -> (&'static str, bool, Option<f64>) {
    let asked = retry_after.and_then(|value| retry_after::parse(value, date, SystemClock.now()));
    // The client gets the response, and follows its redirects.
    let downstream = Downstream { refusals: &refusals, honours_key, keeps_server_errors, ..Downstream::GATEWAY };
    let (verdict, again) = match http_status::judge(status, asked, &downstream) {
        Verdict::Success => ("success", false),
        Verdict::Refused { retry, .. } => ("refused", retry),
        Verdict::FinalFailure => ("failed", false),
        Verdict::MayHaveHappened { retry } => ("unknown", retry),
    };
    (verdict, again, asked.map(|asked| asked.as_secs_f64()))
}

/// When attempts are made again.
#[pyclass(frozen, module = "onceward")]
pub(crate) struct NativeBackoff {
    settings: backoff::Settings,
}

#[pymethods]
impl NativeBackoff {
    #[new]
    #[pyo3(signature = (max_attempts, base, cap, deadline = None))]
    fn new(max_attempts: u32, base: &str, cap: &str, deadline: Option<&str>) -> PyResult<Self> {
        let read = |text: &str| duration::parse(text).map_err(|error| PyValueError::new_err(error.to_string()));
        let deadline = deadline.map(read).transpose()?;
        Ok(Self { settings: backoff::Settings { max_attempts, base: read(base)?, cap: read(cap)?, deadline } })
    }

    /// The seconds to wait before the next attempt; `None` if there is none. `key_known_for` is how much longer the downstream
    /// knows the key of an attempt that may have happened.
    #[pyo3(signature = (attempts, age, retry_after = None, key_known_for = None))]
    fn next(&self, attempts: u32, age: f64, retry_after: Option<f64>, key_known_for: Option<f64>) -> Option<f64> {
        let failed = Failed {
            attempts,
            age: seconds(age),
            retry_after: retry_after.map(seconds),
            key_known_for: key_known_for.map(seconds),
        };
        // Without random numbers, the longest wait: callers must not come back together.
        match backoff::next(&failed, &self.settings, getrandom::u64().unwrap_or(u64::MAX)) {
            Next::After(wait) => Some(wait.as_secs_f64()),
            Next::GiveUp(_) => None,
        }
    }
}

/// The retries that a downstream may still get.
#[pyclass(frozen, module = "onceward")]
pub(crate) struct NativeBudget {
    settings: Settings,
    account: Mutex<Account>,
}

#[pymethods]
impl NativeBudget {
    #[new]
    #[pyo3(signature = (percent = None))]
    fn new(percent: Option<u32>) -> Self {
        let default = Settings::default();
        let settings = Settings { percent: percent.unwrap_or(default.percent), ..default };
        Self { settings, account: Mutex::new(Account::full(&settings, SystemClock.now())) }
    }

    /// A first attempt pays for later retries.
    fn first_attempt(&self) {
        let mut account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        account.first_attempt(&self.settings, SystemClock.now());
    }

    /// Takes the token of a retry: the seconds that it has to wait for one.
    fn withdraw(&self) -> f64 {
        let mut account = self.account.lock().unwrap_or_else(PoisonError::into_inner);
        match account.withdraw(&self.settings, SystemClock.now()) {
            Withdrawal::Granted => 0.0,
            Withdrawal::Refused { retry_after } => retry_after.as_secs_f64(),
        }
    }
}

/// A number of seconds that is not one is none.
fn seconds(number: f64) -> Duration {
    Duration::try_from_secs_f64(number.max(0.0)).unwrap_or_default()
}

/// The seconds of a duration such as `"24h"`.
#[pyfunction]
pub(crate) fn duration_seconds(text: &str) -> PyResult<f64> {
    let read = duration::parse(text).map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(read.as_secs_f64())
}
