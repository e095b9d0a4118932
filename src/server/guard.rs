//! Answers requests whose handler panics: the caller must not wait for ever.

use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use rmcp::model::ErrorData;

/// Handles a request; a panic is an error of this request alone.
///
/// It is boxed at once: `rmcp` has the future of a request inside the task of each session, for as long as the session lasts.
pub(super) fn guarded<T>(
    handling: impl Future<Output = Result<T, ErrorData>>,
) -> impl Future<Output = Result<T, ErrorData>> {
    AssertUnwindSafe(Box::pin(handling)).catch_unwind().map(|handled| {
        handled.unwrap_or_else(|_| {
            let message = "the request failed because of a bug in codebridge; see its log";
            Err(ErrorData::internal_error(message, None))
        })
    })
}
