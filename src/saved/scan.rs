//! Reads what the text of a function says, word by word. Where the interpreter that saved a function has parsed it, its answer
//! is used instead.

/// Bytes of the head of a definition that are read.
const LONGEST_HEAD: usize = 4_000;

/// Returns the head of a definition in one line, as `name(a, b=1) -> int`, and the text behind its colon.
pub(super) fn definition<'a>(name: &str, source: &'a str) -> Option<(String, &'a str)> {
    let mut at = 0;
    let (prefix, start) = source.split_inclusive('\n').find_map(|line| {
        let begin = at;
        at += line.len();
        let (prefix, rest) = match line.strip_prefix("async ") {
            Some(rest) => ("async ", rest.trim_start()),
            None => ("", line),
        };
        let rest = rest.strip_prefix("def ")?.trim_start().strip_prefix(name)?;
        rest.trim_start().starts_with('(').then(|| (prefix, begin + line.len() - rest.len()))
    })?;
    let (head, length) = head(&source[start..])?;
    Some((format!("{prefix}{name}{head}"), &source[start + length..]))
}

/// Returns the names of the functions that a source defines at its top level. Strings, comments and brackets may hold any text.
pub(super) fn definitions(source: &str) -> Vec<&str> {
    let (mut names, mut depth, mut at) = (Vec::new(), 0usize, 0);
    let mut is_start = true;
    while let Some(c) = source[at..].chars().next() {
        let rest = &source[at..];
        if is_start && depth == 0 {
            names.extend(defined(rest));
        }
        is_start = false;
        at += match c {
            '#' => rest.find('\n').unwrap_or(rest.len()),
            '"' | '\'' => string_length(rest),
            // What it is before goes on: the end of a line, too.
            '\\' => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            _ => c.len_utf8(),
        };
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            '\n' => is_start = true,
            _ => {}
        }
    }
    names
}

/// Returns the name of the function whose definition a line begins.
fn defined(line: &str) -> Option<&str> {
    let line = match line.strip_prefix("async") {
        Some(rest) if rest.starts_with([' ', '\t']) => rest.trim_start_matches([' ', '\t']),
        _ => line,
    };
    let rest = line.strip_prefix("def")?;
    let name = rest.strip_prefix([' ', '\t'])?.trim_start_matches([' ', '\t']);
    name.split(|c| !is_word(c)).next()
}

/// Returns the bytes of the string that a text begins with: to its end, that of its line, or that of the text.
fn string_length(text: &str) -> usize {
    let quote = &text[..1];
    let long = quote.repeat(3);
    let (quote, is_long) = match text.starts_with(&long) {
        true => (long.as_str(), true),
        false => (quote, false),
    };
    let mut at = quote.len();
    while let Some(c) = text[at..].chars().next() {
        if text[at..].starts_with(quote) {
            return at + quote.len();
        }
        match c {
            '\\' => at += 1 + text[at + 1..].chars().next().map_or(0, char::len_utf8),
            '\n' if !is_long => return at,
            c => at += c.len_utf8(),
        }
    }
    at
}

/// Returns what is before the colon that ends a definition, in one line, and the bytes up to there with the colon.
fn head(text: &str) -> Option<(String, usize)> {
    let mut line = String::new();
    let (mut depth, mut quote) = (0usize, None);
    let mut characters = text.char_indices().take_while(|(at, _)| *at < LONGEST_HEAD).peekable();
    while let Some((at, c)) = characters.next() {
        match (quote, c) {
            (Some(_), '\\') => {
                line.push(c);
                line.extend(characters.next().map(|(_, c)| c));
                continue;
            }
            (Some(open), c) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '#') => {
                while characters.next_if(|(_, c)| *c != '\n').is_some() {}
                continue;
            }
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => {
                depth = depth.checked_sub(1)?;
                // The last of several lines.
                let length = line.strip_suffix(", ").unwrap_or(&line).trim_end().len();
                line.truncate(length);
            }
            (None, ':') if depth == 0 => return Some((line.trim().to_owned(), at + 1)),
            (None, c) if c.is_whitespace() => {
                if !line.ends_with([' ', '(', '[', '{']) {
                    line.push(' ');
                }
                continue;
            }
            (None, _) => {}
        }
        line.push(c);
    }
    None
}

/// Returns the string that a body begins with.
pub(super) fn docstring(body: &str) -> Option<String> {
    let mut text = body.trim_start();
    while let Some(comment) = text.strip_prefix('#') {
        text = comment.split_once('\n')?.1.trim_start();
    }
    let text = text.strip_prefix(['r', 'R']).unwrap_or(text);
    let quote = ["\"\"\"", "'''", "\"", "'"].into_iter().find(|quote| text.starts_with(quote))?;
    let (doc, _) = text[quote.len()..].split_once(quote)?;
    let lines: Vec<&str> = doc.lines().map(str::trim).collect();
    Some(lines.join("\n"))
}

