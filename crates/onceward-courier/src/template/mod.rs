//! Templates: texts of the configuration with values of an entry in them. They reach no file, variable or network, and are
//! limited in time and size.
//!
//! - `values`: what a template can name. `place`: how values are escaped where they stand. `filters`: what it can call.
//!
//! The engine does not write values into the text: it marks them, as JSON between two control characters that no template can
//! contain. Once the text is complete, each value is escaped for the place where it stands, so no value can end a string, add a
//! header or leave its segment of a path.

mod escaping;
mod filters;
mod values;

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State, UndefinedBehavior, Value};

pub(crate) use escaping::Escaping;
pub(crate) use values::Values;

/// What a template may write: twice as much as an API takes for one request, as a rule. A payload that goes as it is may be
/// larger.
const MAX_OUTPUT: usize = 2 * 1024 * 1024;

/// The steps that a template may take: enough for a list of some ten thousand elements, and a fraction of a second.
const MAX_STEPS: u64 = 500_000;

/// A longer template is a program, which belongs into a command.
const MAX_SOURCE: usize = 64 * 1024;

/// Around each value in the raw output.
const BEGIN: char = '\u{1}';
const END: char = '\u{2}';

/// The only template of its environment.
const NAME: &str = "template";

/// A parsed template.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    /// The setting that contains it, for messages.
    setting: String,
    environment: Arc<Environment<'static>>,
    place: Escaping,
    /// What it names, such as `payload.customer.id`.
    names: Vec<String>,
}

impl Template {
    /// Parses a template. The error says what is wrong with it.
    pub(crate) fn parse(setting: &str, source: &str, place: Escaping) -> Result<Self, String> {
        if source.len() > MAX_SOURCE {
            return Err(format!("the template is longer than {MAX_SOURCE} bytes"));
        }
        if source.contains([BEGIN, END]) {
            return Err("the template contains a control character".to_owned());
        }
        let mut environment = environment(UndefinedBehavior::Strict);
        let template = environment.add_template_owned(NAME, source.to_owned());
        template.map_err(|error| at_line("the template cannot be read", &error))?;
        let names = environment.get_template(NAME).map(|template| template.undeclared_variables(true));
        let mut names: Vec<String> = names.map_err(|error| error.kind().to_string())?.into_iter().collect();
        names.sort();
        if let Some(unknown) = names.iter().find(|name| !Values::knows(first(name))) {
            return Err(format!("unknown value `{unknown}`; a template can use {}", Values::NAMES.join(", ")));
        }
        check_calls(source)?;
        Ok(Self { setting: setting.to_owned(), environment: Arc::new(environment), place, names })
    }

    /// How its values are escaped.
    pub(crate) fn place(&self) -> Escaping {
        self.place
    }

    /// Renders the template. The error names the setting and repeats nothing of the values.
    pub(crate) fn render(&self, values: &Values) -> Result<String, String> {
        let raw = self.raw(values).map_err(|what| format!("the template of `{}` failed: {what}", self.setting))?;
        self.place.fill(&raw).map_err(|what| format!("the template of `{}` failed: {what}", self.setting))
    }

    fn raw(&self, values: &Values) -> Result<String, String> {
        let template = self.environment.get_template(NAME).map_err(|error| error.kind().to_string())?;
        let mut output = Limited(Vec::new());
        match template.render_captured_to(values.root(), &mut output) {
            Ok(_) => String::from_utf8(output.0).map_err(|error| error.to_string()),
            Err(error) if error.kind() == ErrorKind::UndefinedError => {
                let missing = self.names.iter().find(|name| !values.has(name));
                Err(match missing {
                    Some(name) => format!("`{name}` is missing"),
                    None => at_line("a value is missing", &error),
                })
            }
            Err(error) if error.kind() == ErrorKind::WriteFailure => {
                Err(format!("its text is longer than {MAX_OUTPUT} bytes"))
            }
            Err(error) if error.kind() == ErrorKind::OutOfFuel => Err(format!("it takes more than {MAX_STEPS} steps")),
            Err(error) => Err(at_line("an expression is invalid", &error)),
        }
    }
}

/// Finds calls of filters, tests and functions that do not exist: the engine finds them only when it runs.
fn check_calls(source: &str) -> Result<(), String> {
    let mut lenient = environment(UndefinedBehavior::Chainable);
    lenient.add_template_owned(NAME, source.to_owned()).map_err(|error| error.kind().to_string())?;
    let tried = lenient.get_template(NAME).and_then(|template| template.render_captured_to((), io::sink()));
    match tried {
        Err(error) if is_unknown_call(error.kind()) => Err(at_line("the template cannot be used", &error)),
        _ => Ok(()),
    }
}

fn is_unknown_call(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::UnknownFilter | ErrorKind::UnknownTest | ErrorKind::UnknownFunction)
}

fn environment(undefined: UndefinedBehavior) -> Environment<'static> {
    let mut environment = Environment::empty();
    environment.set_undefined_behavior(undefined);
    environment.set_fuel(Some(MAX_STEPS));
    // So that the engine marks a block that `set` captured, which the formatter refuses.
    environment.set_auto_escape_callback(|_| AutoEscape::Custom(Cow::Borrowed("place")));
    environment.set_formatter(mark);
    filters::add(&mut environment);
    environment
}

/// Writes a value in its marks.
fn mark(output: &mut Output<'_>, _: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    if value.is_safe() {
        let what = "a block that `set` or `filter` captured cannot be used";
        return Err(Error::new(ErrorKind::InvalidOperation, what));
    }
    if value.is_undefined() {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    let mut json = String::new();
    values::write_json(value, &mut json, MAX_OUTPUT)?;
    write!(output, "{BEGIN}{json}{END}").map_err(|_| Error::from(ErrorKind::WriteFailure))
}

/// The kind of an error, without its text, which may repeat values.
fn at_line(what: &str, error: &Error) -> String {
    let line = error.line().map(|line| format!(" at line {line}")).unwrap_or_default();
    format!("{what}{line}: {}", error.kind())
}

fn first(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// An output that ends at the limit.
struct Limited(Vec<u8>);

impl io::Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_OUTPUT {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
