//! What a console asks a bridge in another process, over a socket: a line of JSON each way, one question for each connection.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use crate::activity::{GivenAnswer, StreamName};
use crate::session::FilePart;

/// What a console wants.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Request {
    Runs,
    Run {
        name: String,
    },
    Output {
        run: String,
        stream: StreamName,
        from: u64,
    },
    Display {
        run: String,
        number: usize,
    },
    File {
        run: String,
        number: usize,
        start: u64,
    },
    Stop {
        run: String,
    },
    Questions,
    Answer {
        question: String,
        answer: GivenAnswer,
        by: String,
    },
    Sessions,
    EndSession {
        session: String,
    },
    Servers,
    /// The answer is an empty line for each change, without end.
    Changes,
    /// Somebody answers questions as long as the connection is open.
    Attend,
}

/// A form of a displayed object: its bytes are base64.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WireForm {
    mime: String,
    data: String,
}

/// A part of a file: its bytes are base64.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WirePart {
    size: u64,
    data: String,
}

impl WirePart {
    pub(super) fn new(part: &FilePart) -> Self {
        Self { size: part.size, data: STANDARD.encode(&part.bytes) }
    }

    pub(super) fn decode(self) -> Option<FilePart> {
        Some(FilePart { size: self.size, bytes: STANDARD.decode(self.data).ok()? })
    }
}

impl WireForm {
    pub(super) fn new(mime: String, bytes: &[u8]) -> Self {
        Self { mime, data: STANDARD.encode(bytes) }
    }

    pub(super) fn decode(self) -> Option<(String, Vec<u8>)> {
        Some((self.mime, STANDARD.decode(self.data).ok()?))
    }
}
