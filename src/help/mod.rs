//! The documentation for users, by topic. It is compiled into the binary, so that it is that of the program it comes with.

mod terminal;

pub use terminal::{for_terminal, in_lines};

/// One page of the documentation.
#[derive(Debug)]
pub struct Topic {
    /// The word that `codebridge help` takes.
    pub name: &'static str,
    /// The page, in Markdown. The first line is `# Title: summary`.
    pub text: &'static str,
}

macro_rules! topics {
    ($($name:literal)+) => {
        [$(Topic { name: $name, text: include_str!(concat!($name, ".md")) }),+]
    };
}

/// All topics, in the order in which they are listed.
pub static TOPICS: [Topic; 25] = topics! {
    "quickstart" "clients" "sandbox" "python" "files" "packages" "runs" "workflows" "policy" "audit" "servers" "openapi" "images" "engines" "kubernetes"
    "laptops" "http" "console" "settings" "doctor" "telemetry" "ci"
    "exit-codes" "troubleshooting" "security"
};

impl Topic {
    /// Returns what the page is about, in one line.
    pub fn summary(&self) -> &'static str {
        let title = self.text.lines().next().unwrap_or_default();
        title.split_once(": ").map_or(title, |(_, summary)| summary)
    }
}

/// Returns the topic of this name.
pub fn find(name: &str) -> Option<&'static Topic> {
    TOPICS.iter().find(|topic| topic.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_topic_starts_with_a_title_and_a_summary() {
        for Topic { name, text } in &TOPICS {
            let title = text.lines().next().unwrap();
            assert!(title.starts_with("# ") && title.contains(": "), "{name}: {title}");
            assert!(text.ends_with('\n') && !text.ends_with("\n\n"), "{name}");
        }
    }

    #[test]
    fn summaries_fit_a_line_of_the_listing() {
        for topic in &TOPICS {
            assert!(topic.summary().len() <= 60, "{}: {}", topic.name, topic.summary());
        }
    }
}
