//! The answer to the handshake, completed so that `rmcp` accepts what servers in the wild say of themselves.

use rmcp::model::{InitializeResult, ProtocolVersion};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::mcp::bounds::Bounds;

/// Reads the answer to `initialize`. What is missing or odd is filled in, because calls need none of it.
pub(super) fn read_initialize(raw: &RawValue) -> Result<InitializeResult, String> {
    let value = Bounds::SMALL.parse(raw).ok_or("it is too large")?.map_err(|error| error.to_string())?;
    let Value::Object(mut said) = value else { return Err("it is not an object".into()) };
    if !said.get("protocolVersion").is_some_and(Value::is_string) {
        let version = json!(ProtocolVersion::LATEST_WITH_INITIALIZE.as_str());
        said.insert("protocolVersion".into(), version);
    }
    if !said.get("capabilities").is_some_and(Value::is_object) {
        said.insert("capabilities".into(), json!({}));
    }
    let plain = plain(&said);
    serde_json::from_value(Value::Object(said))
        .or_else(|_| serde_json::from_value(plain))
        .map_err(|error: serde_json::Error| error.to_string())
}

/// The members that matter, in the form that the protocol wants.
fn plain(said: &Map<String, Value>) -> Value {
    let info = said.get("serverInfo");
    let info = |key: &str| info.and_then(|info| info.get(key)).and_then(Value::as_str).unwrap_or_default();
    let tools = said["capabilities"].get("tools");
    let tells_changes = tools.and_then(|tools| tools.get("listChanged")) == Some(&Value::Bool(true));
    let mut plain = json!({
        "protocolVersion": said["protocolVersion"],
        "capabilities": { "tools": { "listChanged": tells_changes } },
        "serverInfo": { "name": info("name"), "version": info("version") },
    });
    if let Some(Value::String(text)) = said.get("instructions") {
        plain["instructions"] = text.clone().into();
    }
    plain
}
