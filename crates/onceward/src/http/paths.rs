//! Normalises the percent-encoding of paths, so that two spellings of one path are equal.

use std::borrow::Cow;

/// The normalised path: characters that need no escape are decoded, and escapes use capital letters (RFC 3986, 6.2.2).
pub fn normalised(path: &str) -> Cow<'_, str> {
    if !path.contains('%') {
        return Cow::Borrowed(path);
    }
    let mut plain = String::with_capacity(path.len());
    let mut rest = path;
    while let Some(at) = rest.find('%') {
        plain.push_str(&rest[..at]);
        rest = &rest[at..];
        let code = rest.get(1..3).filter(|code| code.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let Some(byte) = code.and_then(|code| u8::from_str_radix(code, 16).ok()) else {
            // A percent sign that does not start an escape.
            plain.push('%');
            rest = &rest[1..];
            continue;
        };
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            plain.push(char::from(byte));
        } else {
            plain.push_str(&rest[..3].to_ascii_uppercase());
        }
        rest = &rest[3..];
    }
    plain.push_str(rest);
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings_of_one_path_are_normalised_to_one() {
        for (path, expected) in [
            ("/v1/charges", "/v1/charges"),
            ("/v1/%63harges", "/v1/charges"),
            ("/a%2fb%2Fc", "/a%2Fb%2Fc"),
            ("/%7euser/%2e%2E/x", "/~user/../x"),
            ("/50%", "/50%"),
            ("/%zz/%4", "/%zz/%4"),
            ("/%%41", "/%A"),
            ("/%C3%A4", "/%C3%A4"),
        ] {
            assert_eq!(normalised(path), expected);
        }
    }
}
