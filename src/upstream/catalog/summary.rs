//! The first sentence of a description, on one line.

use crate::upstream::search::{Boilerplate, first_sentence};
use crate::upstream::tool_doc::floor_char_boundary;

/// Bytes of a line.
const LONGEST: usize = 100;
/// A line is not cut before this, even if a word or clause ends there.
const SHORTEST: usize = 60;

/// Returns the first sentence that says what the tool does, on one line.
pub(super) fn summary(description: &str, boilerplate: &Boilerplate) -> String {
    let sentence = first_sentence(description, boilerplate).unwrap_or(description);
    let mut line = String::new();
    for c in sentence.trim_start_matches(is_ornament).chars() {
        match c {
            c if is_hidden(c) => {}
            c if c.is_whitespace() || c.is_control() => {
                if !line.ends_with(' ') {
                    line.push(' ');
                }
            }
            c => line.push(c),
        }
        if line.len() > 2 * LONGEST {
            break;
        }
    }
    let line = line.trim().trim_end_matches(['.', ';']);
    if line.len() <= LONGEST { line.to_owned() } else { cut(line) }
}

/// Cuts a line after a clause if possible, else after a word.
fn cut(line: &str) -> String {
    let end = floor_char_boundary(line, LONGEST - '…'.len_utf8());
    let head = &line[..end];
    let clause = [", ", "; ", ": ", " - ", " – ", " ("]
        .iter()
        .filter_map(|mark| head.rfind(mark))
        .filter(|at| *at >= SHORTEST)
        .max();
    let word = head.rfind(' ').filter(|at| *at >= SHORTEST);
    let end = clause.or(word).unwrap_or(end);
    format!("{}…", head[..end].trim_end())
}

/// Whether a character is a list number, heading mark or picture.
fn is_ornament(c: char) -> bool {
    !c.is_alphabetic() && !matches!(c, '`' | '"' | '\'' | '(' | '<' | '/' | '$' | '[')
}

/// Whether a character is invisible or changes the direction of text.
fn is_hidden(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(description: &str) -> String {
        summary(description, &Boilerplate::default())
    }

    #[test]
    fn it_is_the_first_sentence() {
        assert_eq!(line("Creates an issue. Needs a token."), "Creates an issue");
        assert_eq!(
            line("🎯 Purpose:\n  1. Lists   the\tobjects of a type.\n"),
            "Lists the objects of a type"
        );
        assert_eq!(line("`git log` as text. More."), "`git log` as text");
        assert_eq!(line("Gets U.S. data for a day. More."), "Gets U.S. data for a day");
        assert_eq!(line("Asks Dr. Smith for help. More."), "Asks Dr. Smith for help");
        assert_eq!(line("列出 所有 文件。第二句。"), "列出 所有 文件。");
        assert_eq!(line("Close"), "Close");
        assert_eq!(line(""), "");
    }

    #[test]
    fn long_ones_are_cut_behind_a_clause_or_a_word() {
        let long = "Moves rows from one sheet to another sheet of the same file, keeping formats, notes and formulas as far as they can be kept";
        let cut = line(long);
        assert_eq!(cut, "Moves rows from one sheet to another sheet of the same file, keeping formats…");
        assert!(line(&"word ".repeat(100)).len() <= LONGEST);
        assert!(line(&"x".repeat(1000)).len() <= LONGEST);
        assert!(line(&"ß".repeat(1000)).len() <= LONGEST);
    }

    #[test]
    fn nothing_hidden_is_left() {
        assert_eq!(line("Lists\u{1b}[31m all\u{202e} users\u{0}now"), "Lists [31m all users now");
    }
}
