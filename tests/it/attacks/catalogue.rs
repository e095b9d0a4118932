//! The format of the files with attacks.
//!
//! ```text
//! ## name
//! # refused: OUTCOME                on all runtimes
//! # refused on WHO, WHO: OUTCOME    on these: `crun-user`, `crun`, `crun 1.28` (as root, and newer), `cgroup`, `rlimit`; the last
//!                                   line that fits counts
//! # allowed: OUTCOME                the same, for what must work
//! # refused on WHO: not tried: WHY   it would end the sandbox in which all attacks run
//! # outside: differs                outside of a sandbox it ends in another way
//! # timeout: SECONDS                of the call, where it is one
//! # takes turns: WHY               one runtime after the other
//! # next: STATUS                    of the next call, where it is no success
//! CODE
//! ```

use crate::harness::Bridge;
use crate::harness::matrix::{Machine, Runtime, version_in};

/// One attack.
#[derive(Debug)]
pub(crate) struct Attack {
    pub(crate) name: String,
    pub(crate) code: String,
    pub(crate) timeout: Option<u64>,
    pub(crate) next: Option<String>,
    pub(crate) differs_outside: bool,
    pub(crate) takes_turns: bool,
    /// For whom, and how it ends.
    outcomes: Vec<(Vec<String>, String)>,
}

/// What holds a sandbox's limits on memory and processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mechanism {
    Cgroup,
    Rlimit,
}

impl Mechanism {
    /// What a sandbox of this bridge has.
    pub(crate) fn of(bridge: &Bridge<'_>) -> Self {
        let bound = "import resource; resource.getrlimit(resource.RLIMIT_DATA)[0] != resource.RLIM_INFINITY";
        if bridge.run(bound).ok() == "True" { Self::Rlimit } else { Self::Cgroup }
    }
}

impl Attack {
    /// The attacks of a file.
    pub(crate) fn all_of(text: &str) -> Vec<Self> {
        let mut sections = text.split("\n## ");
        let _ = sections.next();
        sections.map(Self::parse).collect()
    }

    fn parse(section: &str) -> Self {
        let (name, code) = section.split_once('\n').unwrap();
        let mut attack = Self {
            name: name.trim().into(),
            code: format!("{}\n", code.trim_end()),
            timeout: None,
            next: None,
            differs_outside: false,
            takes_turns: false,
            outcomes: Vec::new(),
        };
        for line in code.lines().map_while(|line| line.strip_prefix("# ")) {
            let Some((key, value)) = line.split_once(": ") else { continue };
            let (verb, who) = key.split_once(" on ").unwrap_or((key, ""));
            match verb {
                "refused" | "allowed" => {
                    let runs = ["done", "success"].iter().any(|word| value.starts_with(word));
                    assert_eq!(verb == "allowed", runs, "{name}: {line}");
                    let who = who.split(", ").filter(|who| !who.is_empty()).map(String::from).collect();
                    attack.outcomes.push((who, value.trim().into()));
                }
                "takes turns" => attack.takes_turns = true,
                "outside" => attack.differs_outside = true,
                "next" => attack.next = Some(value.trim().into()),
                "timeout" => attack.timeout = value.trim().parse().ok(),
                _ => {}
            }
        }
        assert!(!attack.outcomes.is_empty(), "'{name}' does not say how it ends");
        attack
    }

    /// How it has to end on this runtime.
    pub(crate) fn outcome(&self, runtime: Runtime, mechanism: Mechanism) -> &str {
        let mechanism = match mechanism {
            Mechanism::Cgroup => "cgroup",
            Mechanism::Rlimit => "rlimit",
        };
        let (full, kind) = (runtime.to_string(), runtime.kind.name());
        let is_newer = |who: &str| {
            let Some((name, version)) = who.split_once(' ') else { return false };
            let oldest = version_in(version).unwrap_or_else(|| panic!("'{}': no version: {who}", self.name));
            name == full && Machine::get().version(runtime.kind) >= oldest
        };
        let is_meant = |who: &String| [&full, kind, mechanism].contains(&who.as_str()) || is_newer(who);
        let fits = |who: &[String]| who.is_empty() || who.iter().any(is_meant);
        let found = self.outcomes.iter().rev().find(|(who, _)| fits(who));
        let (_, outcome) =
            found.unwrap_or_else(|| panic!("'{}' does not say how it ends on {full}", self.name));
        outcome
    }

    /// For whom, and how it ends: what is said later counts.
    pub(crate) fn outcomes(&self) -> &[(Vec<String>, String)] {
        &self.outcomes
    }

    /// Whether it must not succeed; else it shows what code can see or have.
    pub(crate) fn is_refused(&self) -> bool {
        let (_, first) = &self.outcomes[0];
        !["done", "success"].iter().any(|word| first.starts_with(word))
    }

    /// The name of its test.
    pub(crate) fn test_name(&self) -> String {
        self.name.chars().map(|c| if c.is_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect()
    }
}
