//! Expands variables in the values of a definition.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use super::definition::Skip;
use crate::settings::Environment;

/// Defaults in defaults, such as `${A:-${B:-c}}`. No definition that a person wrote has as many.
const DEEPEST: usize = 32;

/// What values can refer to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scope<'a> {
    pub(super) environment: &'a Environment,
    pub(super) home: Option<&'a Path>,
    pub(super) cwd: &'a Path,
    /// Whether anything is expanded; not in a definition that the user has not approved.
    pub(super) expands: bool,
    /// Whether `{env:VAR}` and `{file:PATH}` are read, as opencode does.
    pub(super) bare_braces: bool,
    /// Names and values of the references expanded so far.
    pub(super) filled_in: &'a RefCell<Vec<(String, String)>>,
}

impl Scope<'_> {
    /// Expands `${VAR}`, `${VAR:-default}`, `${env:VAR}` and what editors predefine.
    pub(super) fn expand(&self, text: &str) -> Result<String, Skip> {
        self.expand_within(text, DEEPEST)
    }

    /// Expands a text whose defaults may have so many levels of others in them.
    fn expand_within(&self, text: &str, levels: usize) -> Result<String, Skip> {
        if !self.expands {
            return Ok(text.to_owned());
        }
        let mut expanded = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find('{') {
            let dollar = rest[..at].ends_with('$');
            let inner = &rest[at + 1..];
            let length = if dollar || self.bare_braces { matching_brace(inner) } else { None };
            let value = match length {
                Some(length) if dollar => self.value(&inner[..length], levels)?,
                Some(length) => self.bare(&inner[..length])?,
                None => None,
            };
            match (value, length) {
                (Some(value), Some(length)) => {
                    expanded.push_str(&rest[..at - usize::from(dollar)]);
                    expanded.push_str(&value);
                    rest = &inner[length + 1..];
                }
                _ => {
                    expanded.push_str(&rest[..=at]);
                    rest = inner;
                }
            }
        }
        expanded.push_str(rest);
        Ok(expanded)
    }

    /// Expands variables, and a leading `~` to the home directory.
    pub(super) fn expand_path(&self, text: &str) -> Result<String, Skip> {
        match text.strip_prefix('~') {
            Some(rest) if self.expands && (rest.is_empty() || rest.starts_with('/')) => {
                let home = self.home.ok_or_else(|| Skip::MissingVariable("HOME".into()))?;
                Ok(format!("{}{}", home.display(), self.expand(rest)?))
            }
            _ => self.expand(text),
        }
    }

    /// Expands a path and makes it absolute.
    pub(super) fn absolute(&self, text: &str) -> Result<PathBuf, Skip> {
        Ok(self.cwd.join(self.expand_path(text)?))
    }

    /// Returns the value of an environment variable, or an error if it is not set.
    pub(super) fn variable(&self, name: &str) -> Result<String, Skip> {
        if !self.expands {
            return Ok(format!("${{{name}}}"));
        }
        let value = self.environment.get(name).ok_or_else(|| Skip::MissingVariable(name.into()))?;
        let value = value.to_str().ok_or_else(|| {
            Skip::Invalid(format!("the value of environment variable '{name}' is not UTF-8"))
        })?;
        self.filled_in.borrow_mut().push((name.to_owned(), value.to_owned()));
        Ok(value.to_owned())
    }

    /// Returns the value of the text between `${` and `}`; None if it is not a reference and stays as it is.
    fn value(&self, reference: &str, levels: usize) -> Result<Option<String>, Skip> {
        let (name, default) = match reference.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (reference, None),
        };
        let name = name.strip_prefix("env:").unwrap_or(name);
        if !is_variable_name(name) {
            return editor_reference(reference);
        }
        match (self.variable(name), default) {
            (Ok(value), Some(_)) if !value.is_empty() => Ok(Some(value)),
            (Ok(_) | Err(Skip::MissingVariable(_)), Some(default)) => match levels.checked_sub(1) {
                Some(levels) => self.expand_within(default, levels).map(Some),
                None => {
                    Err(Skip::Invalid(format!("it has defaults in defaults, deeper than {DEEPEST} levels")))
                }
            },
            (Err(Skip::MissingVariable(_)), None) if !reference.starts_with("env:") => {
                self.predefined(name).map(Some).ok_or_else(|| Skip::MissingVariable(name.into()))
            }
            (value, _) => value.map(Some),
        }
    }

    /// Returns the variables that VS Code and Cursor define.
    fn predefined(&self, name: &str) -> Option<String> {
        match name {
            "userHome" => self.home.map(|home| home.display().to_string()),
            "workspaceFolder" => Some(self.cwd.display().to_string()),
            "workspaceFolderBasename" => Some(self.cwd.file_name()?.to_string_lossy().into_owned()),
            "pathSeparator" => Some("/".into()),
            _ => None,
        }
    }

    /// Returns the value of the text between `{` and `}`.
    fn bare(&self, reference: &str) -> Result<Option<String>, Skip> {
        if let Some(name) = reference.strip_prefix("env:") {
            return self.variable(name.trim()).map(Some);
        }
        let Some(path) = reference.strip_prefix("file:").map(str::trim) else { return Ok(None) };
        // Named as it is written: a variable in it may hold a secret.
        let text = std::fs::read_to_string(self.absolute(path)?)
            .map_err(|error| Skip::Invalid(format!("could not read '{path}': {error}")))?;
        let text = text.trim().to_owned();
        self.filled_in.borrow_mut().push((format!("key in {path}"), text.clone()));
        Ok(Some(text))
    }
}

