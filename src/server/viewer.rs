//! The viewer of clients with MCP Apps (<https://modelcontextprotocol.io/extensions/apps/overview>): one static page, which
//! shows what a run displayed.

use rmcp::model::{ClientCapabilities, MetaObject, Resource, ResourceContents, Tool, object};
use serde_json::{Value, json};

pub(super) const URI: &str = "ui://codebridge/viewer";

const PAGE: &str = include_str!("viewer.html");
const MIME: &str = "text/html;profile=mcp-app";
/// The name of the extension among the capabilities of a client.
const EXTENSION: &str = "io.modelcontextprotocol/ui";

/// Returns whether a client shows such pages.
pub(super) fn is_shown_by(capabilities: &ClientCapabilities) -> bool {
    let types = |settings: &rmcp::model::JsonObject| settings.get("mimeTypes").cloned();
    let extensions = capabilities.extensions.as_ref();
    let types = extensions.and_then(|all| all.get(EXTENSION)).and_then(types);
    types.as_ref().and_then(Value::as_array).is_some_and(|types| types.iter().any(|mime| mime == MIME))
}

/// Returns the tool with its viewer.
pub(super) fn with_viewer(mut tool: Tool) -> Tool {
    tool.meta = Some(meta(json!({ "ui": { "resourceUri": URI } })));
    tool
}

pub(super) fn resource() -> Resource {
    Resource::new(URI, "viewer")
        .with_title("Viewer of displayed objects")
        .with_mime_type(MIME)
        .with_size(PAGE.len() as u64)
}

/// Returns the page. It needs no permission and no other host.
pub(super) fn contents() -> ResourceContents {
    let page = ResourceContents::text(PAGE, URI).with_mime_type(MIME);
    page.with_meta(meta(json!({ "ui": { "prefersBorder": false } })))
}

fn meta(value: Value) -> MetaObject {
    MetaObject::from(object(value))
}
