//! What all servers say of their tools.

mod tool_doc;

pub use tool_doc::ToolDoc;
