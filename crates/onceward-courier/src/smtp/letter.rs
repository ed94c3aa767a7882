//! Makes the mail of an entry from the templates of a sink.

use lettre::Message;
use lettre::address::{Address, Envelope};
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Mailbox, MessageBuilder, MultiPart, SinglePart};
use onceward::core::hash::digest;
use onceward::courier::Parcel;
use onceward_runtime::config::SmtpSink as Settings;
use onceward_runtime::exit::Fault;

use crate::open;
use crate::template::{Escaping, Template, Values};

/// More recipients than most servers take for one mail (RFC 5321 asks for 100).
const MAX_RECIPIENTS: usize = 1_000;

/// Headers that the sink writes itself.
const OWN: [&str; 10] = [
    "from",
    "to",
    "cc",
    "bcc",
    "subject",
    "message-id",
    "date",
    "mime-version",
    "content-type",
    "content-transfer-encoding",
];

/// A local part that can be a part of a `Message-ID` as it is.
const MAX_ID: usize = 128;

/// A mail, ready to be sent.
pub(super) struct Letter {
    /// The `Message-ID`: the same on every attempt.
    pub(super) id: String,
    pub(super) sender: String,
    pub(super) recipients: Vec<String>,
    pub(super) message: Vec<u8>,
}

/// The templates of a mail.
#[derive(Clone, Debug)]
pub(super) struct LetterTemplate {
    from: Template,
    to: Vec<Template>,
    cc: Vec<Template>,
    bcc: Vec<Template>,
    subject: Template,
    text: Option<Template>,
    html: Option<Template>,
    headers: Vec<(HeaderName, Template)>,
}

impl LetterTemplate {
    pub(super) fn new(at: &open::SinkTable<'_>, settings: &Settings) -> Result<Self, Fault> {
        let parse = |field: &str, source: &str, place: Escaping| {
            Template::parse(field, source, place).map_err(|what| at.wrong(field, what))
        };
        let addresses = |field: &str, sources: &[String]| {
            sources.iter().map(|source| parse(field, source, Escaping::Line)).collect::<Result<Vec<_>, _>>()
        };
        if settings.from.is_empty() {
            return Err(at.wrong("from", "the sender is required"));
        }
        if settings.to.is_empty() && settings.cc.is_empty() && settings.bcc.is_empty() {
            return Err(at.wrong("to", "a recipient is required"));
        }
        if settings.text.is_none() && settings.html.is_none() {
            return Err(at.wrong("text", "a mail needs a `text`, an `html`, or both"));
        }
        let headers = settings.headers.iter().map(|(name, source)| {
            let field = format!("headers.{name}");
            if OWN.contains(&name.to_ascii_lowercase().as_str()) {
                return Err(at.wrong(&field, "the sink writes this header itself"));
            }
            let is_token = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
            let header = HeaderName::new_from_ascii(name.clone()).ok().filter(|_| is_token && !name.is_empty());
            let header = header.ok_or_else(|| at.wrong(&field, "not the name of a header"))?;
            Ok((header, parse(&field, source, Escaping::Line)?))
        });
        Ok(Self {
            from: parse("from", &settings.from, Escaping::Line)?,
            to: addresses("to", &settings.to)?,
            cc: addresses("cc", &settings.cc)?,
            bcc: addresses("bcc", &settings.bcc)?,
            subject: parse("subject", &settings.subject, Escaping::Line)?,
            text: settings.text.as_ref().map(|text| parse("text", text, Escaping::Text)).transpose()?,
            html: settings.html.as_ref().map(|html| parse("html", html, Escaping::Markup)).transpose()?,
            headers: headers.collect::<Result<_, _>>()?,
        })
    }