/// Fails for references that only an editor can resolve: the text itself would be a wrong value.
fn editor_reference(reference: &str) -> Result<Option<String>, Skip> {
    match reference.split_once(':') {
        _ if reference == "/" => Ok(Some("/".into())),
        Some(("input" | "command" | "config", _)) => {
            Err(Skip::Invalid(format!("only an editor has a value for '${{{reference}}}'")))
        }
        _ => Ok(None),
    }
}

fn is_variable_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Returns the position of the brace that closes the one before the text.
fn matching_brace(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' if depth == 0 => return Some(at),
            b'}' => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn expand(text: &str, bare_braces: bool) -> Result<String, Skip> {
        let mut environment: Environment = [("A", "1"), ("EMPTY", ""), ("R", "${A}"), ("token", "t")]
            .map(|(k, v)| (k.into(), v.into()))
            .into();
        environment.insert("BAD".into(), OsString::from_vec(vec![0xff]));
        let scope = Scope {
            expands: true,
            environment: &environment,
            home: Some(Path::new("/home/u")),
            cwd: Path::new("/here/dir"),
            bare_braces,
            filled_in: &RefCell::default(),
        };
        scope.expand_path(text)
    }

    #[test]
    fn variables_are_expanded_once() {
        for (text, expected) in [
            ("", ""),
            ("plain $A {A}", "plain $A {A}"),
            ("<${A}${env:A}>", "<11>"),
            ("${NONE:-x y}", "x y"),
            ("${env:NONE:-x}", "x"),
            ("${EMPTY}|${EMPTY:-d}", "|d"),
            ("${A:-d}", "1"),
            ("${NONE:-${A}/${NONE:-{}}}", "1/{}"),
            ("${NONE:-}", ""),
            ("${R}", "${A}"),
            ("~", "/home/u"),
            ("~/${A}", "/home/u/1"),
            ("~other/x", "~other/x"),
            ("a~", "a~"),
            ("${userHome}${/}${workspaceFolder}:${workspaceFolderBasename}", "/home/u//here/dir:dir"),
            ("${}", "${}"),
            ("${not a name}", "${not a name}"),
            ("${A", "${A"),
            ("$${A}", "$1"),
            ("é${A}é", "é1é"),
        ] {
            assert_eq!(expand(text, false).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_missing_variable_is_named() {
        for text in ["${NONE}", "x${env:NONE}", "${A}${NONE}", "${NONE2:-${NONE}}"] {
            assert_eq!(expand(text, false), Err(Skip::MissingVariable("NONE".into())), "{text}");
        }
        assert_eq!(expand("${env:userHome}", false), Err(Skip::MissingVariable("userHome".into())));
        assert!(
            matches!(expand("${input:key}", false), Err(Skip::Invalid(why)) if why.contains("${input:key}"))
        );
        assert!(matches!(expand("${BAD}", false), Err(Skip::Invalid(why)) if why.contains("'BAD'")));
    }

    #[test]
    fn defaults_are_nested_to_a_limit() {
        let nested = |levels: usize| format!("{}x{}", "${NONE:-".repeat(levels), "}".repeat(levels));
        assert_eq!(expand(&nested(32), false).as_deref(), Ok("x"));
        for levels in [34, 100_000] {
            assert!(
                matches!(expand(&nested(levels), false), Err(Skip::Invalid(why)) if why.contains("32 levels"))
            );
        }
    }

    #[test]
    fn bare_braces_are_references_only_in_opencode_files() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "secret\n").unwrap();
        let text = format!("{{env:token}} {{file:{}}} ${{A}} {{x}}", file.path().display());
        assert_eq!(expand(&text, true).as_deref(), Ok("t secret 1 {x}"));
        assert_eq!(expand("{env:token}", false).as_deref(), Ok("{env:token}"));
        assert!(matches!(expand("{env:NONE}", true), Err(Skip::MissingVariable(_))));
        assert!(
            matches!(expand("{file:/no/such}", true), Err(Skip::Invalid(why)) if why.contains("/no/such"))
        );
    }
}
