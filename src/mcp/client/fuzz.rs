//! Any bytes as what a server sends.

use codebridge_fuzz::fuzz;

use super::message::{FromServer, LogData, MessageReader, read_whole};

/// Characters that are kept of a text that people read.
const LONGEST_SHOWN: usize = 1_000;

#[test]
fn answers_of_servers_are_read_within_bounds() {
    let words = [
        "\"jsonrpc\":\"2.0\"", "\"id\":1", "\"result\":{}", "\"error\":{\"code\":-1}",
        "notifications/progress", "notifications/message", "progressToken", "\"method\":\"",
        "sampling/createMessage", "{\n", "\n}\n", "NaN", "[{",
    ];
    fuzz("answers_of_servers", &words, |bytes| {
        let mut reader = MessageReader::default();
        let lines = bytes.split(|byte| *byte == b'\n').flat_map(|line| reader.read_line(line));
        for message in lines.chain(read_whole(bytes)) {
            match message {
                FromServer::Progress { progress, .. } => {
                    let shown = progress.message.unwrap_or_default();
                    assert!(shown.chars().count() <= LONGEST_SHOWN, "{} characters", shown.chars().count());
                }
                FromServer::Log { level, logger, data } => {
                    let mut names = [level, logger].into_iter().flatten();
                    assert!(names.all(|name| name.len() <= LONGEST_SHOWN));
                    if let LogData::Start(start, length) = data {
                        assert!(start.len() <= length);
                    }
                }
                FromServer::Request { bytes: memory, .. } => assert!(memory <= 1000 * (bytes.len() + 1)),
                other => assert!(!format!("{other:?}").is_empty()),
            }
        }
    });
}
