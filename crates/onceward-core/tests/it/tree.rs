//! JSON values without a spelling, and random spellings of them, for the properties of canonical JSON, keys and recipes.

use std::collections::BTreeMap;

use proptest::prelude::*;

/// A double represents every decimal of this many digits exactly, so it may be written with a fraction or an exponent.
const MAX_EXACT: i128 = 10_i128.pow(15);

/// A JSON value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tree {
    Null,
    Bool(bool),
    /// Digits times a power of ten.
    Number(i128, i8),
    Text(String),
    List(Vec<Tree>),
    Map(BTreeMap<String, Tree>),
}

pub(crate) fn tree() -> impl Strategy<Value = Tree> {
    leaf().prop_recursive(4, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Tree::List),
            prop::collection::btree_map(any::<String>(), inner, 0..5).prop_map(Tree::Map),
        ]
    })
}

pub(crate) fn leaf() -> impl Strategy<Value = Tree> {
    let around = |middle: i128| (-3..=3_i128).prop_map(move |off| Tree::Number(middle + off, 0));
    prop_oneof![
        1 => Just(Tree::Null),
        1 => any::<bool>().prop_map(Tree::Bool),
        3 => (-999_999_999..=999_999_999_i128, -9..=4_i8).prop_map(|(digits, power)| Tree::Number(digits, power)),
        // Integers keep their digits at any size, even where neighbouring integers are the same double.
        1 => around(1 << 53),
        1 => around(-(1 << 53)),
        1 => around(1 << 64),
        1 => any::<i128>().prop_map(|digits| Tree::Number(digits, 0)),
        3 => any::<String>().prop_map(Tree::Text),
        2 => "[ \t]{0,2}(-?[0-9]{1,3}(\\.[0-9]{0,3})?|[a-cA-CéÉ\u{301}ßİΣ]{0,4})[ \u{a0}]{0,2}".prop_map(Tree::Text),
    ]
}

/// A pair of values that are as similar as possible: one leaf, one name or one length is different.
pub(crate) fn near_miss() -> impl Strategy<Value = (Tree, Tree)> {
    (tree(), any::<u64>()).prop_map(|(tree, at)| {
        let changed = change(&tree, at);
        (tree, changed)
    })
}

fn change(tree: &Tree, at: u64) -> Tree {
    let next = at.rotate_right(9) ^ 0x9E37_79B9_7F4A_7C15;
    let choose = |count: usize| usize::try_from(at % count as u64).unwrap();
    match tree {
        Tree::Null => Tree::Text("null".to_owned()),
        Tree::Bool(bool) => Tree::Bool(!bool),
        Tree::Number(0, _) => [Tree::Null, Tree::Number(1, -9), Tree::Text("0".to_owned())][choose(3)].clone(),
        Tree::Number(digits, power) => [
            Tree::Number(digits.wrapping_add(if *digits == -1 { -1 } else { 1 }), *power),
            Tree::Number(digits.checked_neg().unwrap_or(1), *power),
            Tree::Text(plain(*digits, *power)),
        ][choose(3)]
        .clone(),
        Tree::Text(text) => change_text(text, at),
        Tree::List(items) if items.is_empty() => {
            [Tree::Map(BTreeMap::new()), Tree::List(vec![Tree::Null])][choose(2)].clone()
        }
        Tree::List(items) => {
            let (mut items, place) = (items.clone(), choose(items.len()));
            match at >> 60 {
                0 => drop(items.remove(place)),
                1 => items.push(Tree::Null),
                _ => items[place] = change(&items[place], next),
            }
            Tree::List(items)
        }
        Tree::Map(members) if members.is_empty() => Tree::List(Vec::new()),
        Tree::Map(members) => {
            let mut members = members.clone();
            let name = members.keys().nth(choose(members.len())).unwrap().clone();
            match at >> 60 {
                0 => drop(members.remove(&name)),
                1 => drop(members.insert(format!("{name}'"), Tree::Null)),
                2 => {
                    let member = members.remove(&name).unwrap();
                    members.insert(format!("{name}'"), member);
                }
                _ => {
                    let member = change(&members[&name], next);
                    members.insert(name, member);
                }
            }
            Tree::Map(members)
        }
    }
}

fn change_text(text: &str, at: u64) -> Tree {
    let decomposed = text.replace('é', "e\u{301}");
    Tree::Text(match at % 4 {
        0 => format!("{text} "),
        1 => format!("{text}\u{0}"),
        2 if decomposed != text => decomposed,
        _ => format!("\\{text}"),
    })
}

