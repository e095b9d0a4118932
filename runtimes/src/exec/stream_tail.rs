//! The end of what a child writes, for messages about it.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncRead, AsyncReadExt};

/// How many bytes are kept.
const LIMIT: usize = 8 << 10;

/// The last bytes of a stream, which one task collects and messages show.
#[derive(Debug, Clone, Default)]
pub struct StreamTail(Arc<Mutex<Vec<u8>>>);

impl StreamTail {
    /// Reads a stream to its end.
    pub async fn collect(self, mut stream: impl AsyncRead + Unpin) {
        let mut chunk = vec![0; 1 << 10];
        while let Ok(count @ 1..) = stream.read(&mut chunk).await {
            let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            kept.extend_from_slice(&chunk[..count]);
            if let Some(surplus) = kept.len().checked_sub(LIMIT) {
                kept.drain(..surplus);
            }
        }
    }

    /// Returns the trimmed text of what was collected so far. It may contain control characters and credentials.
    pub fn text(&self) -> String {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&kept).trim().to_string()
    }
}
