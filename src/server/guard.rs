//! Answers requests whose handler panics: the caller must not wait for ever.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use rmcp::model::ErrorData;

/// Handles a request; a panic is an error of this request alone.
pub(super) async fn guarded<T>(handling: impl Future<Output = Result<T, ErrorData>>) -> Result<T, ErrorData> {
    AssertUnwindSafe(handling).catch_unwind().await.unwrap_or_else(|_| {
        let message = "the request failed because of a bug in codebridge; see its log";
        Err(ErrorData::internal_error(message, None))
    })
}
