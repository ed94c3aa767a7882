//! Makes the request of an entry from the templates of a sink.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderName, HeaderValue};
use http::{HeaderMap, Method};
use onceward::courier::Parcel;
use onceward_runtime::config::{self, HeaderSource};
use onceward_runtime::egress::{AddressRules, Request, Target};
use onceward_runtime::exit::Fault;

use super::key_place::KeyPlace;
use crate::open::{self, Surroundings};
use crate::template::{Escaping, Template, Values};

const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// Headers whose values are credentials, which must not be in a configuration.
const CREDENTIALS: [&str; 6] = ["authorization", "cookie", "x-api-key", "api-key", "x-auth-token", "apikey"];

/// A request with templates.
#[derive(Clone, Debug)]
pub(super) struct RequestTemplate {
    method: Method,
    url: Template,
    /// Scheme, host and port. No value can change them.
    origin: String,
    headers: Vec<(HeaderName, HeaderText)>,
    body: Body,
}

#[derive(Clone)]
enum HeaderText {
    Template(Template),
    Secret(HeaderValue),
}

impl fmt::Debug for HeaderText {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Template(_) => "Template",
            Self::Secret(_) => "Secret",
        })
    }
}

#[derive(Clone, Debug)]
enum Body {
    None,
    /// As it is.
    Payload,
    Template(Template),
}

impl RequestTemplate {
    /// The request that delivers an entry.
    pub(super) fn of_sink(
        at: &open::SinkTable<'_>,
        settings: &config::HttpSink,
        rules: &AddressRules,
        around: &Surroundings,
    ) -> Result<Self, Fault> {
        let method = parse_method(settings.method.as_deref(), Method::POST).map_err(|what| at.wrong("method", what))?;
        let written = Written { prefix: "", url: &settings.url, headers: &settings.headers, body: &settings.body };
        let mut request = Self::new(at, method, &written, rules, around)?;
        let has_no_content = request.method == Method::GET || request.method == Method::HEAD;
        if matches!(request.body, Body::None) && !has_no_content {
            request.body = Body::Payload;
        }
        Ok(request)
    }

    /// The request that asks about an entry. It carries the headers of the sink, too.
    pub(super) fn of_probe(
        at: &open::SinkTable<'_>,
        settings: &config::HttpProbe,
        sink: &config::HttpSink,
        rules: &AddressRules,
        around: &Surroundings,
    ) -> Result<Self, Fault> {
        let method = parse_method(settings.method.as_deref(), Method::GET);
        let method = method.map_err(|what| at.wrong("probe.method", what))?;
        let inherited = sink.headers.iter().filter(|(name, _)| !name.eq_ignore_ascii_case(CONTENT_TYPE.as_str()));
        let own = |name: &String| settings.headers.keys().any(|own| own.eq_ignore_ascii_case(name));
        let inherited = inherited.filter(|(name, _)| !own(name));
        let headers = inherited.chain(&settings.headers).map(|(name, source)| (name.clone(), source.clone()));
        let headers: BTreeMap<_, _> = headers.collect();
        let written = Written { prefix: "probe.", url: &settings.url, headers: &headers, body: &settings.body };
        Self::new(at, method, &written, rules, around)
    }

    fn new(
        at: &open::SinkTable<'_>,
        method: Method,
        written: &Written<'_>,
        rules: &AddressRules,
        around: &Surroundings,
    ) -> Result<Self, Fault> {
        let field = |name: &str| format!("{}{name}", written.prefix);
        let wrong_url = |what: String| at.wrong(&field("url"), what);
        let origin = origin(written.url, rules).map_err(wrong_url)?;
        let url = Template::parse(&field("url"), written.url, Escaping::Url).map_err(wrong_url)?;
        let mut headers = Vec::new();
        let mut content_type = None;
        for (name, source) in written.headers {
            let path = field(&format!("headers.{name}"));
            let wrong = |what: String| at.wrong(&path, what);
            let header =
                HeaderName::try_from(name.as_str()).map_err(|_| wrong("not the name of a header".to_owned()))?;
            if headers.iter().any(|(other, _)| *other == header) {
                return Err(wrong("the header is there twice".to_owned()));
            }
            let text = HeaderText::new(&path, &header, source, around).map_err(wrong)?;
            if header == CONTENT_TYPE {
                content_type =
                    Some(fixed_text(source).ok_or_else(|| wrong("must be a text without values".to_owned()))?);
            }
            headers.push((header, text));
        }
        let body = match written.body {
            None => Body::None,
            Some(source) => {
                let wrong = |what: String| at.wrong(&field("body"), what);
                let place = place(content_type).map_err(wrong)?;
                Body::Template(Template::parse(&field("body"), source, place).map_err(wrong)?)
            }
        };
        Ok(Self { method, url, origin, headers, body })
    }

    /// Scheme, host and port.
    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// The error says why the key cannot be put there.
    pub(super) fn check_key_place(&self, place: &KeyPlace) -> Result<(), String> {
        match place {
            KeyPlace::Header(key) if self.headers.iter().any(|(name, _)| name == key) => Err(format!(
                "the header `{key}` is among the headers, too; write downstream_key = \"none\" to keep that one"
            )),
            KeyPlace::Body(_) => match &self.body {
                Body::None => Err("a request without a body cannot carry the key in it".to_owned()),
                Body::Template(template) if template.place() != Escaping::Json => {
                    Err("only a JSON body can carry the key; put {{ downstream_key }} into the template".to_owned())
                }
                Body::Payload | Body::Template(_) => Ok(()),
            },
            KeyPlace::Header(_) | KeyPlace::None => Ok(()),
        }
    }

