//! The credentials of one server, and their removal from texts.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use crate::upstream::credential::{
    end_of_authority, is_no_word, is_secret, is_sensitive, looks_random, words_of,
};
use crate::upstream::discovery::{Auth, Definition, DocumentPlace, Launch, OpenApi};
use crate::upstream::login::Bearer;

/// What is shown for a value without a name.
const HIDDEN: &str = "argument";
/// Shorter values are too common to be replaced in text.
const SHORTEST: usize = 6;
/// Everything but the unreserved characters of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Values that must not be shown, each with the name to show instead.
#[derive(Clone, Default)]
pub(in crate::upstream) struct Secrets {
    values: Vec<(String, String)>,
    /// The login of the user, whose credentials change.
    login: Option<Bearer>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.values.iter().map(|(_, name)| name)).finish()
    }
}

impl Secrets {
    /// Returns the credentials of a definition.
    pub(in crate::upstream) fn of(definition: &Definition) -> Self {
        let mut secrets = Self::default();
        for (name, value) in &definition.filled_in {
            if is_secret(name, value) {
                secrets.add(value, name);
            }
        }
        match &definition.launch {
            Launch::Stdio { command, args, env, .. } => {
                // Some users write the whole command line there.
                let words: Vec<String> = command.split_whitespace().map(String::from).collect();
                secrets.add_arguments(&words);
                for (name, value) in env {
                    if is_secret(name, value) {
                        secrets.add(value, name);
                    }
                    secrets.add_url(value, name);
                    secrets.add_header(value, false);
                }
                secrets.add_arguments(args);
            }
            Launch::Http { url, headers, options, .. } => {
                secrets.add_url(url, "url");
                if let Some(secret) = &options.oauth.client_secret {
                    secrets.add(secret, "clientSecret");
                }
                for (name, value) in headers {
                    secrets.add_credentials(value, name);
                }
            }
            Launch::OpenApi(openapi) => secrets.add_openapi(openapi),
        }
        secrets.add_spellings();
        // A value that contains another one is replaced first.
        secrets.values.sort_by_key(|(value, _)| std::cmp::Reverse(value.len()));
        secrets.values.dedup_by(|left, right| left.0 == right.0);
        secrets
    }

    /// Adds the login of the user.
    pub(in crate::upstream) fn with_login(self, login: Option<Bearer>) -> Self {
        Self { login, ..self }
    }

    /// Returns the login of the user.
    pub(super) fn login(&self) -> Option<Bearer> {
        self.login.clone()
    }

    fn add_openapi(&mut self, openapi: &OpenApi) {
        let document = match &openapi.document {
            DocumentPlace::Url(url) => Some(url),
            DocumentPlace::File(_) => None,
        };
        for url in document.into_iter().chain(&openapi.base_url) {
            self.add_url(url, "url");
        }
        for (name, value) in &openapi.headers {
            self.add_credentials(value, name);
        }
        if let Some(auth) = &openapi.auth {
            let (name, secret) = auth.secret();
            self.add_credentials(secret, name);
            if let Auth::Basic { user, password } = auth {
                self.add(STANDARD.encode(format!("{user}:{password}")).trim_end_matches('='), "password");
            }
        }
    }

    /// Returns the text with a name in brackets in place of each credential.
    pub(in crate::upstream) fn redact(&self, text: &str) -> String {
        let text = self.login.as_ref().map_or_else(|| text.to_owned(), |login| login.redact(text));
        self.values.iter().fold(text, |text, (value, name)| {
            if text.contains(value) { text.replace(value, &format!("[{name}]")) } else { text }
        })
    }

    /// Returns the text with what a name is replaced by in place of each credential. References to variables stay.
    pub(in crate::upstream) fn replace(&self, text: &str, by: &mut impl FnMut(&str) -> String) -> String {
        self.values.iter().fold(text.to_owned(), |text, (value, name)| {
            if text.contains(value) && !value.contains("${") { text.replace(value, &by(name)) } else { text }
        })
    }