/// The tree with each number in one form: without zeros at the end of its digits.
pub(crate) fn normal(tree: &Tree) -> Tree {
    match tree {
        Tree::Number(0, _) => Tree::Number(0, 0),
        Tree::Number(digits, power) if digits % 10 == 0 => normal(&Tree::Number(digits / 10, power + 1)),
        Tree::List(items) => Tree::List(items.iter().map(normal).collect()),
        Tree::Map(members) => Tree::Map(members.iter().map(|(name, tree)| (name.clone(), normal(tree))).collect()),
        other => other.clone(),
    }
}

/// The tree with only numbers that a double represents exactly, for parsers that use doubles.
pub(crate) fn within_a_double(tree: &Tree) -> Tree {
    match tree {
        Tree::Number(digits, power) => Tree::Number(digits % MAX_EXACT, *power),
        Tree::List(items) => Tree::List(items.iter().map(within_a_double).collect()),
        Tree::Map(members) => {
            Tree::Map(members.iter().map(|(name, tree)| (name.clone(), within_a_double(tree))).collect())
        }
        other => other.clone(),
    }
}

/// The JSON text of a tree, in one of many equivalent spellings.
pub(crate) fn spelled(tree: &Tree, spelling: u64) -> String {
    let mut text = String::new();
    write(tree, spelling, &mut text);
    text
}

fn write(tree: &Tree, spelling: u64, out: &mut String) {
    let odd = spelling.count_ones() % 2 == 1;
    let mut spelling = spelling;
    let mut next = || {
        spelling = spelling.rotate_left(7).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        spelling
    };
    let space = if odd { " \r\n\t" } else { "" };
    out.push_str(space);
    match tree {
        Tree::Null => out.push_str("null"),
        Tree::Bool(bool) => out.push_str(&bool.to_string()),
        Tree::Number(digits, power) => out.push_str(&number(*digits, *power, next())),
        Tree::Text(text) => write_text(text, next(), out),
        Tree::List(items) => {
            out.push('[');
            for (position, item) in items.iter().enumerate() {
                out.push_str(if position > 0 { "," } else { "" });
                write(item, next(), out);
            }
            out.push_str(space);
            out.push(']');
        }
        Tree::Map(members) => {
            out.push('{');
            let mut members: Vec<_> = members.iter().collect();
            if odd {
                members.reverse();
            }
            for (position, (name, member)) in members.into_iter().enumerate() {
                out.push_str(if position > 0 { "," } else { "" });
                write_text(name, next(), out);
                out.push(':');
                write(member, next(), out);
            }
            out.push('}');
        }
    }
    out.push_str(space);
}

fn number(digits: i128, power: i8, spelling: u64) -> String {
    let plain = plain(digits, power);
    if digits.abs() >= MAX_EXACT / 10 {
        return plain;
    }
    match spelling % 5 {
        0 => format!("{digits}e{power}"),
        1 => format!("{digits}0E{}", power - 1),
        2 if plain.contains('.') => format!("{plain}00"),
        2 => format!("{plain}.0"),
        3 => format!("{digits}.000e+{power}").replace("+-", "-"),
        _ => plain,
    }
}

/// A decimal without an exponent.
pub(crate) fn plain(digits: i128, power: i8) -> String {
    let sign = if digits < 0 { "-" } else { "" };
    let digits = digits.unsigned_abs().to_string();
    let places = usize::from(power.min(0).unsigned_abs());
    if places == 0 {
        let zeros = if digits == "0" { 0 } else { usize::from(power.unsigned_abs()) };
        return format!("{sign}{digits}{}", "0".repeat(zeros));
    }
    let digits = format!("{digits:0>width$}", width = places + 1);
    let (whole, fraction) = digits.split_at(digits.len() - places);
    format!("{sign}{whole}.{fraction}")
}

/// A string as it is, or with as many escapes as possible.
fn write_text(text: &str, spelling: u64, out: &mut String) {
    if spelling.is_multiple_of(3) {
        out.push_str(&serde_json::to_string(text).unwrap());
        return;
    }
    out.push('"');
    for unit in text.encode_utf16() {
        match spelling % 3 {
            1 => out.push_str(&format!("\\u{unit:04X}")),
            _ => out.push_str(&format!("\\u{unit:04x}")),
        }
    }
    out.push('"');
}
