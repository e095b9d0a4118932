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

/// How much the audit log records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditLevel {
    Off,
    On,
    /// Code, arguments, results and output too.
    Full,
}

/// What is recorded, and whether it has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuditMode {
    pub level: AuditLevel,
    /// Whether there is no run and no call without its line.
    pub required: bool,
}

impl AuditMode {
    pub const NAMES: [&str; 5] = ["on", "full", "required", "required,full", "off"];

    /// Returns the mode of this name.
    pub fn parse(text: &str) -> Option<Self> {
        let mode = |level, required| Some(Self { level, required });
        match text.trim().to_ascii_lowercase().replace(' ', "").as_str() {
            "on" => mode(AuditLevel::On, false),
            "full" => mode(AuditLevel::Full, false),
            "required" => mode(AuditLevel::On, true),
            "required,full" | "full,required" => mode(AuditLevel::Full, true),
            "off" => mode(AuditLevel::Off, false),
            _ => None,
        }
    }

    pub fn name(self) -> &'static str {
        match (self.level, self.required) {
            (AuditLevel::On, false) => "on",
            (AuditLevel::Full, false) => "full",
            (AuditLevel::On, true) => "required",
            (AuditLevel::Full, true) => "required,full",
            (AuditLevel::Off, _) => "off",
        }
    }
}