/// Returns the servers and the tools that a source mentions as `mcp_SERVER.TOOL`, `mcp.servers.SERVER` or
/// `mcp_servers["SERVER"]`.
pub(super) fn used(source: &str) -> (Vec<String>, Vec<(String, String)>) {
    let (mut servers, mut tools) = (Vec::new(), Vec::new());
    for (at, word) in words(source) {
        let rest = &source[at + word.len()..];
        if let Some(server) = word.strip_prefix("mcp_").filter(|server| !server.is_empty()) {
            if server != "servers" {
                servers.push(server.to_owned());
                tools.extend(behind(rest, ".").map(|tool| (server.to_owned(), tool)));
            } else if let Some(quoted) =
                rest.strip_prefix(['[']).and_then(|rest| rest.strip_prefix(['"', '\'']))
            {
                servers.extend(first_word(quoted));
            }
        } else if word == "mcp"
            && let Some(server) = behind(rest, ".servers.")
        {
            let imported = rest[".servers.".len() + server.len()..].trim_start_matches([' ', '\t']);
            if let Some(names) = imported.strip_prefix("import ") {
                let names = names.lines().next().unwrap_or_default().split(',');
                tools.extend(
                    names.filter_map(|name| first_word(name.trim_start())).map(|tool| (server.clone(), tool)),
                );
            }
            servers.push(server);
        }
    }
    (servers, tools)
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Returns the words of a text and where each begins.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut rest = 0;
    std::iter::from_fn(move || {
        let begin = rest + text[rest..].find(is_word)?;
        let end = text[begin..].find(|c| !is_word(c)).map_or(text.len(), |length| begin + length);
        rest = end;
        Some((begin, &text[begin..end]))
    })
}

fn first_word(text: &str) -> Option<String> {
    words(text).next().filter(|(at, _)| *at == 0).map(|(_, word)| word.to_owned())
}

fn behind(text: &str, prefix: &str) -> Option<String> {
    first_word(text.strip_prefix(prefix)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_definition_is_found_and_shown_in_one_line() {
        for (source, expected) in [
            ("def f(): pass", Some("f()")),
            ("# c\n@cached\nasync def f(a, b=1) -> int:\n    pass", Some("async f(a, b=1) -> int")),
            (
                "def f(\n    a: dict[str, int] = {},  # why: this\n    b=':)',\n):\n    pass",
                Some("f(a: dict[str, int] = {}, b=':)')"),
            ),
            ("def  f (a=\"\\\":\"): pass", Some("f(a=\"\\\":\")")),
            ("def g(): pass", None),
            ("def f(", None),
            ("def f(a)): pass", None),
            ("x = 1", None),
        ] {
            assert_eq!(definition("f", source).map(|(head, _)| head).as_deref(), expected, "{source}");
        }
        assert_eq!(definition("f", &format!("def f({}): pass", "a".repeat(LONGEST_HEAD))), None);
    }

    #[test]
    fn functions_of_the_top_level_are_found_by_their_names() {
        for (source, names) in [
            ("import re\n\n@cached\nasync  def f(a,\n  b=')'):\n    def g(): pass\n", &["f"][..]),
            ("def f(): pass\ndef\tg (): pass", &["f", "g"]),
            ("def f(): pass\nasync def f(): pass", &["f", "f"]),
            ("def f():\n    r'''\ndef no(): \\'''\ndef no2():\n'''\nx = (\n1,\n)\ndef g(): 1", &["f", "g"]),
            ("x = [\ndef no\n]\n# def no():\ny = 1 + \\\ndef no(): pass", &[]),
            ("class A:\n    def no(self): pass\nif x:\n  def no(): pass\ndefine(1)\nasyncdef = 1", &[]),
            ("'open\ndef f(): pass", &["f"]),
            ("\"\"\"open\ndef no(): pass\\", &[]),
            ("'ä\\ä'\ndef ü(): pass", &["ü"]),
        ] {
            assert_eq!(definitions(source), names, "{source}");
        }
    }

    #[test]
    fn a_docstring_is_the_first_string() {
        for (body, expected) in [
            ("\n    # c\n    '''Twice.\n\n    As much.'''\n    return 1", Some("Twice.\n\nAs much.")),
            (" 'Once.'; x = 1", Some("Once.")),
            ("\n    return 'x'", None),
            ("\n    '''open", None),
            ("\n    # only a comment", None),
        ] {
            assert_eq!(docstring(body).as_deref(), expected, "{body}");
        }
    }

    #[test]
    fn servers_and_tools_are_found_by_their_names() {
        let source = "from mcp.servers.forge import create_issue, close as c\nimport mcp.servers.notes\n\
                      mcp_tracker.get(id=mcp_servers['calendar']); xmcp_no.x; mcp_; mcp_servers; mcp_alone";
        let (servers, tools) = used(source);
        assert_eq!(servers, ["forge", "notes", "tracker", "calendar", "alone"]);
        let pair = |server: &str, tool: &str| (server.to_owned(), tool.to_owned());
        assert_eq!(tools, [pair("forge", "create_issue"), pair("forge", "close"), pair("tracker", "get")]);
    }
}
