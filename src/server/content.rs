//! The content of a result: text and pictures in the order in which they came, and links to the rest.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rmcp::model::{Annotations, ContentBlock, Resource, Role};

use crate::session::{Display, Form, Picture};

/// Pixels of a side from which on models pay much for a picture, or refuse it.
const LARGE_PICTURE: usize = 2000;
/// Pictures that are named, of those that a result has no space for. The client gets links to all of them.
const MOST_NAMED: usize = 4;

/// Text and pictures in their order.
#[derive(Default)]
pub(super) struct Content {
    blocks: Vec<ContentBlock>,
    /// The text after the last block.
    pub(super) lines: Vec<String>,
    /// Pictures that the result has no space for.
    left_out: usize,
}

impl Content {
    /// Returns content that begins with some lines.
    pub(super) fn starting_with(lines: Vec<String>) -> Self {
        Self { lines, ..Self::default() }
    }

    /// Adds the picture of an object, or says what the model has to know of it.
    pub(super) fn add(&mut self, display: &Display) {
        let Some(Picture { mime, bytes, size, data }) = &display.picture else {
            let claims = |form: &&Form| matches!(&*form.mime, "image/png" | "image/jpeg");
            if let Some(Form { mime, bytes }) = display.forms.iter().find(claims) {
                self.lines
                    .push(format!("[{mime}, {bytes} bytes, is no valid picture: read {}]", display.uri));
            }
            return;
        };
        let pixels = format!("{}x{} pixels", size.0, size.1);
        match data {
            Some(data) => {
                self.end_text();
                self.blocks.push(ContentBlock::image(STANDARD.encode(data), &**mime));
                if size.0.max(size.1) > LARGE_PICTURE {
                    self.lines.push(format!("[the picture has {pixels}; smaller ones cost less]"));
                }
            }
            None if self.left_out < MOST_NAMED => {
                self.left_out += 1;
                let uri = &display.uri;
                self.lines
                    .push(format!("[{mime}, {pixels}, {bytes} bytes, is not in this result: read {uri}]"));
            }
            None => self.left_out += 1,
        }
    }

    fn end_text(&mut self) {
        if !self.lines.is_empty() {
            self.blocks.push(ContentBlock::text(std::mem::take(&mut self.lines).join("\n")));
        }
    }

    pub(super) fn finish(mut self) -> Vec<ContentBlock> {
        if self.left_out > MOST_NAMED {
            self.lines.push(format!("[{} more pictures are not in this result]", self.left_out - MOST_NAMED));
        }
        self.end_text();
        self.blocks
    }
}

/// Returns a link to what the result does not contain. It is for the person: the model has the text.
pub(super) fn link(display: &Display) -> Option<ContentBlock> {
    let is_whole = |picture: &Picture| picture.data.is_some() && display.forms.len() == 1;
    if display.picture.as_ref().is_some_and(is_whole) {
        return None;
    }
    let form = display.forms.first()?;
    let name = display.uri.rsplit_once('/').map_or(&*display.uri, |(_, number)| number);
    let resource = Resource::new(&*display.uri, format!("display {name}"))
        .with_mime_type(&*form.mime)
        .with_size(form.bytes)
        .with_annotations(Annotations::default().with_audience(vec![Role::User]));
    Some(ContentBlock::resource_link(resource))
}
