//! Progress bars: lines that are written again and again over each other, as on a terminal.

use std::borrow::Cow;
use std::mem;

use codebridge_runtimes::exec::visible_line;
use memchr::{memchr2, memchr3, memrchr};

/// Bytes of a line that may be written over. A longer one is no progress bar.
const LONGEST: usize = 4 << 10;
/// Lines that bars may move up and down in, as on a terminal.
const MOST_ROWS: usize = 32;
/// Bytes of a control sequence. A longer one is text.
const LONGEST_SEQUENCE: usize = 32;
/// Characters of bars that are shown as progress.
const LONGEST_PROGRESS: usize = 200;
const ESCAPE: u8 = 0x1b;

/// Passes on a stream as a terminal would show it in the end: of a line that is written over, only the last form. Everything
/// else stays as it is, byte by byte.
#[derive(Debug)]
pub struct Rewritten {
    /// The lines that may still be written over, with the one that is being written; never empty.
    rows: Vec<Row>,
    /// Which of them is being written.
    at: usize,
    /// Whether the next text replaces that line.
    returned: bool,
    /// Whether it was reached by the end of the one above, and has no text since.
    entered: bool,
    /// Whether the cursor is hidden: bars of several lines are on the screen.
    hidden: bool,
    /// Whether the first line is too long to be held back.
    is_long: bool,
    /// A control sequence that has not ended.
    sequence: Vec<u8>,
    /// The progress that was returned last.
    shown: String,
}

#[derive(Debug, Default)]
struct Row {
    bytes: Vec<u8>,
    /// Whether it was written over.
    is_bar: bool,
}

impl Row {
    fn is_empty_bar(&self) -> bool {
        self.is_bar && text_of(&self.bytes).trim().is_empty()
    }
}

impl Default for Rewritten {
    fn default() -> Self {
        Self {
            rows: vec![Row::default()],
            at: 0,
            returned: false,
            entered: false,
            hidden: false,
            is_long: false,
            sequence: Vec::new(),
            shown: String::new(),
        }
    }
}

