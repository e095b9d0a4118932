//! Progress bars: lines that are written again and again over each other, with carriage returns between them.

/// Bytes of a line that may be written over. A longer one is no progress bar.
const LONGEST: usize = 4 << 10;

/// Passes on a stream as a terminal would show it in the end: of a line that is written over, only the last form.
#[derive(Debug, Default)]
pub(in crate::session) struct Rewritten {
    /// The line that is being written, as far as it may be written over.
    line: Vec<u8>,
    /// Whether the last byte was a carriage return: a line end may follow it.
    returned: bool,
    /// Whether the line is too long to be held back.
    is_long: bool,
}

impl Rewritten {
    /// Takes bytes and returns those that stay.
    pub(in crate::session) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut kept = Vec::with_capacity(bytes.len());
        for &byte in bytes {
            match byte {
                b'\n' => {
                    kept.append(&mut self.line);
                    kept.push(b'\n');
                    (self.returned, self.is_long) = (false, false);
                }
                b'\r' => self.returned = true,
                _ => {
                    if std::mem::take(&mut self.returned) {
                        self.line.clear();
                        if self.is_long {
                            kept.push(b'\n');
                            self.is_long = false;
                        }
                    }
                    self.line.push(byte);
                    if self.line.len() >= LONGEST {
                        kept.append(&mut self.line);
                        self.is_long = true;
                    }
                }
            }
        }
        kept
    }

    /// Returns the last line, if it has no end.
    pub(in crate::session) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pieces: &[&str]) -> String {
        let mut rewritten = Rewritten::default();
        let mut shown: Vec<u8> = pieces.iter().flat_map(|piece| rewritten.push(piece.as_bytes())).collect();
        shown.extend(rewritten.finish());
        String::from_utf8(shown).unwrap()
    }

    #[test]
    fn a_line_that_is_written_over_is_shown_once() {
        for (pieces, expected) in [
            (&["a\nb"][..], "a\nb"),
            (&["  0%|\r 50%|\r", "100%|##\nnext\n"], "100%|##\nnext\n"),
            (&["10%\r20%\r"], "20%"),
            (&["a\r\nb\r", "\n"], "a\nb\n"),
            (&["one\r", "\rtwo"], "two"),
        ] {
            assert_eq!(shown(pieces), expected, "{pieces:?}");
        }
    }

    #[test]
    fn a_long_line_is_passed_on() {
        let long = "x".repeat(3 * LONGEST);
        assert_eq!(shown(&[&long, "\rend\n"]), format!("{long}\nend\n"));
    }
}
