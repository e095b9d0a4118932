//! Types of settings.

/// The format of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputMode {
    /// Plain text, and only what is not obvious as structured content.
    Compact,
    Toon,
    Json,
}

impl OutputMode {
    pub const NAMES: [&str; 3] = ["compact", "toon", "json"];

    /// Returns the mode of this name.
    pub fn parse(text: &str) -> Option<Self> {
        match text.trim().to_ascii_lowercase().as_str() {
            "compact" => Some(Self::Compact),
            "toon" => Some(Self::Toon),
            "json" => Some(Self::Json),
            _ => None,
        }
    }
}
