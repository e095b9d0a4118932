//! The frame around the pages of somebody who is signed in.

use super::visitor::{Console, Visitor};

/// A link of the navigation.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) place: &'static str,
    pub(super) path: &'static str,
    pub(super) name: &'static str,
}

/// The pages.
pub(super) const LINKS: [Link; 7] = [
    Link { place: "now", path: "/console", name: "Now" },
    Link { place: "runs", path: "/console/runs", name: "Runs" },
    Link { place: "approvals", path: "/console/approvals", name: "Approvals" },
    Link { place: "sessions", path: "/console/sessions", name: "Sessions" },
    Link { place: "servers", path: "/console/servers", name: "Servers" },
    Link { place: "artifacts", path: "/console/artifacts", name: "Artifacts" },
    Link { place: "numbers", path: "/console/numbers", name: "Numbers" },
];

/// The frame around a page of somebody who is signed in.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) title: String,
    /// Which link of the navigation is this page.
    pub(super) place: &'static str,
    pub(super) user: String,
    pub(super) form_token: String,
    /// Questions that wait for an answer, if there are any.
    pub(super) questions: String,
}

impl Frame {
    pub(super) async fn new(
        console: &Console,
        visitor: &Visitor,
        place: &'static str,
        title: impl Into<String>,
    ) -> Self {
        let questions = console.feed(visitor).questions().await.len();
        Self {
            questions: if questions > 0 { questions.to_string() } else { String::new() },
            title: title.into(),
            place,
            user: visitor.admitted.principal().to_string(),
            form_token: visitor.form_token.clone(),
        }
    }

    /// Returns the attribute of a link of the navigation.
    pub(super) fn current(&self, place: &str) -> &'static str {
        if self.place == place { "page" } else { "false" }
    }
}
