//! Which arguments of a call are credentials, by their names.

/// Words that name a credential.
const WORDS: &[&str] = &[
    "token", "secret", "secrets", "password", "passwd", "passphrase", "passcode", "pass", "pwd", "auth",
    "authorization", "credential", "credentials", "creds", "cookie", "cookies", "jwt", "bearer", "apikey",
    "dsn", "webhook",
];
/// Ends of words that are written together, such as `accesstoken`.
const ENDS: &[&str] = &["token", "secret", "password", "apikey"];
/// What makes a `key` a credential: a key of a table or a dictionary is none.
const KEYS: &[&str] = &[
    "api", "access", "private", "secret", "signing", "encryption", "ssh", "auth", "account", "license",
    "service",
];

/// Whether an argument of this name is a credential. Parts of words do not count: `author` is none.
pub(super) fn names_credential(name: &str) -> bool {
    let words = words_of(name);
    let is_key =
        |pair: &[String]| matches!(pair, [kind, key] if key == "key" && KEYS.contains(&kind.as_str()));
    words.iter().any(|word| WORDS.contains(&word.as_str()) || ENDS.iter().any(|end| word.ends_with(end)))
        || words.windows(2).any(is_key)
}

/// Returns the words of a name such as `api_key`, `apiKey`, `API-KEY` or `APIKey`, in lower case.
fn words_of(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let letters: Vec<char> = name.chars().collect();
    for (at, letter) in letters.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| letters.get(at));
        let starts_word = letter.is_uppercase()
            && (before.is_some_and(|before| !before.is_uppercase())
                || letters.get(at + 1).is_some_and(|next| next.is_lowercase()));
        if starts_word || !letter.is_alphanumeric() {
            words.push(String::new());
        }
        if let (true, Some(word)) = (letter.is_alphanumeric(), words.last_mut()) {
            word.extend(letter.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_found_by_words_and_not_by_parts_of_words() {
        for name in [
            "token", "access_token", "accessToken", "ACCESS-TOKEN", "accesstoken", "password", "dbPassword",
            "api_key", "apiKey", "APIKey", "x-api-key", "authorization", "client_secret", "private_key",
            "sshKey", "Cookie",
        ] {
            assert!(names_credential(name), "{name}");
        }
        for name in [
            "author", "authors", "key", "keys", "keyword", "monkey", "session", "compass", "passenger",
            "max_tokens", "tokenizer", "secretary", "path", "primary_key", "",
        ] {
            assert!(!names_credential(name), "{name}");
        }
    }
}