impl Rewritten {
    /// Takes bytes and returns those that stay.
    pub fn push<'a>(&mut self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        if self.is_plain() && memchr2(b'\r', ESCAPE, bytes).is_none() {
            return self.push_plain(bytes);
        }
        let (mut kept, mut rest) = (Vec::with_capacity(bytes.len()), bytes);
        while let Some((&byte, after)) = rest.split_first() {
            if !self.sequence.is_empty() {
                if self.continue_sequence(byte, &mut kept) {
                    rest = after;
                }
                continue;
            }
            let text = memchr3(b'\n', b'\r', ESCAPE, rest).unwrap_or(rest.len());
            match byte {
                _ if text > 0 => self.write(&rest[..text], &mut kept),
                b'\n' => self.end_row(&mut kept),
                b'\r' => self.returned = true,
                _ => self.sequence.push(byte),
            }
            rest = &rest[text.max(1)..];
        }
        Cow::Owned(kept)
    }

    /// Whether all that is held back is the beginning of a line.
    fn is_plain(&self) -> bool {
        let is_waiting = self.returned || self.hidden || !self.sequence.is_empty();
        self.rows.len() == 1 && !self.rows[0].is_bar && !is_waiting
    }

    fn push_plain<'a>(&mut self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let (lines, line) = bytes.split_at(memrchr(b'\n', bytes).map_or(0, |end| end + 1));
        let mut kept = Cow::Borrowed(lines);
        if !lines.is_empty() {
            (self.is_long, self.entered) = (false, true);
            let first = mem::take(&mut self.rows[0].bytes);
            if !first.is_empty() {
                kept = Cow::Owned([&first, lines].concat());
            }
        }
        if !line.is_empty() {
            let mut long = Vec::new();
            self.write(line, &mut long);
            if !long.is_empty() {
                kept.to_mut().append(&mut long);
            }
        }
        kept
    }

    fn write(&mut self, text: &[u8], kept: &mut Vec<u8>) {
        let (returned, entered) = (mem::take(&mut self.returned), mem::take(&mut self.entered));
        if returned {
            if mem::take(&mut self.is_long) {
                kept.push(b'\n');
            }
            if !entered {
                // Bars are written from the top, so what is above them stays.
                self.release(self.at, kept);
            }
        }
        let row = &mut self.rows[self.at];
        // Text after the end of bars is none.
        row.is_bar = returned || (row.is_bar && (!entered || row.bytes.is_empty()));
        if returned || entered {
            row.bytes.clear();
        }
        if !self.is_long && row.bytes.len() + text.len() < LONGEST {
            row.bytes.extend_from_slice(text);
            return;
        }
        self.release(self.at, kept);
        kept.append(&mut self.rows[0].bytes);
        kept.extend_from_slice(text);
        self.is_long = true;
    }

    fn end_row(&mut self, kept: &mut Vec<u8>) {
        let is_last = self.at + 1 == self.rows.len();
        let row = &mut self.rows[self.at];
        let is_held = (row.is_bar || self.hidden) && !self.is_long;
        if self.returned && !row.is_bar && is_last && !row.bytes.ends_with(b"\r") {
            row.bytes.push(b'\r');
        }
        (self.returned, self.entered) = (false, true);
        if is_last {
            self.rows.push(Row::default());
        }
        self.at += 1;
        if mem::take(&mut self.is_long) {
            // The rest of it: it is the first one.
            let row = self.rows.remove(0);
            kept.extend(row.bytes);
            kept.push(b'\n');
            self.at -= 1;
        } else if is_last && !is_held {
            self.release(self.at, kept);
        } else if self.rows.len() > MOST_ROWS {
            self.release(1, kept);
        }
    }

    /// Passes on the first rows: nothing writes over them any more.
    fn release(&mut self, count: usize, kept: &mut Vec<u8>) {
        for row in self.rows.drain(..count).filter(|row| !row.is_empty_bar()) {
            kept.extend(row.bytes);
            kept.push(b'\n');
        }
        self.at -= count;
    }

    /// Takes the next byte of a control sequence; false if it is none of it.
    fn continue_sequence(&mut self, byte: u8, kept: &mut Vec<u8>) -> bool {
        let is_part = match self.sequence.len() {
            1 => byte == b'[',
            length => length < LONGEST_SEQUENCE && matches!(byte, b' '..=b'~'),
        };
        if is_part {
            self.sequence.push(byte);
        }
        let is_end = self.sequence.len() > 2 && matches!(byte, b'@'..=b'~');
        if !is_part || is_end {
            let sequence = mem::take(&mut self.sequence);
            if !is_part || !self.obey(&sequence) {
                self.write(&sequence, kept);
            }
        }
        is_part
    }

    /// Does what progress bars need (<https://man7.org/linux/man-pages/man4/console_codes.4.html>); false if that is something else.
    fn obey(&mut self, sequence: &[u8]) -> bool {
        let [ESCAPE, b'[', parameters @ .., last] = sequence else { return false };
        let number = str::from_utf8(parameters).ok().and_then(|text| text.parse().ok());
        let count = if parameters.is_empty() { Some(1) } else { number };
        match (last, parameters, count) {
            (b'A' | b'F', _, Some(count)) => self.move_to(self.at.saturating_sub(count)),
            (b'B' | b'E', _, Some(count)) => self.move_to(self.at.saturating_add(count)),
            (b'G', _, Some(0 | 1)) => self.returned = true,
            (b'K', b"" | b"0", _) => self.erase(self.returned),
            (b'K', b"1" | b"2", _) => self.erase(true),
            (b'J', b"" | b"0", _) => {
                self.erase(self.returned);
                self.rows.truncate(self.at + 1);
            }
            (b'l' | b'h', b"?25", _) => self.hidden = *last == b'l',
            // A colour is no text that replaces the line.
            (b'm', ..) => return self.returned,
            _ => return false,
        }
        true
    }

    fn move_to(&mut self, row: usize) {
        self.at = if self.is_long { 0 } else { row.min(self.rows.len() - 1) };
        (self.returned, self.entered) = (true, false);
    }

    fn erase(&mut self, is_whole: bool) {
        if is_whole {
            self.rows[self.at] = Row { bytes: Vec::new(), is_bar: true };
        }
    }

    /// Returns how many bytes are held back.
    pub(in crate::session) fn held(&self) -> usize {
        self.rows.iter().map(|row| row.bytes.len()).sum()
    }

    /// Returns what the bars show, if that is new.
    pub fn progress(&mut self) -> Option<String> {
        if !self.rows.iter().any(|row| row.is_bar) {
            return None;
        }
        let rows = self.rows.iter().map(|row| text_of(&row.bytes).trim().to_owned());
        let shown: Vec<String> = rows.filter(|row| !row.is_empty()).collect();
        let shown: String = visible_line(&shown.join(" · ")).chars().take(LONGEST_PROGRESS).collect();
        let is_new = self.shown != shown && !shown.is_empty();
        is_new.then(|| self.shown.clone_from(&shown)).map(|()| shown)
    }

    /// Returns what is held back.
    pub(in crate::session) fn finish(&mut self) -> Vec<u8> {
        let mut kept = Vec::new();
        let sequence = mem::take(&mut self.sequence);
        if !sequence.is_empty() {
            self.write(&sequence, &mut kept);
        }
        let Self { rows, shown, .. } = mem::take(self);
        self.shown = shown;
        let last = rows.len() - 1;
        for (number, row) in rows.into_iter().enumerate().filter(|(_, row)| !row.is_empty_bar()) {
            kept.extend(row.bytes);
            if number < last {
                kept.push(b'\n');
            }
        }
        kept
    }
}

/// Returns a line without colours.
fn text_of(row: &[u8]) -> String {
    let text = String::from_utf8_lossy(row);
    let mut pieces = text.split("\x1b[");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |text, piece| {
        let end = piece.find(|c| matches!(c, '@'..='~')).map_or(piece.len(), |end| end + 1);
        text + &piece[end..]
    })
}

#[cfg(test)]
mod tests;
