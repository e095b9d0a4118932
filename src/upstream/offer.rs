//! What servers offer beside tools: resources and prompts, and what code asks of them.

use serde_json::{Map, Value, json};

use super::raw_arguments::{RawArguments, RawArgumentsError};
use crate::policy::Kind;

/// Whether a text is a URI or a URI template, rather than the name of a prompt.
fn is_uri(name: &str) -> bool {
    name.contains("://") || name.contains('{')
}

/// Something that code does with a resource or a prompt of a server.
#[derive(Debug, Clone, PartialEq)]
pub enum OfferRequest {
    ReadResource {
        uri: String,
    },
    GetPrompt {
        name: String,
        arguments: Map<String, Value>,
    },
    /// Asks for values of an argument.
    Complete {
        /// The name of a prompt, or the URI template of resources.
        of: String,
        argument: String,
        /// The beginning of the value.
        value: String,
        /// The other arguments, as far as they are known.
        others: Map<String, Value>,
    },
    /// Asks for a notification whenever a resource changes.
    Subscribe {
        uri: String,
    },
}

impl OfferRequest {
    /// Returns the kind of rules that decide it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::ReadResource { .. } | Self::Subscribe { .. } => Kind::Resource,
            Self::Complete { of, .. } if is_uri(of) => Kind::Resource,
            Self::GetPrompt { .. } | Self::Complete { .. } => Kind::Prompt,
        }
    }

    /// Returns what it is about: a URI, a URI template, or the name of a prompt.
    pub fn name(&self) -> &str {
        match self {
            Self::ReadResource { uri } | Self::Subscribe { uri } => uri,
            Self::GetPrompt { name, .. } => name,
            Self::Complete { of, .. } => of,
        }
    }

    /// Returns the method of the protocol.
    pub fn method(&self) -> &'static str {
        match self {
            Self::ReadResource { .. } => "resources/read",
            Self::GetPrompt { .. } => "prompts/get",
            Self::Complete { .. } => "completion/complete",
            Self::Subscribe { .. } => "resources/subscribe",
        }
    }

    /// Returns the parameters of the method.
    pub fn params(&self) -> Value {
        match self {
            Self::ReadResource { uri } | Self::Subscribe { uri } => json!({ "uri": uri }),
            Self::GetPrompt { name, arguments } => json!({ "name": name, "arguments": arguments }),
            Self::Complete { of, argument, value, others } => {
                let of = match is_uri(of) {
                    true => json!({ "type": "ref/resource", "uri": of }),
                    false => json!({ "type": "ref/prompt", "name": of }),
                };
                let mut params = json!({ "ref": of, "argument": { "name": argument, "value": value } });
                if !others.is_empty() {
                    params["context"] = json!({ "arguments": others });
                }
                params
            }
        }
    }

    /// Returns the parameters as the audit log keeps them.
    pub(super) fn arguments(&self) -> Result<RawArguments, RawArgumentsError> {
        RawArguments::new(self.params().to_string())
    }
}

/// One of the lists in which servers name what they offer beside tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OfferList {
    Resources,
    Templates,
    Prompts,
}

impl OfferList {
    /// Returns the method of the protocol.
    pub(super) fn method(self) -> &'static str {
        match self {
            Self::Resources => "resources/list",
            Self::Templates => "resources/templates/list",
            Self::Prompts => "prompts/list",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completion(of: &str) -> OfferRequest {
        let others = Map::from_iter([("a".to_owned(), json!("x"))]);
        OfferRequest::Complete { of: of.into(), argument: "b".into(), value: "y".into(), others }
    }

    #[test]
    fn a_completion_is_about_a_prompt_or_a_template() {
        let of_template = completion("demo://notes/{id}");
        assert_eq!((of_template.kind(), of_template.name()), (Kind::Resource, "demo://notes/{id}"));
        assert_eq!(
            of_template.params()["ref"],
            json!({ "type": "ref/resource", "uri": "demo://notes/{id}" })
        );
        let of_prompt = completion("review");
        assert_eq!(of_prompt.kind(), Kind::Prompt);
        assert_eq!(
            of_prompt.params(),
            json!({
                "ref": { "type": "ref/prompt", "name": "review" },
                "argument": { "name": "b", "value": "y" },
                "context": { "arguments": { "a": "x" } },
            })
        );
    }
}
