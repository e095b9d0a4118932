//! The frames between the bridge and the guest; `src/guest/FRAMES.md` has their table.
//!
//! What comes from the sandbox is hostile: types and lengths are checked before anything is read or kept.

use std::io;

use codebridge_runtimes::exec::printable;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::call::{ChangedFiles, PART};
use crate::upstream::CallOutcome;

/// Type, id and length.
const HEADER: usize = 9;

/// Characters of a notice, or of the line that says how a run ended; the guest sends shorter ones.
const LONGEST_MESSAGE: usize = 4_000;

/// Bytes of output in one piece.
const PIECE: u32 = 256 << 10;

#[derive(Debug)]
pub(super) enum ToGuest {
    /// What the coming run may use, as JSON.
    Context(Vec<u8>),
    Run(u32, String),
    /// How the coming run was started.
    Script(Vec<u8>),
    Interrupt(u32),
    /// The answer to a question, as JSON.
    Answer(u32, AnswerJson),
    /// A question that an interpreter which waits for its session answers, and whether it gets ready for more than the least.
    Alive {
        loads_ahead: bool,
    },
    /// A question that process 1 answers at any time.
    Ping,
    /// A function to define before the first run: name and source.
    SavedTool(String, String),
    /// A request for a part of a file of the workspace.
    File {
        id: u32,
        start: u64,
        path: Vec<u8>,
    },
}

/// An answer as it is written.
#[derive(Debug)]
pub(super) enum AnswerJson {
    Made(Vec<u8>),
    /// The result of a call, which is not copied: it may have megabytes. It counts as unread until it is written.
    Result(CallOutcome),
}

impl AnswerJson {
    fn pieces(&self) -> [&[u8]; 3] {
        match self {
            Self::Made(json) => [json, b"", b""],
            Self::Result(result) => [br#"{"ok":"#, result.json.get().as_bytes(), b"}"],
        }
    }
}

impl ToGuest {
    /// Returns type, id and payload.
    fn parts(self) -> (u8, u32, AnswerJson) {
        let (kind, id, payload) = match self {
            Self::Answer(id, answer) => return (b'A', id, answer),
            Self::Context(json) => (b'C', 0, json),
            Self::Run(id, source) => (b'R', id, source.into_bytes()),
            Self::Script(json) => (b'Z', 0, json),
            Self::Interrupt(id) => (b'I', id, Vec::new()),
            Self::Alive { loads_ahead } => (b'L', u32::from(loads_ahead), Vec::new()),
            Self::Ping => (b'L', 2, Vec::new()),
            Self::File { id, start, path } => {
                (b'G', id, [format!("{start} {} ", PART).as_bytes(), &path].concat())
            }
            Self::SavedTool(name, source) => (b'S', 0, format!("{name}\n{source}").into_bytes()),
        };
        (kind, id, AnswerJson::Made(payload))
    }

    pub(super) async fn write(self, writer: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let (kind, id, payload) = self.parts();
        let pieces = payload.pieces();
        let bytes = pieces.iter().map(|piece| piece.len()).sum::<usize>();
        let length = u32::try_from(bytes)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidInput, "a frame holds at most 4 GiB"))?;
        let is_short = bytes <= 64 << 10;
        let mut frame = Vec::with_capacity(HEADER + if is_short { bytes } else { 0 });
        frame.push(kind);
        frame.extend(id.to_be_bytes());
        frame.extend(length.to_be_bytes());
        if is_short {
            // One write for header and payload: each write wakes the processes of the engine.
            pieces.iter().for_each(|piece| frame.extend_from_slice(piece));
            writer.write_all(&frame).await?;
        } else {
            for piece in [&frame[..], pieces[0], pieces[1], pieces[2]] {
                writer.write_all(piece).await?;
            }
        }
        writer.flush().await
    }
}