    /// The mail of an entry. The error says which template failed.
    pub(super) fn render(&self, parcel: &Parcel, values: &Values) -> Result<Letter, String> {
        let from = mailbox("from", &self.from, values)?;
        let all = |field, templates: &[Template]| {
            templates.iter().map(|template| mailbox(field, template, values)).collect::<Result<Vec<_>, _>>()
        };
        let (to, cc, bcc) = (all("to", &self.to)?, all("cc", &self.cc)?, all("bcc", &self.bcc)?);
        let id = message_id(&parcel.downstream_key, &from.email);
        let mut recipients: Vec<Address> = Vec::new();
        for mailbox in to.iter().chain(&cc).chain(&bcc) {
            if !recipients.contains(&mailbox.email) {
                recipients.push(mailbox.email.clone());
            }
        }
        if recipients.len() > MAX_RECIPIENTS {
            return Err(format!("the mail has more than {MAX_RECIPIENTS} recipients"));
        }
        let envelope = Envelope::new(Some(from.email.clone()), recipients.clone());
        let mut builder = Message::builder().envelope(envelope.map_err(|error| error.to_string())?);
        builder = builder.from(from.clone()).date_now().message_id(Some(id.clone()));
        builder = to.into_iter().fold(builder, MessageBuilder::to);
        // Recipients of a blind copy are in the envelope only.
        builder = cc.into_iter().fold(builder, MessageBuilder::cc);
        builder = builder.subject(self.subject.render(values)?);
        for (name, template) in &self.headers {
            builder = builder.raw_header(HeaderValue::new(name.clone(), template.render(values)?));
        }
        let message = self.with_body(builder, values)?.formatted();
        let recipients = recipients.iter().map(ToString::to_string).collect();
        Ok(Letter { id, sender: from.email.to_string(), recipients, message })
    }

    fn with_body(&self, builder: MessageBuilder, values: &Values) -> Result<Message, String> {
        let part = |kind: ContentType, template: &Template| {
            Ok::<_, String>(SinglePart::builder().header(kind).body(template.render(values)?))
        };
        let text = self.text.as_ref().map(|text| part(ContentType::TEXT_PLAIN, text)).transpose()?;
        let html = self.html.as_ref().map(|html| part(ContentType::TEXT_HTML, html)).transpose()?;
        let message = match (text, html) {
            (Some(text), Some(html)) => builder.multipart(MultiPart::alternative().singlepart(text).singlepart(html)),
            (Some(part), None) | (None, Some(part)) => builder.singlepart(part),
            (None, None) => return Err("the mail has no text".to_owned()),
        };
        message.map_err(|_| "the mail cannot be built".to_owned())
    }
}

/// The only address that a template may come to. A value cannot add another one.
fn mailbox(field: &str, template: &Template, values: &Values) -> Result<Mailbox, String> {
    let text = template.render(values)?;
    let invalid = |what: &str| format!("the template of `{field}` failed: {what}");
    let mailbox: Mailbox = text.parse().map_err(|_| invalid("its result is not an address"))?;
    let address: &str = mailbox.email.as_ref();
    // A server would need SMTPUTF8 for the one, and could misread the other.
    if !address.is_ascii() || address.bytes().any(|byte| byte.is_ascii_whitespace() || b"<>\"\\,;()".contains(&byte)) {
        return Err(invalid("its result is an address with characters that are not supported"));
    }
    Ok(mailbox)
}

fn message_id(key: &str, from: &Address) -> String {
    let is_plain = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    let local = match is_plain && !key.is_empty() && key.len() <= MAX_ID {
        true => key.to_owned(),
        false => digest(key.as_bytes()).to_hex(),
    };
    format!("<{local}@{}>", from.domain())
}

/// An address without the name of the person.
pub(super) fn masked(address: &str) -> String {
    match address.rsplit_once('@') {
        Some((local, domain)) => format!("{}…@{domain}", local.chars().next().unwrap_or_default()),
        None => "…".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_id_is_made_of_the_key() {
        let from: Address = "shop@example.com".parse().unwrap();
        assert_eq!(message_id("idem_v1_0af", &from), "<idem_v1_0af@example.com>");
        let hashed = message_id("a> <b@c", &from);
        assert!(hashed.len() == 64 + "<@example.com>".len() && hashed == message_id("a> <b@c", &from), "{hashed}");
    }

    #[test]
    fn a_masked_address_keeps_its_domain() {
        assert_eq!(masked("ann.smith@example.com"), "a…@example.com");
        assert_eq!(masked("ann"), "…");
    }
}
