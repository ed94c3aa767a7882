//! Receives webhooks: verifies the signature, records the event durably, and only then answers. A courier delivers it later, so
//! that a provider never waits for the work, and a redelivered event is recorded once.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Response, StatusCode, header};
use axum::routing::post;
use http_body_util::{BodyExt, Limited};
use onceward::clock::{Clock, SystemClock};
use onceward::core::policy::{LARGEST_PAYLOAD, Retention};
use onceward::{EnqueueOptions, Enqueued, Error, Ledger};
use onceward_runtime::config::InboxSettings;

use super::signature::{ReceivedWebhook, Refused, verify};

/// How long an event is remembered at the least: providers redeliver for up to a month.
const REMEMBERED_FOR: Duration = Duration::from_secs(35 * 24 * 60 * 60);

/// How long a provider may take to send its body. They give up on their side after 10 to 30 seconds.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// One address for webhooks.
#[derive(Debug)]
struct Inbox {
    ledger: Ledger,
    settings: InboxSettings,
}

/// The routes of all inboxes.
pub fn router(ledger: &Ledger, inboxes: Vec<InboxSettings>) -> Router {
    inboxes.into_iter().fold(Router::new(), |router, settings| {
        let path = settings.path.clone();
        let inbox = Arc::new(Inbox { ledger: ledger.clone(), settings });
        router.route(&path, post(receive).with_state(inbox))
    })
}

async fn receive(State(inbox): State<Arc<Inbox>>, headers: HeaderMap, body: Body) -> Response<Body> {
    let reading = Limited::new(body, LARGEST_PAYLOAD).collect();
    let body = match tokio::time::timeout(BODY_TIMEOUT, reading).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
            return answer(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large");
        }
        Ok(Err(_)) => return answer(StatusCode::BAD_REQUEST, "the body could not be read"),
        Err(_) => return answer(StatusCode::REQUEST_TIMEOUT, "timed out reading the body"),
    };
    let webhook = ReceivedWebhook { headers: &headers, body: &body, now: SystemClock.now() };
    let verified = match verify(&inbox.settings.signing, &webhook) {
        Ok(verified) => verified,
        Err(refused) => return inbox.refuse(&refused),
    };
    if let Some(challenge) = verified.challenge {
        return answer(StatusCode::OK, &challenge);
    }
    match inbox.record(verified.key.as_str(), verified.fingerprint, body.to_vec()).await {
        Ok(Enqueued::Created) => answer(StatusCode::OK, "recorded"),
        Ok(Enqueued::Existing(_)) => answer(StatusCode::OK, "recorded before"),
        // The provider sends it again later.
        Err(error) => {
            tracing::error!(path = inbox.settings.path, %error, "a webhook could not be recorded");
            answer(StatusCode::SERVICE_UNAVAILABLE, "the event could not be recorded; send it again")
        }
    }
}

impl Inbox {
    async fn record(
        &self,
        key: &str,
        fingerprint: onceward::core::fingerprint::Fingerprint,
        body: Vec<u8>,
    ) -> Result<Enqueued, Error> {
        let operation = self.ledger.operation(self.settings.operation.as_str());
        let mut call = operation.tenant(self.settings.tenant.as_str()).key(key).call()?;
        call.fingerprint = fingerprint;
        let policy = Arc::make_mut(&mut call.policy);
        if policy.kept_for().is_some_and(|kept| kept < REMEMBERED_FOR) {
            policy.retention = Some(Retention::For(REMEMBERED_FOR));
        }
        self.ledger.enqueue(&call, body, EnqueueOptions::default()).await
    }

    fn refuse(&self, refused: &Refused) -> Response<Body> {
        let (path, kind) = (&self.settings.path, refused.kind());
        // An event with the right signature that cannot be identified would be lost: the operator has to know.
        match refused.is_genuine() {
            true => tracing::error!(path, kind, "a genuine webhook was refused: {refused}"),
            false => tracing::warn!(path, kind, "a webhook was refused: {refused}"),
        }
        let status = if refused.is_genuine() { StatusCode::UNPROCESSABLE_ENTITY } else { StatusCode::UNAUTHORIZED };
        answer(status, "the webhook was refused")
    }
}

fn answer(status: StatusCode, text: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(text.to_owned()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
