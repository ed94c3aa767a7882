//! The filters and tests of templates: those whose work and result are bounded by their input.

use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, Value, filters, tests};

use super::MAX_OUTPUT;

pub(super) fn add(environment: &mut Environment<'_>) {
    environment.add_filter("default", filters::default);
    environment.add_filter("lower", filters::lower);
    environment.add_filter("upper", filters::upper);
    environment.add_filter("capitalize", filters::capitalize);
    environment.add_filter("title", filters::title);
    environment.add_filter("trim", filters::trim);
    environment.add_filter("length", filters::length);
    environment.add_filter("first", filters::first);
    environment.add_filter("last", filters::last);
    environment.add_filter("items", filters::items);
    environment.add_filter("int", filters::int);
    environment.add_filter("float", filters::float);
    environment.add_filter("round", filters::round);
    environment.add_filter("abs", filters::abs);
    environment.add_filter("string", filters::string);
    environment.add_filter("join", join);
    environment.add_test("defined", tests::is_defined);
    environment.add_test("undefined", tests::is_undefined);
    environment.add_test("none", tests::is_none);
    environment.add_test("string", tests::is_string);
    environment.add_test("number", tests::is_number);
    environment.add_test("mapping", tests::is_mapping);
    environment.add_test("sequence", tests::is_sequence);
    environment.add_test("startingwith", tests::is_startingwith);
    environment.add_test("endingwith", tests::is_endingwith);
    environment.add_test("in", tests::is_in);
}

/// Joins the texts of a list. Unlike the engine's own filter, it stops at the limit: a long separator in a payload would
/// otherwise fill the memory.
fn join(list: &Value, separator: Option<&str>) -> Result<String, Error> {
    let mut joined = String::new();
    for (index, element) in list.try_iter()?.enumerate() {
        if index > 0 {
            joined.push_str(separator.unwrap_or_default());
        }
        match element.kind() {
            ValueKind::String | ValueKind::Number | ValueKind::Bool => joined.push_str(&element.to_string()),
            _ => return Err(Error::new(ErrorKind::InvalidOperation, "only texts and numbers can be joined")),
        }
        if joined.len() > MAX_OUTPUT {
            return Err(Error::from(ErrorKind::WriteFailure));
        }
    }
    Ok(joined)
}
