//! A Python value as JSON that has one canonical form. JSON's own types are read here; `_keys.plain` turns the other documented
//! types (dates, decimals, models, …) into these. Anything else is refused: a text made by `str()` could change between runs.

use onceward_core::json::{MAX_DEPTH, Number, Pointer, Value};
use onceward_core::recipe::{Recipe, Window};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

use crate::error::{self, About};
use crate::runtime::python;

/// How often the value at one place may be converted: an enumeration of dates takes two steps.
const MAX_CONVERSIONS: usize = 8;

static PLAIN: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static DIGITS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// The value of a Python object. An error names the place of the value that is refused.
pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    Reader { depth: 0, conversions: 0, path: Vec::new(), wanted: None }.read(object)
}

/// The intent of a call, without what its recipe does not look at: a client or a set among the arguments is accepted if the key
/// does not contain it. What is refused is a mistake in the call, so its error says that nothing ran.
pub(crate) fn of_intent(intent: &Bound<'_, PyAny>, operation: &str, recipe: Option<&Recipe>) -> PyResult<Value> {
    let py = intent.py();
    let wanted = recipe.map(|recipe| {
        let window = recipe.window().and_then(Window::field);
        recipe.key().iter().chain(recipe.match_fields()).chain(window).map(Pointer::segments).collect()
    });
    Reader { depth: 0, conversions: 0, path: Vec::new(), wanted }.read(intent).map_err(|error| {
        if !is_refusal(py, &error) {
            return error;
        }
        let about = About { operation: operation.to_owned(), ..About::default() };
        let refused = error::named(py, "InvalidValue", &error.value(py).to_string(), &about);
        refused.set_cause(py, Some(error));
        refused
    })
}

struct Reader<'a> {
    depth: usize,
    /// How often the value at this place was converted.
    conversions: usize,
    /// The names of the members that lead to this place, as far as they are compared with what is wanted.
    path: Vec<String>,
    /// The places that are read; `None` for all of them.
    wanted: Option<Vec<&'a [String]>>,
}

impl Reader<'_> {
    fn read(&mut self, object: &Bound<'_, PyAny>) -> PyResult<Value> {
        // Subclasses of these types, such as enumerations of strings, have rules of their own.
        if let Ok(text) = object.cast_exact::<PyString>() {
            return Ok(Value::String(text_of(text)?));
        }
        if object.is_none() {
            return Ok(Value::Null);
        }
        if let Ok(truth) = object.cast_exact::<PyBool>() {
            return Ok(Value::Bool(truth.is_true()));
        }
        if let Ok(integer) = object.cast_exact::<PyInt>() {
            return integer_of(integer);
        }
        if let Ok(float) = object.cast_exact::<PyFloat>() {
            let refusal = || PyValueError::new_err("a number is infinite or not a number");
            return Ok(Value::Number(Number::from_f64(float.value()).ok_or_else(refusal)?));
        }
        if let Ok(dict) = object.cast_exact::<PyDict>() {
            return self.nested(|reader| reader.object(dict));
        }
        if let Ok(list) = object.cast_exact::<PyList>() {
            return self.nested(|reader| reader.array(list.iter()));
        }
        if let Ok(tuple) = object.cast_exact::<PyTuple>() {
            return self.nested(|reader| reader.array(tuple.iter()));
        }
        let plain = python(object.py(), &PLAIN, "onceward._keys", "plain")?.call1((object,))?;
        self.converted(|reader| reader.read(&plain))
    }

    /// Reads what a value was converted to, which is not a level deeper. An enumeration may hold another one, but not itself.
    fn converted(&mut self, read: impl FnOnce(&mut Self) -> PyResult<Value>) -> PyResult<Value> {
        if self.conversions >= MAX_CONVERSIONS {
            return Err(PyValueError::new_err("a value is converted to a value that has to be converted again"));
        }
        self.conversions += 1;
        let value = read(self);
        self.conversions -= 1;
        value
    }

    /// Reads one level deeper. The limit also ends values that contain themselves.
    fn nested(&mut self, read: impl FnOnce(&mut Self) -> PyResult<Value>) -> PyResult<Value> {
        if self.depth >= MAX_DEPTH {
            return Err(PyValueError::new_err(format!("the value is nested deeper than {MAX_DEPTH} levels")));
        }
        self.depth += 1;
        let conversions = std::mem::take(&mut self.conversions);
        let value = read(self);
        self.conversions = conversions;
        self.depth -= 1;
        value
    }

    fn object(&mut self, dict: &Bound<'_, PyDict>) -> PyResult<Value> {
        let mut members = Vec::with_capacity(dict.len());
        for (name, value) in dict.iter() {
            let Ok(name) = name.cast_exact::<PyString>() else {
                let kind = name.get_type().name()?;
                return Err(PyTypeError::new_err(format!("a name in a dict must be a str, not {kind}")));
            };
            let name = text_of(name)?;
            if !self.is_wanted(&name) {
                continue;
            }
            self.path.push(name);
            let read = self.read(&value);
            let name = self.path.pop().unwrap_or_default();
            members.push((name.clone(), read.map_err(|error| inside(value.py(), &name, error))?));
        }
        Value::object(members).map_err(|name| PyValueError::new_err(format!("two members are called {name}")))
    }

    fn array<'py>(&mut self, items: impl Iterator<Item = Bound<'py, PyAny>>) -> PyResult<Value> {
        // All of a list is read: leaving items out would change the places of the others.
        let (mut values, wanted) = (Vec::new(), self.wanted.take());
        for (index, item) in items.enumerate() {
            values.push(self.read(&item).map_err(|error| inside(item.py(), &index.to_string(), error))?);
        }
        self.wanted = wanted;
        Ok(Value::Array(values))
    }

    /// Whether a member of this object is, contains or is part of a place that is wanted.
    fn is_wanted(&self, name: &str) -> bool {
        let Some(wanted) = &self.wanted else { return true };
        wanted.iter().any(|place| {
            let mut here = self.path.iter().map(String::as_str).chain([name]);
            place.iter().all(|segment| here.next().is_none_or(|one| one == segment))
        })
    }
}

/// Whether a value was refused here. Subclasses, which code of the user may raise, need not take one text.
fn is_refusal(py: Python<'_>, error: &PyErr) -> bool {
    let kind = error.get_type(py);
    kind.is(py.get_type::<PyTypeError>()) || kind.is(py.get_type::<PyValueError>())
}

/// The error with the place of the value in front.
fn inside(py: Python<'_>, place: &str, error: PyErr) -> PyErr {
    if !is_refusal(py, &error) {
        return error;
    }
    let kind = error.get_type(py);
    let place = place.replace('~', "~0").replace('/', "~1");
    let text = error.value(py).to_string();
    let text = match text.strip_prefix('/') {
        Some(rest) => format!("/{place}/{rest}"),
        None => format!("/{place}: {text}"),
    };
    PyErr::from_type(kind, text)
}

fn text_of(text: &Bound<'_, PyString>) -> PyResult<String> {
    let refusal = |_| PyValueError::new_err("a text contains half of a surrogate pair, which is not a character");
    text.to_str().map(ToOwned::to_owned).map_err(refusal)
}

fn integer_of(integer: &Bound<'_, PyInt>) -> PyResult<Value> {
    if let Ok(small) = integer.extract::<i64>() {
        return Ok(Value::Number(Number::from(small)));
    }
    let digits = python(integer.py(), &DIGITS, "onceward._keys", "digits")?.call1((integer,))?.extract::<String>()?;
    Value::parse(digits.as_bytes()).map_err(|error| PyValueError::new_err(error.to_string()))
}
