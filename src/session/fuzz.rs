//! What code in a sandbox can send, as hostile as it may be: frames, questions, displayed objects, output.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use codebridge_fuzz::{Choices, fuzz};
use futures_util::FutureExt;
use tokio::io::{AsyncRead, ReadBuf};

use super::frames::{DoneStatus, FrameReader, FromGuest, InterpreterEnd};
use super::output::{Capture, DisplayCapture, PictureBudget, Rewritten};
use super::questions::GuestQuestion;

/// Bytes of an answer to a question that cannot be read.
const LONGEST_ANSWER: usize = 10_000;

/// Bytes that arrive in small pieces.
struct Pieces<'a>(&'a [u8], usize);

impl AsyncRead for Pieces<'_> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let (piece, rest) = self.0.split_at(self.0.len().min(self.1).min(into.remaining()));
        into.put_slice(piece);
        self.0 = rest;
        Poll::Ready(Ok(()))
    }
}

/// All frames of a stream up to the first that is malformed, the questions with their JSON, and how it ended.
#[derive(Debug, Default, PartialEq, Eq)]
struct Frames {
    frames: Vec<(FromGuest, Vec<u8>)>,
    end: String,
}

impl Frames {
    async fn read(input: impl AsyncRead + Unpin) -> Self {
        let (mut reader, mut all) = (FrameReader::new(input), Self::default());
        loop {
            let mut json = Vec::new();
            let frame = match reader.next().await {
                Ok(None) => return all,
                Ok(Some(FromGuest::Question(id, length))) => match reader.payload(length).await {
                    Ok(payload) => {
                        json = payload;
                        FromGuest::Question(id, length)
                    }
                    Err(error) => return Self { end: error.to_string(), ..all },
                },
                Ok(Some(frame)) => frame,
                Err(error) => return Self { end: error.to_string(), ..all },
            };
            all.frames.push((frame, json));
        }
    }

    fn of(bytes: &[u8], piece: usize) -> Self {
        // Nothing here ever waits.
        Self::read(Pieces(bytes, piece)).now_or_never().unwrap()
    }
}

/// Writes a frame as a guest does.
fn written(frame: &FromGuest, json: &[u8]) -> Vec<u8> {
    let text = |text: String| text.into_bytes();
    let (kind, id, payload) = match frame {
        FromGuest::Parts(bytes) => (b'P', 0, bytes.clone()),
        FromGuest::Hello(version) => (b'H', 0, text(format!("protocol={version}"))),
        FromGuest::Stdout(bytes) => (b'O', 0, bytes.clone()),
        FromGuest::Stderr(bytes) => (b'E', 0, bytes.clone()),
        FromGuest::Traceback(piece) => (b'T', 0, piece.clone()),
        FromGuest::Display { piece, .. } => (b'V', 0, piece.clone()),
        FromGuest::Notice(notice) => (b'N', 0, text(notice.clone())),
        FromGuest::Files(changed) => {
            let files = changed.files.iter();
            let files = files.flat_map(|file| [text(format!("{} ", file.bytes)), file.path.clone(), vec![0]]);
            let gone = changed.gone.iter().flat_map(|path| [b"- ".to_vec(), path.clone(), vec![0]]);
            let cut = changed.is_cut.then(|| b"0 \0".to_vec());
            (b'F', 0, files.chain(gone).chain(cut).flatten().collect())
        }
        FromGuest::FilePart(id, bytes) => (b'G', *id, bytes.clone()),
        FromGuest::ArtifactBytes(id, bytes) => (b'U', *id, bytes.clone()),
        FromGuest::Done(id, status, code, error) => {
            let status = match status {
                DoneStatus::Ok => "ok",
                DoneStatus::Error => "error",
                DoneStatus::Exit => "exit",
                DoneStatus::Interrupted => "interrupted",
                DoneStatus::Refused => "refused",
            };
            (b'D', *id, text(format!("{status} {code}\n{error}")))
        }
        FromGuest::Question(id, _) => (b'Q', *id, json.to_vec()),
        FromGuest::Withdraw(id) => (b'W', *id, Vec::new()),
        FromGuest::Alive => (b'L', 0, Vec::new()),
        FromGuest::End(InterpreterEnd { exit, signal, out_of_memory }) => {
            let (word, number) = exit.map_or(("signal", *signal), |code| ("exit", Some(code)));
            let oom = if *out_of_memory { " oom" } else { "" };
            (b'X', 0, text(format!("{word} {}{oom}", number.unwrap_or_default())))
        }
    };
    let length = u32::try_from(payload.len()).unwrap();
    [&[kind][..], &id.to_be_bytes(), &length.to_be_bytes(), &payload].concat()
}

#[test]
fn frames_are_read_as_they_are_written() {
    let words = [
        "O\0\0\0\0\0\0\0", "ok 0\n", "refused -1\n", "protocol=1", "signal 9 oom", "exit 0", "0 \0", "- x\0",
    ];
    fuzz("frames", &words, |bytes| {
        let all = Frames::of(bytes, usize::MAX);
        assert_eq!(all, Frames::of(bytes, 3), "the pieces in which bytes arrive matter");
        let again: Vec<u8> = all.frames.iter().flat_map(|(frame, json)| written(frame, json)).collect();
        // A byte that is not UTF-8 becomes three.
        assert!(
            again.len() <= 3 * bytes.len() + 64 * all.frames.len(),
            "{} bytes became {}",
            bytes.len(),
            again.len()
        );
        assert_eq!(
            Frames::of(&again, usize::MAX).frames,
            all.frames,
            "they are not read as they are written"
        );
        for (frame, json) in all.frames {
            match frame {
                FromGuest::Question(..) => {
                    if let Err(error) = GuestQuestion::parse(json, None) {
                        assert!(error.to_json().len() < LONGEST_ANSWER, "{error:?}");
                    }
                }
                FromGuest::Notice(text) | FromGuest::Done(.., text) => {
                    assert!(!text.contains(|c: char| c.is_control() && !c.is_whitespace()), "{text:?}");
                }
                _ => {}
            }
        }
    });
}

