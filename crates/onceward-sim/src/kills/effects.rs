//! The file of effects: one line for each, written by the effect itself, in one append. It outlives every process.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

/// The file of effects.
#[derive(Clone, Debug)]
pub struct Effects(PathBuf);

impl Effects {
    pub fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The effect of a key takes place: this line is the effect. The value is the answer to its client.
    pub fn happen(&self, key: &str, value: &str) {
        // A line that a kill has torn ends before the next one begins.
        let line = format!("\n{key}\t{value}\n");
        let file = OpenOptions::new().append(true).create(true).open(&self.0);
        file.and_then(|mut file| file.write_all(line.as_bytes())).expect("an effect can be written down");
    }

    /// From now on no fault is planned, so that everything left can end.
    pub fn calm_down(&self) {
        std::fs::write(self.calm(), "").expect("the folder can be written");
    }

    /// Whether faults are over.
    pub fn is_calm(&self) -> bool {
        self.calm().exists()
    }

    fn calm(&self) -> PathBuf {
        self.0.with_extension("calm")
    }

    /// Everything that happened, by key.
    pub fn read(&self) -> BTreeMap<String, Vec<String>> {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (key, value) in text.lines().filter_map(|line| line.split_once('\t')) {
            found.entry(key.to_owned()).or_default().push(value.to_owned());
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn effects_are_found_by_key_and_a_torn_line_hides_none() {
        let folder = tempfile::tempdir().unwrap();
        let effects = Effects::at(&folder.path().join("effects"));
        effects.happen("a", "1");
        std::fs::OpenOptions::new().append(true).open(effects.path()).unwrap().write_all(b"\nb").unwrap();
        effects.happen("a", "2");
        effects.happen("c", "3");
        let expected = [("a", vec!["1", "2"]), ("c", vec!["3"])];
        let expected = expected.map(|(key, values)| (key.to_owned(), values.into_iter().map(str::to_owned).collect()));
        assert_eq!(effects.read(), BTreeMap::from(expected));
    }
}
