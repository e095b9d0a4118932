//! Texts for people: times, sizes, and texts of others, which are made harmless and short.

use std::fmt;
use std::time::Duration;

use codebridge_runtimes::exec::{visible, visible_line};
use jiff::Timestamp;

use crate::feed::Piece;
use crate::sizes::bytes_text;

/// Bytes of a text of which a page shows all.
const LONGEST: usize = 192 << 10;
/// Bytes of the beginning of a longer one.
const HEAD: usize = 32 << 10;
/// Characters of a text in one line.
const LONGEST_LINE: usize = 160;

/// A text of somebody else, as a page shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) head: String,
    /// What follows what is left out.
    pub(super) tail: String,
    /// Bytes that are left out.
    pub(super) left_out: usize,
}

impl Shown {
    /// Returns a text without what steers a terminal, the middle left out if it is long.
    pub(super) fn of(text: &str) -> Self {
        Self::by(text, plain)
    }

    /// Returns code, the middle left out if it is long. Nothing that runs is hidden: Python takes a carriage return for the end of
    /// a line, and control characters for a part of a string.
    pub(super) fn of_code(text: &str) -> Self {
        Self::by(text, |part| visible(&part.replace("\r\n", "\n").replace('\r', "\n")))
    }

    fn by(text: &str, show: impl Fn(&str) -> String) -> Self {
        if text.len() <= LONGEST {
            return Self { head: show(text), ..Self::default() };
        }
        let head = floor(text, HEAD);
        let tail = floor(text, text.len() - (LONGEST - HEAD));
        Self { head: show(&text[..head]), tail: show(&text[tail..]), left_out: tail - head }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.head.is_empty()
    }

    pub(super) fn left_out_size(&self) -> String {
        bytes_text(self.left_out as u64)
    }
}

/// Returns pieces of output as one text.
pub(super) fn text_of(pieces: &[Piece]) -> String {
    let text = |piece: &Piece| match piece {
        Piece::Text(text) => plain(text),
        Piece::LeftOut(bytes) => format!("\n[{} are left out]\n", bytes_text(*bytes)),
    };
    pieces.iter().map(text).collect()
}

