//! Bodies of requests, within bounds; and bodies of answers that hold what their request holds.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::body::Bytes;
use http::{HeaderMap, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::mcp::bounds::count_values;

/// The longest body of a request.
pub(super) const LONGEST: usize = 16 << 20;
/// Values of the JSON in a body: each takes some hundred bytes when it is parsed.
const MOST_VALUES: usize = 1 << 20;
/// How long a body may take to arrive.
const ARRIVAL: Duration = Duration::from_secs(60);
/// Bytes that one permit stands for.
const UNIT: usize = 1 << 10;
/// Permits of the bodies that one user can send at once.
pub(super) const PERMITS: usize = 4 * LONGEST / UNIT;

/// Why a body is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Refused(pub(super) StatusCode, pub(super) &'static str);

const TOO_LONG: Refused = Refused(StatusCode::PAYLOAD_TOO_LARGE, "the body is longer than 16 MiB");

/// Reads the body of a request. The permit is for as long as the body is kept.
///
/// # Errors
/// It is too long, comes too slowly, or the user sends too many at once.
pub(super) async fn read(
    headers: &HeaderMap,
    body: Body,
    permits: &Arc<Semaphore>,
) -> Result<(Bytes, OwnedSemaphorePermit), Refused> {
    let length =
        headers.get(http::header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    let most = match length {
        Some(length) if length > LONGEST => return Err(TOO_LONG),
        Some(length) => length,
        None => LONGEST,
    };
    let wanted = u32::try_from(most / UNIT + 1).unwrap_or(u32::MAX);
    let permit = Arc::clone(permits).try_acquire_many_owned(wanted);
    let permit = permit.map_err(|_| {
        Refused(StatusCode::TOO_MANY_REQUESTS, "this user sends too many bytes at once: try again later")
    })?;
    let reading = Limited::new(body, LONGEST).collect();
    match tokio::time::timeout(ARRIVAL, reading).await {
        Ok(Ok(body)) => {
            let body = body.to_bytes();
            match count_values(&body) > MOST_VALUES {
                true => Err(Refused(StatusCode::BAD_REQUEST, "the body has too many values")),
                false => Ok((body, permit)),
            }
        }
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(TOO_LONG),
        Ok(Err(_)) => Err(Refused(StatusCode::BAD_REQUEST, "the body ended early")),
        Err(_) => Err(Refused(StatusCode::REQUEST_TIMEOUT, "the body did not arrive within 60 seconds")),
    }
}

/// Returns a body that holds a value until it was sent or dropped.
pub(super) fn holding<T: Send + 'static>(body: Body, held: T) -> Body {
    // A closure owns what it mentions; the mutex makes any value shareable.
    let held = std::sync::Mutex::new(held);
    Body::new(body.map_frame(move |frame| {
        let _held = &held;
        frame
    }))
}