#[test]
fn questions_that_are_malformed_get_short_answers() {
    fuzz("questions", &["method", "params"], |bytes| {
        if let Err(error) = GuestQuestion::parse(bytes.to_vec(), None) {
            assert!(error.to_json().len() < LONGEST_ANSWER, "{error:?}");
        }
    });
}

#[test]
fn displays_are_what_was_sent() {
    let budget = PictureBudget { count: 2, bytes: 1000 };
    fuzz("displays", &["image/png", "image/jpeg", "text/html", "]]\n", "\u{89}PNG\r\n\x1a\n"], |bytes| {
        let shown = |cuts: &[usize]| {
            let (mut capture, mut rest) = (DisplayCapture::new(Arc::default()), bytes);
            for cut in cuts {
                let (piece, others) = rest.split_at((*cut).min(rest.len()));
                capture.push(piece, false, 0);
                rest = others;
            }
            let is_kept = capture.push(rest, true, 5);
            let mut notices = Vec::new();
            let (displays, kept) = capture.finish(1, budget, |bytes| bytes as usize, &mut notices);
            assert_eq!((displays.len(), notices.len()), if is_kept { (1, 0) } else { (0, 1) });
            assert_eq!(kept.is_some(), is_kept);
            (displays, kept.map(|kept| kept.read(1).unwrap()))
        };
        let (displays, forms) = shown(&[]);
        assert_eq!((&displays, &forms), (&shown(&[1, 7]).0, &shown(&[bytes.len() / 2]).1), "pieces matter");
        let Some(forms) = forms else { return };
        let contents: Vec<u8> = forms.iter().flat_map(|(_, content)| content.clone()).collect();
        assert!(bytes.ends_with(&contents), "the forms are not what was sent");
        for (mime, _) in &forms {
            assert!(
                mime.len() <= 100 && mime.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()),
                "{mime:?}"
            );
            assert!(!mime.contains(['<', '>', '"', '\'', '\\']), "{mime:?}");
        }
        if let Some(picture) = &displays[0].picture {
            assert!(matches!(&*picture.mime, "image/png" | "image/jpeg"));
            let data = picture.data.as_ref().map(Vec::len);
            assert!(data.is_none_or(|data| data as u64 == picture.bytes && picture.bytes <= budget.bytes));
        }
    });
}

#[test]
fn output_is_cut_within_its_budget() {
    fuzz("output", &[], |bytes| {
        let mut choices = Choices::new(bytes);
        let budget = choices.below(200);
        let parts =
            ["a", "bc", "\n", "\u{e4}", "\u{1f980}", "line\n", "\n\n", "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"];
        let mut capture = Capture::new(budget, Arc::default());
        let mut all = String::new();
        while !choices.is_empty() {
            let text = choices.text(&parts, 40);
            // A character may be cut in two where one piece ends.
            let (first, second) = text.as_bytes().split_at(choices.below(text.len() + 1));
            capture.push(first);
            capture.push(second);
            all.push_str(&text);
        }
        let (shown, kept) = capture.finish(|| "ask".into());
        assert_eq!((shown.total_bytes, shown.truncated), (all.len() as u64, all.len() > budget));
        if !shown.truncated {
            assert!(shown.text == all && kept.is_none());
            return;
        }
        assert_eq!(kept.unwrap().read(0, u64::MAX), all.as_bytes());
        let (notice, rest) = shown.text.split_once('\n').unwrap();
        assert!(notice.starts_with(&format!("[output cut: {} bytes in total, ", all.len())), "{notice}");
        let (head, rest) = rest.split_once("\n[\u{2026} ").unwrap();
        let (omitted, tail) = rest.split_once(" bytes \u{2026}]\n").unwrap();
        assert!(all.starts_with(head) && all.ends_with(tail), "{head:?} and {tail:?} of {all:?}");
        assert!(head.len() + tail.len() <= budget, "more than {budget} bytes: {:?}", shown.text);
        assert!(all.len() - omitted.parse::<usize>().unwrap() <= budget);
        assert!(budget < 8 || !tail.is_empty(), "nothing of the end is shown");
    });
}

#[test]
fn rewritten_lines_are_shown_once() {
    let words = ["\r", "\n", "\r\n", "\x1b[", "\x1b[A", "\x1b[2K", "\x1b[J", "\x1b[B", "\x1b[?25l"];
    fuzz("rewritten_lines", &words, |bytes| {
        let shown = |piece: usize| {
            let mut rewritten = Rewritten::default();
            let mut shown = Vec::new();
            for piece in bytes.chunks(piece) {
                shown.extend_from_slice(&rewritten.push(piece));
                let _ = rewritten.progress();
            }
            shown.extend(rewritten.finish());
            shown
        };
        let whole = shown(usize::MAX);
        assert_eq!(whole, shown(1), "pieces matter");
        let writes_over = |bytes: &[u8]| {
            let rest = bytes.strip_suffix(b"\r").unwrap_or(bytes);
            rest.windows(2).any(|two| two[0] == b'\r' && two[1] != b'\n')
        };
        assert!(whole.len() <= bytes.len() && !writes_over(&whole));
        assert!(bytes.contains(&b'\r') || bytes.contains(&0x1b) || whole == bytes);
    });
}
