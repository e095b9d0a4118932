//! Questions about what servers offer beside tools: resources and prompts.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::name::Name;
use crate::upstream::{OfferList, OfferRequest};

/// The use of a resource or a prompt. Whether it is allowed is known before the server is asked.
#[derive(Debug)]
pub(in crate::session) struct OfferUse {
    pub(in crate::session) server: Name,
    pub(in crate::session) request: OfferRequest,
    /// The line of the current code, as the sandbox says.
    pub(in crate::session) line: Option<u32>,
}

/// A resource that code reads.
#[derive(Debug, Deserialize)]
pub(in crate::session) struct ResourceWanted {
    server: Name,
    uri: String,
    #[serde(default)]
    line: Option<u32>,
}

/// A prompt that code gets.
#[derive(Debug, Deserialize)]
pub(in crate::session) struct PromptWanted {
    server: Name,
    name: Name,
    #[serde(default)]
    arguments: BTreeMap<String, String>,
    #[serde(default)]
    line: Option<u32>,
}

/// An argument of a prompt or of a URI template, whose values code asks for.
#[derive(Debug, Deserialize)]
pub(in crate::session) struct Completion {
    server: Name,
    of: String,
    argument: String,
    #[serde(default)]
    value: String,
    #[serde(default)]
    others: BTreeMap<String, String>,
    #[serde(default)]
    line: Option<u32>,
}

/// One of the lists of a server.
#[derive(Debug, Deserialize)]
pub(in crate::session) struct OffersWanted {
    pub(in crate::session) server: Name,
    pub(in crate::session) list: ListName,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(in crate::session) enum ListName {
    Resources,
    Templates,
    Prompts,
}

impl From<ListName> for OfferList {
    fn from(name: ListName) -> Self {
        match name {
            ListName::Resources => Self::Resources,
            ListName::Templates => Self::Templates,
            ListName::Prompts => Self::Prompts,
        }
    }
}

impl From<ResourceWanted> for OfferUse {
    fn from(ResourceWanted { server, uri, line }: ResourceWanted) -> Self {
        Self { server, request: OfferRequest::ReadResource { uri }, line }
    }
}

impl From<PromptWanted> for OfferUse {
    fn from(PromptWanted { server, name, arguments, line }: PromptWanted) -> Self {
        let request = OfferRequest::GetPrompt { name: name.to_string(), arguments: texts(arguments) };
        Self { server, request, line }
    }
}

impl From<Completion> for OfferUse {
    fn from(wanted: Completion) -> Self {
        let Completion { server, of, argument, value, others, line } = wanted;
        Self { server, request: OfferRequest::Complete { of, argument, value, others: texts(others) }, line }
    }
}

fn texts(texts: BTreeMap<String, String>) -> Map<String, Value> {
    texts.into_iter().map(|(name, text)| (name, text.into())).collect()
}
