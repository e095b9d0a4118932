//! The members of a message, and the messages of a batch, unread: nothing of them is copied.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Messages of a batch that are read.
const LONGEST_BATCH: usize = 1_000;

/// The members of a message.
#[derive(Debug, Default)]
pub(super) struct Envelope<'a> {
    pub(super) jsonrpc: Option<&'a RawValue>,
    pub(super) id: Option<&'a RawValue>,
    pub(super) method: Option<&'a RawValue>,
    pub(super) params: Option<&'a RawValue>,
    pub(super) result: Option<&'a RawValue>,
    pub(super) error: Option<&'a RawValue>,
    /// Whether there are others.
    pub(super) has_others: bool,
}

impl<'de> Deserialize<'de> for Envelope<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Members)
    }
}

/// By hand: a derived reader that tells whether there are other members keeps them all.
struct Members;

impl<'de> Visitor<'de> for Members {
    type Value = Envelope<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Envelope<'de>, A::Error> {
        let mut envelope = Envelope::default();
        while let Some(Key(key)) = map.next_key()? {
            let member = match &*key {
                "jsonrpc" => &mut envelope.jsonrpc,
                "id" => &mut envelope.id,
                "method" => &mut envelope.method,
                "params" => &mut envelope.params,
                "result" => &mut envelope.result,
                "error" => &mut envelope.error,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                    envelope.has_others = true;
                    continue;
                }
            };
            let value: &RawValue = map.next_value()?;
            if member.is_some() {
                return Err(Error::custom(format_args!("duplicate member '{key}'")));
            }
            *member = Some(value).filter(|value| value.get() != "null");
        }
        Ok(envelope)
    }
}

/// A key that is borrowed if it can be.
struct Key<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Key<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Key<'de>, E> {
                // Only short keys mean something.
                Ok(Key(if text.len() <= "jsonrpc".len() { Cow::Owned(text.to_owned()) } else { "".into() }))
            }
        }
        deserializer.deserialize_str(Text)
    }
}

/// The messages of a batch; further ones are left out.
pub(super) struct Batch<'a>(pub(super) Vec<&'a RawValue>);

impl<'de> Deserialize<'de> for Batch<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Parts)
    }
}

struct Parts;

impl<'de> Visitor<'de> for Parts {
    type Value = Batch<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("messages")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Batch<'de>, A::Error> {
        let mut parts = Vec::new();
        while parts.len() < LONGEST_BATCH {
            let Some(part) = seq.next_element()? else { return Ok(Batch(parts)) };
            parts.push(part);
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Batch(parts))
    }
}