/// How the interpreter says that a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DoneStatus {
    Ok,
    Error,
    Exit,
    Interrupted,
    /// What the code needs could not be prepared; none of it ran.
    Refused,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FromGuest {
    /// All parts of the guest in compiled form; user code may have forged them after the hello.
    Parts(Vec<u8>),
    /// The interpreter is ready; protocol version.
    Hello(u32),
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    /// A traceback, or a piece of one.
    Traceback(Vec<u8>),
    /// A piece of an object that the code displayed.
    Display {
        piece: Vec<u8>,
        is_last: bool,
    },
    /// Text for the result.
    Notice(String),
    /// The files that the run made or changed.
    Files(ChangedFiles),
    /// The answer to a request for a part of a file.
    FilePart(u32, Vec<u8>),
    /// Bytes of an artifact that is being saved.
    ArtifactBytes(u32, Vec<u8>),
    /// A run has ended: run, status, exit code, one line of error.
    Done(u32, DoneStatus, i32, String),
    /// A question of so many bytes of JSON, which come next.
    Question(u32, u32),
    /// The answer to that question is no longer needed.
    Withdraw(u32),
    /// It waits for code; or process 1 is there.
    Alive,
    End(InterpreterEnd),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct InterpreterEnd {
    pub(super) exit: Option<i32>,
    pub(super) signal: Option<i32>,
    /// Whether the kernel killed it because memory ran out.
    pub(super) out_of_memory: bool,
}

/// Bytes that are not a frame.
#[derive(Debug, thiserror::Error)]
pub(super) enum FrameError {
    #[error("the connection to the sandbox broke: {0}")]
    Io(#[from] io::Error),
    #[error("the sandbox sent a frame of unknown type {0:#04x}")]
    Type(u8),
    #[error("the sandbox sent a frame of type '{kind}' with {length} bytes, more than {limit}")]
    Length { kind: char, length: u32, limit: u32 },
    #[error("the sandbox sent a malformed frame of type '{0}'")]
    Malformed(char),
    #[error("the sandbox stopped in the middle of a large question")]
    Stalled,
}

/// The longest payload of a type, as `FRAMES.md` says; None for types that are not in the table.
fn limit_of(kind: u8) -> Option<u32> {
    match kind {
        b'O' | b'E' => Some(256 << 10),
        b'T' => Some(4 << 20),
        b'F' => Some(1 << 20),
        b'G' => Some((256 << 10) + 32),
        b'U' => Some(256 << 10),
        b'V' => Some(17 << 20),
        b'N' => Some(64 << 10),
        b'P' => Some(1 << 20),
        b'Q' => Some(64 << 20),
        b'D' => Some(64 << 10),
        b'H' | b'X' => Some(4 << 10),
        b'W' | b'L' => Some(0),
        _ => None,
    }
}

/// Reads frames.
#[derive(Debug)]
pub(super) struct FrameReader<R> {
    reader: R,
    /// The type and the bytes that are still to come of a frame that is passed on in pieces.
    rest: (u8, u32),
    greeted: bool,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(super) fn new(reader: R) -> Self {
        Self { reader, rest: (0, 0), greeted: false }
    }

    /// Reads the next frame; None at the end of the stream. After a question its payload has to be read or skipped.
    pub(super) async fn next(&mut self) -> Result<Option<FromGuest>, FrameError> {
        if self.rest.1 > 0 {
            return self.piece().await.map(Some);
        }
        let mut header = [0; HEADER];
        if self.reader.read(&mut header[..1]).await? == 0 {
            return Ok(None);
        }
        self.reader.read_exact(&mut header[1..]).await?;
        let [kind, rest @ ..] = header;
        let [i0, i1, i2, i3, l0, l1, l2, l3] = rest;
        let (id, length) = (u32::from_be_bytes([i0, i1, i2, i3]), u32::from_be_bytes([l0, l1, l2, l3]));
        let limit = limit_of(kind).ok_or(FrameError::Type(kind))?;
        if length > limit {
            return Err(FrameError::Length { kind: kind.into(), length, limit });
        }
        match kind {
            b'Q' => return Ok(Some(FromGuest::Question(id, length))),
            b'T' | b'V' => {
                self.rest = (kind, length);
                return self.piece().await.map(Some);
            }
            // It is megabytes for nobody.
            b'P' if self.greeted => return Err(FrameError::Type(kind)),
            b'H' => self.greeted = true,
            _ => {}
        }
        let payload = self.payload(length).await?;
        parse(kind, id, payload).ok_or(FrameError::Malformed(kind.into())).map(Some)
    }

    /// Reads the next part of a long frame: what waits to be taken waits in pieces of one size.
    async fn piece(&mut self) -> Result<FromGuest, FrameError> {
        let (kind, length) = self.rest;
        let now = length.min(PIECE);
        self.rest.1 -= now;
        let piece = self.payload(now).await?;
        Ok(match kind {
            b'V' => FromGuest::Display { piece, is_last: now == length },
            _ => FromGuest::Traceback(piece),
        })
    }

    pub(super) async fn payload(&mut self, length: u32) -> Result<Vec<u8>, FrameError> {
        // Memory grows with what really arrives, not with what the header claims.
        let mut payload = Vec::with_capacity(length.min(PIECE) as usize);
        let arrived = (&mut self.reader).take(length.into()).read_to_end(&mut payload).await?;
        if arrived < length as usize {
            return Err(FrameError::Io(io::ErrorKind::UnexpectedEof.into()));
        }
        Ok(payload)
    }

    pub(super) async fn skip(&mut self, length: u32) -> Result<(), FrameError> {
        tokio::io::copy(&mut (&mut self.reader).take(length.into()), &mut tokio::io::sink()).await?;
        Ok(())
    }
}

fn parse(kind: u8, id: u32, payload: Vec<u8>) -> Option<FromGuest> {
    let text = |payload: Vec<u8>| String::from_utf8_lossy(&payload).into_owned();
    Some(match kind {
        b'O' => FromGuest::Stdout(payload),
        b'E' => FromGuest::Stderr(payload),
        b'P' => FromGuest::Parts(payload),
        b'N' => FromGuest::Notice(message(&text(payload))),
        b'W' => FromGuest::Withdraw(id),
        b'L' => FromGuest::Alive,
        b'F' => FromGuest::Files(ChangedFiles::parse(&payload)),
        b'G' => FromGuest::FilePart(id, payload),
        b'U' => FromGuest::ArtifactBytes(id, payload),
        b'H' => FromGuest::Hello(parse_hello(&text(payload))?),
        b'D' => parse_done(id, &message(&text(payload)))?,
        b'X' => FromGuest::End(parse_end(&text(payload))?),
        _ => return None,
    })
}

/// Returns text that is shown beside the output and its budget: printable, and bounded.
fn message(text: &str) -> String {
    let end = text.char_indices().nth(LONGEST_MESSAGE).map_or(text.len(), |(end, _)| end);
    printable(&text[..end])
}

/// `protocol=1 python=3.14.0`
fn parse_hello(text: &str) -> Option<u32> {
    text.split_whitespace().find_map(|word| word.strip_prefix("protocol="))?.parse().ok()
}

/// `STATUS EXIT_CODE\nERROR`
fn parse_done(id: u32, text: &str) -> Option<FromGuest> {
    let (first, error) = text.split_once('\n').unwrap_or((text, ""));
    let (status, code) = first.split_once(' ')?;
    let status = match status {
        "ok" => DoneStatus::Ok,
        "error" => DoneStatus::Error,
        "exit" => DoneStatus::Exit,
        "interrupted" => DoneStatus::Interrupted,
        "refused" => DoneStatus::Refused,
        _ => return None,
    };
    Some(FromGuest::Done(id, status, code.parse().ok()?, error.trim_end().to_string()))
}

/// `exit N` or `signal N`, and ` oom`
fn parse_end(text: &str) -> Option<InterpreterEnd> {
    let mut words = text.split_whitespace();
    let (kind, number) = (words.next()?, words.next()?.parse().ok()?);
    let out_of_memory = words.next() == Some("oom");
    match kind {
        "exit" => Some(InterpreterEnd { exit: Some(number), signal: None, out_of_memory }),
        "signal" => Some(InterpreterEnd { exit: None, signal: Some(number), out_of_memory }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;

    fn frame(kind: u8, id: u32, length: u32, payload: &[u8]) -> Vec<u8> {
        [&[kind][..], &id.to_be_bytes(), &length.to_be_bytes(), payload].concat()
    }

    async fn read_bytes(bytes: &[u8]) -> Result<Option<FromGuest>, FrameError> {
        FrameReader::new(bytes).next().await
    }

    #[tokio::test]
    async fn a_long_traceback_comes_in_pieces() {
        let bytes = [frame(b'T', 1, 600 << 10, &vec![b'x'; 600 << 10]), frame(b'W', 2, 0, b"")].concat();
        let mut reader = FrameReader::new(&bytes[..]);
        let mut pieces = Vec::new();
        while let Some(FromGuest::Traceback(piece)) = reader.next().await.unwrap() {
            pieces.push(piece.len() >> 10);
        }
        assert_eq!(pieces, [256, 256, 88]);
    }

    #[tokio::test]
    async fn a_question_is_read_or_skipped() {
        let bytes = [frame(b'Q', 1, 3, b"abc"), frame(b'Q', 2, 3, b"def"), frame(b'W', 1, 0, b"")].concat();
        let mut reader = FrameReader::new(&bytes[..]);
        assert_eq!(reader.next().await.unwrap(), Some(FromGuest::Question(1, 3)));
        reader.skip(3).await.unwrap();
        assert_eq!(reader.next().await.unwrap(), Some(FromGuest::Question(2, 3)));
        assert_eq!(reader.payload(3).await.unwrap(), b"def");
        assert_eq!(reader.next().await.unwrap(), Some(FromGuest::Withdraw(1)));
    }

    #[tokio::test]
    async fn parts_are_offered_before_the_hello_only() {
        let bytes =
            [frame(b'P', 0, 1, b"x"), frame(b'H', 0, 10, b"protocol=1"), frame(b'P', 0, 1, b"x")].concat();
        let mut reader = FrameReader::new(&bytes[..]);
        assert_eq!(reader.next().await.unwrap(), Some(FromGuest::Parts(b"x".into())));
        assert_eq!(reader.next().await.unwrap(), Some(FromGuest::Hello(1)));
        assert!(matches!(reader.next().await, Err(FrameError::Type(b'P'))));
    }

    #[tokio::test]
    async fn answers_are_written_alike_whatever_their_length() {
        for length in [10, 1 << 20] {
            let json = format!("\"{}\"", "x".repeat(length));
            let expected = format!("{{\"ok\":{json}}}");
            let mut written = Vec::new();
            let result = AnswerJson::Result(CallOutcome::new(RawValue::from_string(json).unwrap(), None));
            ToGuest::Answer(7, result).write(&mut written).await.unwrap();
            let claimed = expected.len().try_into().unwrap();
            assert!(written == frame(b'A', 7, claimed, expected.as_bytes()));
        }
    }

    #[tokio::test]
    async fn well_formed_frames_are_read() {
        let done = frame(b'D', 7, 14, b"exit 3\nno luck");
        let expected = FromGuest::Done(7, DoneStatus::Exit, 3, "no luck".into());
        assert_eq!(read_bytes(&done).await.unwrap(), Some(expected));
        let notice = frame(b'N', 7, 6, b"\x1b[2J\n!");
        let expected = FromGuest::Notice("\u{fffd}[2J\n!".into());
        assert_eq!(read_bytes(&notice).await.unwrap(), Some(expected));
        let end = frame(b'X', 0, 12, b"signal 9 oom");
        let expected = InterpreterEnd { exit: None, signal: Some(9), out_of_memory: true };
        assert_eq!(read_bytes(&end).await.unwrap(), Some(FromGuest::End(expected)));
        assert_eq!(read_bytes(b"").await.unwrap(), None);
    }

    #[tokio::test]
    async fn forged_frames_are_refused_before_their_payload_is_read() {
        assert!(matches!(read_bytes(&frame(b'R', 1, 1, b"x")).await, Err(FrameError::Type(b'R'))));
        let huge = frame(b'O', 1, u32::MAX, b"");
        assert!(matches!(read_bytes(&huge).await, Err(FrameError::Length { kind: 'O', .. })));
        for payload in [&b"ok"[..], b"fine 0\n", b"ok x\n", b""] {
            let bytes = frame(b'D', 1, payload.len().try_into().unwrap(), payload);
            assert!(matches!(read_bytes(&bytes).await, Err(FrameError::Malformed('D'))), "{payload:?}");
        }
        let cut = frame(b'O', 1, 10, b"abc");
        assert!(matches!(read_bytes(&cut).await, Err(FrameError::Io(_))));
    }
}
