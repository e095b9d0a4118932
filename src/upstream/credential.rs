//! What looks like a credential: by the name of a value, and by the value itself.

/// Parts of names of variables, headers and options whose values are credentials.
const SENSITIVE: &[&str] = &[
    "key", "token", "secret", "pass", "pwd", "auth", "cred", "cookie", "session", "private", "signature",
    "dsn", "jwt", "bearer", "webhook", "connection_string",
];

/// Returns where the authority of a URL ends. A password with a slash makes the URL invalid, but is still a secret: then what
/// is before the slash is no port.
pub(in crate::upstream) fn end_of_authority(rest: &str) -> usize {
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let has_port =
        rest[..end].rsplit_once(':').is_none_or(|(_, port)| port.bytes().all(|it| it.is_ascii_digit()));
    match rest[end..].find('@') {
        Some(at) if !rest[..end].contains('@') && !has_port => {
            let host = end + at;
            rest[host..].find(['/', '?', '#']).map_or(rest.len(), |end| host + end)
        }
        _ => end,
    }
}

/// Whether the value of a variable, of a header or in a query is a credential.
pub fn is_credential(name: &str, value: &str) -> bool {
    is_secret(name, value) || has_password(value)
}

pub(in crate::upstream) fn is_secret(name: &str, value: &str) -> bool {
    is_sensitive(name) || looks_random(value) || is_key_block(value)
}

/// Whether a value is a URL with a user.
fn has_password(value: &str) -> bool {
    let rest = value.split_once("://").map(|(_, rest)| rest);
    rest.is_some_and(|rest| rest[..end_of_authority(rest)].contains('@'))
}

/// Returns the parts of a name such as `--api-key` or `GITHUB_TOKEN`.
pub(in crate::upstream) fn words_of(name: &str) -> impl Iterator<Item = &str> {
    name.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty())
}

/// Whether a part of a name is no word of any language, but a credential.
pub(in crate::upstream) fn is_no_word(word: &str) -> bool {
    word.len() >= 16 || (word.len() >= 8 && word.bytes().filter(u8::is_ascii_digit).count() >= 2)
}

pub(in crate::upstream) fn is_sensitive(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    SENSITIVE.iter().any(|part| name.contains(part))
}

/// Whether a value is a key in the text form of RFC 7468.
fn is_key_block(value: &str) -> bool {
    value.contains("-----BEGIN ")
}

/// Whether a value is one long word of letters of both cases and digits, or of hexadecimal digits, or has a long part of letters
/// and digits, unlike a name or a path.
pub(in crate::upstream) fn looks_random(value: &str) -> bool {
    let count = |is: fn(&u8) -> bool| value.bytes().filter(is).count();
    let is_mixed = value.len() >= 20
        && count(u8::is_ascii_digit) >= 3
        && count(u8::is_ascii_uppercase) >= 3
        && count(u8::is_ascii_lowercase) >= 3;
    let is_hex = count(u8::is_ascii_hexdigit) >= 32;
    let is_part = |part: &str| {
        let digits = part.bytes().filter(u8::is_ascii_digit).count();
        part.len() >= 16 && digits >= 3 && part.len() - digits >= 3
    };
    value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        && (is_mixed || is_hex || words_of(value).any(is_part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_versions_do_not_look_like_credentials() {
        for value in [
            "mcp-server-git==2026.10.19",
            "/home/me/Project1234/SomeWhereElse",
            "project-1234-staging-eu-west-1",
        ] {
            assert!(!looks_random(value), "{value}");
        }
        for value in [
            "ghp_0123456789abcdefXYZ",
            "0123456789abcdef0123456789abcdef",
            "2f1c9a52-0c5f-4a51-9b1c-3a8f0f6f2b10",
            "sk-abcdef0123456789",
        ] {
            assert!(looks_random(value), "{value}");
        }
    }
}