/// Returns the boundary of characters at or below a place.
fn floor(text: &str, at: usize) -> usize {
    (0..=at).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// Returns a text without colours and what else steers a terminal. A line that was written over is shown as it was last.
pub(super) fn plain(text: &str) -> String {
    let without = without_escapes(text);
    let mut lines = String::with_capacity(without.len());
    for line in without.split_inclusive('\n') {
        let (line, end) = match line.strip_suffix('\n') {
            Some(line) => (line, "\n"),
            None => (line, ""),
        };
        let line = line.trim_end_matches('\r');
        lines.push_str(line.rsplit('\r').next().unwrap_or_default());
        lines.push_str(end);
    }
    visible(&lines)
}

/// Removes the sequences of ECMA-48 that are complete.
fn without_escapes(text: &str) -> String {
    let mut rest = text;
    let mut left = String::with_capacity(text.len());
    while let Some(at) = rest.find('\u{1b}') {
        left.push_str(&rest[..at]);
        let sequence = &rest[at..];
        let length = escape_length(sequence);
        if length == 0 {
            left.push('\u{1b}');
        }
        rest = &sequence[length.max(1)..];
    }
    left.push_str(rest);
    left
}

/// Returns how long a sequence is that begins a text with an escape character: `ESC [ … letter` and `ESC ] … BEL` or `ESC \`.
/// 0 for anything else.
fn escape_length(text: &str) -> usize {
    let body = &text.as_bytes()[1..];
    let end = match body.first() {
        Some(b'[') => {
            let parameters = body[1..].iter().take_while(|byte| (0x20..=0x3f).contains(*byte)).count();
            body.get(1 + parameters).filter(|byte| (0x40..=0x7e).contains(*byte)).map(|_| 3 + parameters)
        }
        Some(b']') => {
            let content =
                body[1..].iter().take(4096).take_while(|byte| !matches!(byte, 7 | 0x1b | b'\n')).count();
            match body.get(1 + content..) {
                Some([7, ..]) => Some(3 + content),
                Some([0x1b, b'\\', ..]) => Some(4 + content),
                _ => None,
            }
        }
        _ => None,
    };
    end.unwrap_or(0)
}

/// Returns the first line of a text with words, not too long.
pub(super) fn in_a_line(text: &str) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    let line = visible_line(line.trim());
    match line.char_indices().nth(LONGEST_LINE) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// Returns a duration with one or two units.
pub(super) fn duration(time: Duration) -> String {
    let (millis, seconds) = (time.as_millis(), time.as_secs());
    match seconds {
        0 if millis == 0 => format!("{} µs", time.as_micros()),
        0 => format!("{millis} ms"),
        1..10 => format!("{:.1} s", time.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// Returns a duration that is given in milliseconds.
pub(super) fn milliseconds(milliseconds: f64) -> String {
    duration(Duration::try_from_secs_f64(milliseconds.max(0.0) / 1000.0).unwrap_or(Duration::MAX))
}

/// A moment, as a page shows it: its age, and when exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct When(pub(super) Timestamp);

impl When {
    /// For machines.
    pub(super) fn exact(&self) -> String {
        self.0.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    /// For people who point at it.
    pub(super) fn full(&self) -> String {
        self.0.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
    }
}

impl fmt::Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let age = Duration::try_from(self.0.duration_until(Timestamp::now())).unwrap_or_default();
        match age.as_secs() {
            seconds @ ..60 => write!(f, "{seconds} s ago"),
            seconds @ ..3600 => write!(f, "{} min ago", seconds / 60),
            seconds @ ..86_400 => write!(f, "{} h ago", seconds / 3600),
            seconds => write!(f, "{} d ago", seconds / 86_400),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_not_shown() {
        for (text, shown) in [
            ("\u{1b}[1;31mred\u{1b}[0m <b>\n", "red <b>\n"),
            ("\u{1b}]0;title\u{7}a\u{1b}]8;;x\u{1b}\\b", "ab"),
            ("10%\r50%\r100%\r\ndone", "100%\ndone"),
            ("\u{1b}[2", "\u{fffd}[2"),
            ("a\u{1b}", "a\u{fffd}"),
            ("\u{1b}ä\u{202e}x\0", "\u{fffd}ä\u{fffd}x\u{fffd}"),
        ] {
            assert_eq!(plain(text), shown, "{text:?}");
        }
    }

    #[test]
    fn of_a_long_text_the_ends_are_shown() {
        let text = format!("a{}z", "ü".repeat(5 << 20));
        let shown = Shown::of(&text);
        assert!(shown.head.starts_with("aü") && shown.tail.ends_with("üz"));
        assert_eq!(shown.head.len() + shown.left_out + shown.tail.len(), text.len());
        assert!(shown.head.len() + shown.tail.len() <= LONGEST + 4);
        let code = Shown::of_code("steal()\rprint(1)\r\na = '\u{1b}]'; b = '\u{7}'");
        assert!(code.head.starts_with("steal()\nprint(1)\na = '"), "{code:?}");
        assert!(code.head.contains("; b = '") && !code.head.contains('\u{1b}'), "{code:?}");
        assert_eq!(Shown::of("short"), Shown { head: "short".into(), ..Shown::default() });
    }

    #[test]
    fn durations_have_units() {
        for (milliseconds, text) in [
            (0.25, "250 µs"),
            (12.9, "12 ms"),
            (1_500.0, "1.5 s"),
            (59_000.0, "59 s"),
            (61_000.0, "1 min 1 s"),
            (90_000_000.0, "1 d 1 h"),
            (f64::NAN, "0 µs"),
        ] {
            assert_eq!(super::milliseconds(milliseconds), text);
        }
    }

    #[test]
    fn a_line_is_short() {
        assert_eq!(in_a_line("\n\n  import x\nprint()"), "import x");
        assert_eq!(in_a_line(&"x".repeat(1000)).chars().count(), LONGEST_LINE + 1);
    }
}