    pub(in crate::upstream) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Replaces credentials in all strings of a value.
    pub(in crate::upstream) fn redact_value(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.redact(&text)),
            Value::Array(items) => items.into_iter().map(|item| self.redact_value(item)).collect(),
            Value::Object(members) => members
                .into_iter()
                .map(|(key, value)| (self.redact(&key), self.redact_value(value)))
                .collect(),
            other => other,
        }
    }

    fn add(&mut self, value: &str, name: &str) {
        let value = value.trim();
        // A credential may also be where a name belongs.
        let name = if words_of(name).any(is_no_word) { HIDDEN } else { name };
        if value.len() >= SHORTEST {
            self.values.push((value.to_owned(), name.to_owned()));
        }
        // A key of several lines may be shown line by line, with an indent.
        if value.contains('\n') {
            for line in value.lines() {
                self.add(line, name);
            }
        }
    }

    /// Adds the values as they look in JSON, in a URL and in base64.
    fn add_spellings(&mut self) {
        let mut others = Vec::new();
        for (value, name) in &self.values {
            let json = Value::from(value.as_str()).to_string();
            others.push((json[1..json.len() - 1].to_owned(), name.clone()));
            others.push((utf8_percent_encode(value, RESERVED).to_string(), name.clone()));
            // Without the padding, because the value may be a part of a longer text.
            let base64 = STANDARD.encode(value);
            others.push((base64.trim_end_matches('=').to_owned(), name.clone()));
        }
        self.values.extend(others);
    }

    /// Adds the value of `Authorization: Bearer x`, a header as an argument; `is_header` = it certainly is one.
    fn add_header(&mut self, text: &str, is_header: bool) {
        let Some((name, value)) = text.split_once(':') else { return };
        let is_name = !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        if is_name && !value.starts_with("//") && (is_header || is_sensitive(name)) {
            self.add_credentials(value, name);
        }
    }

    /// Adds the value of a header, with and without a scheme such as `Bearer`.
    fn add_credentials(&mut self, value: &str, name: &str) {
        let value = value.trim();
        self.add(value, name);
        if let Some((_, credential)) = value.split_once(' ') {
            self.add(credential, name);
        }
    }

    /// Adds the values of `--token x` and `--token=x`, and passwords of URLs.
    fn add_arguments(&mut self, args: &[String]) {
        for (at, arg) in args.iter().enumerate() {
            self.add_url(arg, "argument");
            let is_header = at > 0 && matches!(args[at - 1].as_str(), "--header" | "-H");
            self.add_header(arg.split_once("--header=").map_or(arg, |(_, header)| header), is_header);
            self.add_settings(arg);
            match arg.split_once('=') {
                Some((name, value)) if is_sensitive(name) => self.add(value, name.trim_start_matches('-')),
                Some((_, setting)) => self.add_settings(setting),
                None if arg.starts_with('-') && is_sensitive(arg) => {
                    if let Some(value) = args.get(at + 1).filter(|value| !value.starts_with('-')) {
                        self.add(value, arg.trim_start_matches('-'));
                    }
                }
                None if looks_random(arg) => self.add(arg, HIDDEN),
                None => {}
            }
            // `--token-abcdef0123456789`, `sk-abcdef0123456789`
            let name = arg.split_once('=').map_or(arg.as_str(), |(name, _)| name);
            if is_sensitive(name) || looks_random(name) {
                words_of(name).filter(|word| is_no_word(word)).for_each(|word| self.add(word, HIDDEN));
            }
        }
    }

    /// Adds the values of `NAME=value`, and of `{"name": "value"}`, in an argument such as `--env=NAME=value`.
    fn add_settings(&mut self, text: &str) {
        if let Some((name, value)) = text.split_once('=')
            && (is_sensitive(name) || looks_random(value))
        {
            self.add(value, name.trim_start_matches('-'));
        }
        if let Ok(value @ Value::Object(_)) = serde_json::from_str(text.trim_matches('\'')) {
            self.add_members(&value, "");
        }
    }

    fn add_members(&mut self, value: &Value, name: &str) {
        match value {
            Value::String(text) if is_sensitive(name) || looks_random(text) => self.add(text, name),
            Value::String(text) => self.add_url(text, name),
            Value::Array(items) => items.iter().for_each(|item| self.add_members(item, name)),
            Value::Object(members) => members.iter().for_each(|(name, value)| self.add_members(value, name)),
            _ => {}
        }
    }

    /// Adds the passwords of the URLs in a text, and the values of their queries.
    fn add_url(&mut self, text: &str, name: &str) {
        let Some((_, rest)) = text.split_once("://") else { return };
        let next =
            rest.find("://").map_or(rest.len(), |at| rest[..at].rfind([',', ' ', ';', '|']).unwrap_or(at));
        self.add_url(&rest[next..], name);
        let rest = rest[..next].trim_end_matches([',', ' ', ';', '|']);
        let (authority, rest) = rest.split_at(end_of_authority(rest));
        if let Some((user, _)) = authority.rsplit_once('@') {
            self.add(user.split_once(':').map_or(user, |(_, password)| password), name);
            // In the header that is sent.
            self.add(STANDARD.encode(user).trim_end_matches('='), name);
        }
        let path = rest.split(['?', '#']).next().unwrap_or_default();
        for segment in path.split('/').filter(|segment| looks_random(segment)) {
            self.add(segment, name);
        }
        let query = rest.split_once('?').map_or("", |(_, query)| query);
        for pair in query.split(['&', '#']) {
            if let Some((key, value)) = pair.split_once('=') {
                self.add(value, key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::upstream::discovery::HttpOptions;

    fn of(launch: Launch) -> Secrets {
        Secrets::of(&Definition {
            launch,
            startup_timeout: None,
            call_timeout: None,
            filled_in: pairs(&[("SOME_PATH", "/usr/lib"), ("DB_PASS", "filled-in")]),
        })
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn what_a_child_was_given_is_not_shown() {
        let args =
            ["--api-key", "abcdef1", "--token=abcdef2", "postgres://u:abcdef3@h/db", "--dir", "/home/me"];
        let secrets = of(Launch::Stdio {
            command: "x --password=abcdef0".into(),
            args: args.map(String::from).to_vec(),
            env: pairs(&[
                ("GITHUB_TOKEN", "abcdef4"),
                ("X", "ghp0123456789abcdefXYZ"),
                ("LEVEL", "production"),
                ("DB", "redis://:abcdef5@h?apikey=abcdef6"),
                ("SHORT_KEY", "abc"),
            ]),
            cwd: None,
        });
        let text = "0:abcdef0 1:abcdef1 2:abcdef2 3:abcdef3 4:abcdef4 5:abcdef5 6:abcdef6 ghp0123456789abcdefXYZ /home/me production abc";
        assert_eq!(
            secrets.redact(text),
            "0:[password] 1:[api-key] 2:[token] 3:[argument] 4:[GITHUB_TOKEN] 5:[DB] 6:[apikey] [X] /home/me production abc"
        );
        assert!(!format!("{secrets:?}").contains("abcdef"));
    }

    #[test]
    fn a_credential_in_a_command_or_a_name_is_not_shown() {
        let launch = |command: &str, args: &[&str]| Launch::Stdio {
            command: command.into(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            env: Vec::new(),
            cwd: None,
        };
        for secret in ["abcdef0123456789", "abcdefghijklmnopqrst", "Zm9vYmFyMTIzNDU2Nzg5MA"] {
            for (command, args) in [
                (format!("API_KEY={secret} npx some-server"), vec![]),
                (format!("https://ann:{secret}@example.org/mcp"), vec![]),
                (format!("https://ann:a/{secret}@example.org/mcp"), vec![]),
                (format!("npx --token-{secret}"), vec![]),
                ("npx".into(), vec![format!("--token-{secret}")]),
                ("npx".into(), vec![format!("--token-{secret}=1"), "next-value".into()]),
                ("npx".into(), vec![format!("--env=SERVICE_TOKEN={secret}")]),
                ("docker".into(), vec!["-e".into(), format!("SERVICE_TOKEN={secret}")]),
                ("npx".into(), vec![format!(r#"--config={{"deep":[{{"apiKey":"{secret}"}}]}}"#)]),
                ("npx".into(), vec![format!("a=https://h/,https://ann:{secret}@h2/x")]),
                ("npx".into(), vec![format!("--secret-{secret}"), "--dir".into()]),
            ] {
                let args: Vec<&str> = args.iter().map(String::as_str).collect();
                let shown = of(launch(&command, &args)).redact(&format!("{command} {}", args.join(" ")));
                assert!(!shown.contains(secret), "{shown}");
            }
        }
        let plain =
            of(launch("npx", &["-y", "@modelcontextprotocol/server-github", "--dir=/home/me/project"]));
        let text = "npx -y @modelcontextprotocol/server-github --dir=/home/me/project";
        assert_eq!(plain.redact(text), text);
    }

    #[test]
    fn what_goes_over_http_is_not_shown() {
        let secrets = of(Launch::Http {
            url: "https://u:abcdef1@h/mcp?key=abcdef2#x".into(),
            headers: pairs(&[("Authorization", "Bearer abcdef3"), ("X-Id", "abcdef4")]),
            older: false,
            options: Arc::default(),
        });
        assert_eq!(
            secrets.redact("abcdef1 abcdef2 'Bearer abcdef3' abcdef3 abcdef4 h"),
            "[url] [key] '[Authorization]' [Authorization] [X-Id] h"
        );
    }

    #[test]
    fn credentials_of_an_api_are_not_shown() {
        let secrets = of(Launch::OpenApi(Arc::new(OpenApi {
            document: DocumentPlace::Url("https://h/openapi.json?key=abcdef1".into()),
            base_url: Some("https://u:abcdef2@h/v1".into()),
            auth: Some(Auth::Basic { user: "ann".into(), password: "abcdef3".into() }),
            headers: pairs(&[("X-Id", "abcdef4")]),
            filled_in: Vec::new(),
            options: HttpOptions::default(),
        })));
        assert_eq!(
            secrets.redact("abcdef1 abcdef2 abcdef3 abcdef4 YW5uOmFiY2RlZjM= ann"),
            "[key] [url] [password] [X-Id] [password]= ann"
        );
    }

    #[test]
    fn headers_in_arguments_and_variables_are_not_shown() {
        let args = [
            "mcp-remote",
            "https://h/mcp",
            "--header",
            "X-Org: abcdef1",
            "--header=Authorization:Bearer abcdef2",
        ];
        let secrets = of(Launch::Stdio {
            command: "npx".into(),
            args: args.map(String::from).to_vec(),
            env: pairs(&[("EXTRA", "Authorization: Bearer abcdef3"), ("TIME", "now: abcdef4")]),
            cwd: None,
        });
        assert_eq!(
            secrets.redact("abcdef1 abcdef2 abcdef3 abcdef4 filled-in /usr/lib"),
            "[X-Org] [Authorization] [Authorization] abcdef4 [DB_PASS] /usr/lib"
        );
    }

    #[test]
    fn a_key_of_several_lines_is_not_shown_line_by_line() {
        let key = "-----BEGIN PRIVATE KEY-----\nMIIabcdef\n0123456=\n-----END PRIVATE KEY-----\n";
        let env = pairs(&[("PEM", key)]);
        let secrets = of(Launch::Stdio { command: "x".into(), args: Vec::new(), env, cwd: None });
        for shown in [key.to_owned(), key.replace('\n', "\n  | "), Value::from(key).to_string()] {
            let shown = secrets.redact(&shown);
            assert!(!shown.contains("MIIabcdef") && !shown.contains("0123456"), "{shown}");
        }
    }

    #[test]
    fn a_credential_is_known_however_it_is_spelled() {
        let secrets = of(Launch::Http {
            url: "https://ann:abc%20def@h/AbCdEfGhIjKlMnOpQrSt0123/mcp".into(),
            headers: pairs(&[("X-Key", "abc\"d/ef")]),
            older: false,
            options: Arc::default(),
        });
        let text =
            r#"{"k": "abc\"d/ef"} abc%22d%2Fef YWJjImQvZWY= YW5uOmFiYyUyMGRlZg== AbCdEfGhIjKlMnOpQrSt0123"#;
        assert_eq!(secrets.redact(text), r#"{"k": "[X-Key]"} [X-Key] [X-Key]= [url]== [url]"#);
    }

    #[test]
    fn a_value_that_holds_another_one_goes_first() {
        let secrets = of(Launch::Stdio {
            command: "x".into(),
            args: Vec::new(),
            env: pairs(&[("A_KEY", "abcdef"), ("B_KEY", "abcdef-and-more")]),
            cwd: None,
        });
        assert_eq!(secrets.redact("abcdef abcdef-and-more"), "[A_KEY] [B_KEY]");
    }
}
