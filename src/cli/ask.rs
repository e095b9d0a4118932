//! What commands ask the person: values that must not be shown, and yes or no. Credentials never stand in command lines.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, IsTerminal, Read, Write};

use codebridge_runtimes::exec::visible_line;
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

/// Bytes of a line that is typed.
const LONGEST: usize = 64 << 10;

/// Where answers come from.
#[derive(Debug)]
pub(super) enum Person {
    /// At the terminal of this process.
    Terminal(File),
    /// Lines of standard input, one for each question: from a password manager, or a script.
    Input,
}

/// What was typed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Typed {
    Line(String),
    /// Ctrl-C.
    Stopped,
    /// There is no more input.
    End,
}

impl Person {
    /// Returns who is asked: the terminal if standard input is one.
    pub(super) fn find() -> Self {
        let terminal = || OpenOptions::new().read(true).write(true).open("/dev/tty");
        match io::stdin().is_terminal().then(terminal) {
            Some(Ok(terminal)) => Self::Terminal(terminal),
            _ => Self::Input,
        }
    }

    /// Whether somebody reads the questions.
    pub(super) fn is_there(&self) -> bool {
        matches!(self, Self::Terminal(_))
    }

    /// Asks for a line.
    pub(super) fn text(&self, question: &str) -> io::Result<Typed> {
        let Self::Terminal(terminal) = self else { return next_line(&mut io::stdin().lock()) };
        let mut screen = terminal;
        write!(screen, "{}", visible_line(question))?;
        next_line(&mut io::BufReader::new(terminal))
    }

    /// Asks for a yes. Returns None where nobody can be asked: what comes from a script is no answer.
    pub(super) fn confirms(&self, question: &str) -> io::Result<Option<bool>> {
        if !self.is_there() {
            return Ok(None);
        }
        let Typed::Line(line) = self.text(&format!("{question} [y/N] "))? else { return Ok(Some(false)) };
        Ok(Some(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes")))
    }

    /// Asks for a line that is not shown while it is typed.
    pub(super) fn secret(&self, question: &str) -> io::Result<Typed> {
        let Self::Terminal(terminal) = self else { return next_line(&mut io::stdin().lock()) };
        let mut screen = terminal;
        // Nothing is typed before the terminal hides it.
        let quiet = Quiet::begin(terminal)?;
        write!(screen, "{}", visible_line(question))?;
        let typed = typed(&mut io::BufReader::new(quiet.terminal).bytes())?;
        drop(quiet);
        writeln!(screen)?;
        Ok(typed)
    }
}

/// Returns the next line, without its end.
fn next_line(input: &mut impl BufRead) -> io::Result<Typed> {
    let mut line = Vec::new();
    if input.take(LONGEST as u64).read_until(b'\n', &mut line)? == 0 {
        return Ok(Typed::End);
    }
    let line = String::from_utf8(line).map_err(|_| io::Error::other("it is not UTF-8"))?;
    Ok(Typed::Line(line.trim_end_matches(['\n', '\r']).to_owned()))
}

/// A terminal that shows nothing of what is typed, until this is dropped. Ctrl-C is a key like others meanwhile: it must not end
/// this process before the terminal shows again what is typed.
struct Quiet<'a> {
    terminal: &'a File,
    before: Termios,
}

impl<'a> Quiet<'a> {
    fn begin(terminal: &'a File) -> io::Result<Self> {
        let before = tcgetattr(terminal)?;
        let mut quiet = before.clone();
        quiet.local_modes -= LocalModes::ECHO | LocalModes::ICANON | LocalModes::ISIG;
        // What was typed before the question is no answer to it.
        tcsetattr(terminal, OptionalActions::Flush, &quiet)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Quiet<'_> {
    fn drop(&mut self) {
        let _ = tcsetattr(self.terminal, OptionalActions::Flush, &self.before);
    }
}

/// Returns what keys say, up to the end of the line.
fn typed(keys: &mut impl Iterator<Item = io::Result<u8>>) -> io::Result<Typed> {
    let mut line = Vec::new();
    loop {
        match keys.next().transpose()? {
            // Ctrl-D, as the end of the input.
            None | Some(0x04) if line.is_empty() => return Ok(Typed::End),
            None | Some(b'\n' | b'\r' | 0x04) => break,
            Some(0x03) => return Ok(Typed::Stopped),
            // Backspace takes a whole character away.
            Some(0x08 | 0x7f) => while line.pop().is_some_and(|byte| byte & 0xc0 == 0x80) {},
            // Ctrl-U
            Some(0x15) => line.clear(),
            Some(byte) if line.len() < LONGEST => line.push(byte),
            Some(_) => return Err(io::Error::other("it is too long")),
        }
    }
    String::from_utf8(line).map(Typed::Line).map_err(|_| io::Error::other("it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_to_the_end_of_the_line() {
        let typed = |text: &str| typed(&mut text.bytes().map(Ok)).unwrap();
        let line = |text: &str| Typed::Line(text.into());
        for (keys, expected) in [
            ("abc\nd", line("abc")),
            ("a\u{e9}\u{7f}b\r", line("ab")),
            ("wrong\u{15}right\n", line("right")),
            ("\u{7f}\n", line("")),
            ("ab\u{3}", Typed::Stopped),
            ("\u{4}", Typed::End),
            ("", Typed::End),
            ("ab", line("ab")),
        ] {
            assert_eq!(typed(keys), expected, "{keys:?}");
        }
    }

    #[test]
    fn each_line_of_the_input_is_an_answer() {
        let mut input = "one\r\ntwo".as_bytes();
        assert_eq!(next_line(&mut input).unwrap(), Typed::Line("one".into()));
        assert_eq!(next_line(&mut input).unwrap(), Typed::Line("two".into()));
        assert_eq!(next_line(&mut input).unwrap(), Typed::End);
    }
}
