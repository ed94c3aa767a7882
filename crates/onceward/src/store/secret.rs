//! Passwords in store URLs: in place, or by reference as `env:NAME` and `file:PATH`. Errors name the place, never the secret.

/// A file with a secret holds one line; a larger file is something else.
const MAX_FILE_SIZE: u64 = 64 * 1024;

/// What messages show instead of a password.
const HIDDEN: &str = "…";

/// The secret that a text is or refers to. A line break at the end of a file is not part of it.
pub(crate) fn resolve(text: &str) -> Result<String, String> {
    if let Some(name) = text.strip_prefix("env:") {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err("`env:` must be followed by the name of a variable".to_owned());
        }
        return std::env::var(name).map_err(|_| format!("the variable {name} is not set"));
    }
    if let Some(path) = text.strip_prefix("file:") {
        let about = |reason: &dyn std::fmt::Display| format!("cannot read the secret in {path}: {reason}");
        let size = std::fs::metadata(path).map_err(|error| about(&error))?.len();
        if size > MAX_FILE_SIZE {
            return Err(about(&"the file is too large for a secret"));
        }
        let secret = std::fs::read_to_string(path).map_err(|error| about(&error))?;
        let line = secret.strip_suffix('\n').unwrap_or(&secret);
        return Ok(line.strip_suffix('\r').unwrap_or(line).to_owned());
    }
    // A command that a message has shown.
    if text == HIDDEN {
        return Err(format!(
            "`{HIDDEN}` stands for a password that is not shown: write it, or a reference such as env:PGPASSWORD"
        ));
    }
    Ok(text.to_owned())
}

/// Decodes `%XX`. `None` if an escape is incomplete or the result is not UTF-8.
pub(crate) fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let mut digit = || (rest.next()? as char).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_place_is_itself() {
        assert_eq!(resolve("hunter2").unwrap(), "hunter2");
        assert_eq!(resolve("").unwrap(), "");
    }

    #[test]
    fn the_sign_for_a_hidden_password_is_not_one() {
        assert!(resolve("…").unwrap_err().contains("stands for a password that is not shown"));
    }

    #[test]
    fn a_variable_is_read_and_a_missing_one_is_named() {
        assert_eq!(resolve("env:PATH").unwrap(), std::env::var("PATH").unwrap());
        assert!(resolve("env:ONCEWARD_NO_SUCH_VARIABLE").unwrap_err().contains("ONCEWARD_NO_SUCH_VARIABLE"));
        assert!(resolve("env:").is_err());
    }

    #[test]
    fn a_file_is_read_without_its_last_line_break() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        for (content, secret) in [("hunter2\n", "hunter2"), ("hunter2\r\n", "hunter2"), ("a\nb\n\n", "a\nb\n")] {
            std::fs::write(&path, content).unwrap();
            assert_eq!(resolve(&format!("file:{}", path.display())).unwrap(), secret);
        }
        let large = "hunter2".repeat(10_000);
        std::fs::write(&path, large).unwrap();
        let wrong = resolve(&format!("file:{}", path.display())).unwrap_err();
        assert!(wrong.contains("too large") && !wrong.contains("hunter2"), "{wrong}");
        assert!(resolve("file:/nowhere/at/all").unwrap_err().contains("/nowhere/at/all"));
    }

    #[test]
    fn escapes_are_decoded_and_incomplete_ones_refused() {
        assert_eq!(percent_decoded("a%20b%C3%BC%2F").unwrap(), "a bü/");
        for wrong in ["%", "%2", "%zz", "%ff"] {
            assert_eq!(percent_decoded(wrong), None, "{wrong}");
        }
    }
}