    /// The request of an entry. The error names the template that failed.
    pub(super) fn render(&self, parcel: &Parcel, values: &Values) -> Result<Request, String> {
        let mut headers = HeaderMap::new();
        for (name, text) in &self.headers {
            headers.insert(name, text.render(name, values)?);
        }
        let body = match &self.body {
            Body::None => Bytes::new(),
            Body::Payload => parcel.payload.clone(),
            Body::Template(template) => template.render(values)?.into(),
        };
        if !matches!(self.body, Body::None) {
            headers.entry(CONTENT_TYPE).or_insert(JSON);
        }
        let url = self.url.render(values)?;
        Ok(Request { method: self.method.clone(), url, headers, body, timeout: None })
    }
}

/// The settings that the requests of a sink and of its probe have in common.
struct Written<'a> {
    prefix: &'a str,
    url: &'a str,
    headers: &'a BTreeMap<String, HeaderSource>,
    body: &'a Option<String>,
}

impl HeaderText {
    fn new(path: &str, name: &HeaderName, source: &HeaderSource, around: &Surroundings) -> Result<Self, String> {
        match source {
            HeaderSource::Template(_) if CREDENTIALS.contains(&name.as_str()) => Err(
                "a credential must not be in the file itself: write \"env:NAME\", \"file:PATH\" or { secret = \"env:NAME\", \
                 prefix = \"Bearer \" }"
                    .to_owned(),
            ),
            HeaderSource::Template(source) => Template::parse(path, source, Escaping::Line).map(Self::Template),
            HeaderSource::Secret { secret, prefix } => {
                let text = format!("{prefix}{}", secret.text(&around.folder)?);
                let value = HeaderValue::try_from(text);
                let mut value = value.map_err(|_| "the secret contains a character that no header can".to_owned())?;
                value.set_sensitive(true);
                Ok(Self::Secret(value))
            }
        }
    }

    fn render(&self, name: &HeaderName, values: &Values) -> Result<HeaderValue, String> {
        match self {
            Self::Secret(value) => Ok(value.clone()),
            // Bytes outside ASCII mean different texts to different servers.
            Self::Template(template) => {
                let value =
                    HeaderValue::from_str(&template.render(values)?).ok().filter(|value| value.to_str().is_ok());
                value.ok_or_else(|| format!("the header `{name}` contains a character that is not ASCII"))
            }
        }
    }
}

fn parse_method(text: Option<&str>, default: Method) -> Result<Method, String> {
    let Some(text) = text else { return Ok(default) };
    match Method::from_bytes(text.as_bytes()) {
        Ok(Method::CONNECT | Method::TRACE) => Err("CONNECT and TRACE are not supported".to_owned()),
        // Methods are case-sensitive, and no API has one in lower case.
        Ok(method) if text.bytes().all(|byte| !byte.is_ascii_lowercase()) => Ok(method),
        _ => Err("not a method; write for example \"POST\"".to_owned()),
    }
}

/// Scheme, host and port, which must be in the template as they are.
fn origin(url: &str, rules: &AddressRules) -> Result<String, String> {
    if url.is_empty() {
        return Err("a URL is required".to_owned());
    }
    let literal =
        url.split("{{").next().and_then(|text| text.split("{%").next()).and_then(|text| text.split("{#").next());
    let literal = literal.unwrap_or_default();
    let host = literal.find("://").map(|at| at + "://".len());
    let end = host.and_then(|host| literal[host..].find(['/', '?']).map(|end| host + end));
    let end = match end {
        Some(end) => end,
        None if literal.len() == url.len() => url.len(),
        None => {
            return Err("scheme, host and port must be written out: only path and query can contain values".to_owned());
        }
    };
    let parsed = |text: &str| Target::parse(text, rules).map_err(|refusal| refusal.to_string());
    if literal.len() == url.len() {
        parsed(url)?;
    }
    Ok(parsed(&url[..end])?.to_string())
}

/// The text of a header that contains no value.
fn fixed_text(source: &HeaderSource) -> Option<&str> {
    match source {
        HeaderSource::Template(text) if !text.contains("{{") && !text.contains("{%") => Some(text),
        _ => None,
    }
}

/// How the values in a body are escaped.
fn place(content_type: Option<&str>) -> Result<Escaping, String> {
    let Some(content_type) = content_type else { return Ok(Escaping::Json) };
    let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        "application/json" => Ok(Escaping::Json),
        "application/x-www-form-urlencoded" => Ok(Escaping::Form),
        "application/xml" | "text/xml" | "text/html" => Ok(Escaping::Markup),
        "text/plain" => Ok(Escaping::Text),
        json if json.ends_with("+json") => Ok(Escaping::Json),
        xml if xml.ends_with("+xml") => Ok(Escaping::Markup),
        _ => Err(format!("values cannot be escaped for the content type {essence:?}; send the payload as it is")),
    }
}
