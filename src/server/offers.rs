//! Which questions of servers a client can answer, by its capabilities.

use rmcp::model::ClientCapabilities;
use serde_json::json;

use crate::upstream::{Offers, Question, Refusal};

/// Returns which questions a client with these capabilities can answer.
pub(super) fn offers_of(capabilities: &ClientCapabilities) -> Offers {
    // By their names in JSON: the types of some are deprecated in the library.
    let capabilities = json!(capabilities);
    let can = |what: &str| capabilities.get(what).is_some_and(|can| !can.is_null());
    let kind = |kind: &str| capabilities["elicitation"].get(kind).is_some_and(|can| !can.is_null());
    // A client that names no kinds means forms:
    // <https://modelcontextprotocol.io/specification/2025-11-25/client/elicitation>.
    Offers {
        elicitation: can("elicitation") && (kind("form") || !kind("url")),
        elicitation_by_url: kind("url"),
        sampling: can("sampling"),
        roots: can("roots"),
    }
}

/// Checks that a client with these offers can answer the question.
pub(super) fn supports(offers: &Offers, question: &Question) -> Result<(), Refusal> {
    let by_url = question.params.as_ref().is_some_and(|params| params["mode"] == "url");
    let can = match question.method.as_str() {
        "elicitation/create" if by_url => offers.elicitation_by_url,
        "elicitation/create" => offers.elicitation,
        "sampling/createMessage" => offers.sampling,
        "roots/list" => offers.roots,
        _ => false,
    };
    let what = if by_url { "elicitation/create by URL" } else { &question.method };
    if can { Ok(()) } else { Err(Refusal::not_supported(what)) }
}
