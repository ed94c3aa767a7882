//! The sink `smtp`: one mail for each entry.
//!
//! - `letter`: makes the mail of an entry from the templates.
//! - `dialogue`: hands the mail to the server. `wire`: lines and replies.

mod dialogue;
mod letter;
mod wire;

use std::time::Duration;

use onceward::courier::{Health, Parcel, Sink, SinkResult, async_trait};
use onceward::outcome::{Outcome, Verdict};
use onceward_runtime::config::{SmtpSink as Settings, SmtpTls};
use onceward_runtime::egress::Dialer;
use onceward_runtime::exit::Fault;
use tokio::time::Instant;

use self::dialogue::{Handed, Login, Server, Step};
use self::letter::{Letter, LetterTemplate};
use self::wire::Reply;
use crate::open::{SinkTable, Surroundings, address_rules};
use crate::template::Values;

/// For resolving, connecting and the TLS handshake together.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends a mail for each entry.
#[derive(Debug)]
pub struct SmtpSink {
    server: Server,
    letter: LetterTemplate,
    timeout: Duration,
}

impl SmtpSink {
    /// Checks the settings and reads the password. Connects to nothing.
    pub fn new(name: &str, settings: &Settings, around: &Surroundings) -> Result<Self, Fault> {
        let at = SinkTable(name);
        let tls = settings.tls.unwrap_or_default();
        let port = settings.port.unwrap_or(match tls {
            SmtpTls::Starttls => 587,
            SmtpTls::Implicit => 465,
            SmtpTls::None => 25,
        });
        if settings.host.is_empty() {
            return Err(at.wrong("host", "the name of a mail server is required"));
        }
        let rules = address_rules(&at, settings.allow_private, None)?;
        let trust = around.trust(&at, settings.ca_file.as_deref())?;
        let dialer = Dialer::new((&settings.host, port), rules, &trust, around.resolver.clone());
        let dialer = dialer.map_err(|fault| at.wrong("host", fault.message))?;
        let timeout = settings.timeout();
        if timeout.is_zero() {
            return Err(at.wrong("timeout", "a mail needs more time than none"));
        }
        let server = Server { dialer, tls, login: login(&at, settings, tls, around)? };
        Ok(Self { server, letter: LetterTemplate::new(&at, settings)?, timeout })
    }

    /// What the end of the dialogue says about the attempt.
    fn attempt(handed: Handed, letter: &Letter) -> SinkResult {
        let refused = |error, again, health| SinkResult::Refused { error, retry_after: None, again, health };
        match handed {
            Handed::NotSent(why) => {
                let health = if why.is_refused() { Health::Working } else { Health::Failing };
                refused(why.to_string(), !why.is_refused(), health)
            }
            Handed::Broken(why) => refused(why, true, Health::Failing),
            Handed::Lost(error) => SinkResult::Unknown { error, retry_after: None, health: Health::Failing },
            Handed::Rejected { step, reply } => rejected(step, &reply),
            Handed::Accepted { reply, refused } if refused.is_empty() => {
                SinkResult::Ended(outcome(Verdict::Success, &reply).with_reference(Some(letter.id.clone())))
            }
            // Some recipients have the mail, and others do not.
            Handed::Accepted { refused, .. } => {
                let (refused, all) = (refused.join(", "), letter.recipients.len());
                let error =
                    format!("the server took the mail, but not for all of its {all} recipients; refused: {refused}");
                SinkResult::Unknown { error, retry_after: None, health: Health::Working }
            }
        }
    }
}

#[async_trait]
impl Sink for SmtpSink {
    async fn deliver(&self, parcel: &Parcel) -> SinkResult {
        let deadline = Instant::now() + self.timeout;
        match self.letter.render(parcel, &Values::of(parcel)) {
            Ok(letter) => Self::attempt(self.server.hand_over(&letter, deadline).await, &letter),
            Err(error) => SinkResult::Refused { error, retry_after: None, again: false, health: Health::Working },
        }
    }
}

/// A reply that refuses proves that the server did not take the mail (RFC 5321, 4.2.5 and 6.1). 4yz means later. 5yz about the
/// mail itself is final, as 4xx is in HTTP; about the connection or the login, it is about the caller, as 401 is.
fn rejected(step: Step, reply: &Reply) -> SinkResult {
    let error = format!("the mail server answered {} {step}", reply.code);
    let is_about_caller = !step.is_about_mail() || matches!(reply.code, 530 | 534 | 535 | 538);
    match reply.code {
        500..=599 if is_about_caller => {
            SinkResult::Refused { error, retry_after: None, again: false, health: Health::Working }
        }
        500..=599 => SinkResult::Ended(outcome(Verdict::Failure, reply)),
        // One mailbox is busy or over its limit; the server works.
        400..=499 if step == Step::Recipients => {
            SinkResult::Refused { error, retry_after: None, again: true, health: Health::Working }
        }
        _ => SinkResult::Refused { error, retry_after: None, again: true, health: Health::Failing },
    }
}

fn outcome(verdict: Verdict, reply: &Reply) -> Outcome {
    Outcome::of(verdict, "text/plain", reply.text.clone()).with_status(i32::from(reply.code))
}

fn login(at: &SinkTable<'_>, settings: &Settings, tls: SmtpTls, around: &Surroundings) -> Result<Option<Login>, Fault> {
    match (&settings.user, &settings.password) {
        (None, None) => Ok(None),
        (Some(_), None) => Err(at.wrong("password", "a user needs a password: write \"env:NAME\" or \"file:PATH\"")),
        (None, Some(_)) => Err(at.wrong("user", "a password needs a user")),
        (Some(_), Some(_)) if tls == SmtpTls::None => {
            Err(at.wrong("tls", "a password would be sent in plain text; write \"starttls\" or \"implicit\""))
        }
        (Some(user), Some(password)) => {
            let password = password.text(&around.folder).map_err(|what| at.wrong("password", what))?;
            Ok(Some(Login::new(user, &password)))
        }
    }
}
