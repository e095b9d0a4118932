//! The output of `codebridge image`.

use codebridge_images::{Listed, Pruned, Usage};
use serde::Serialize;

use super::output::columns;
use crate::sizes::bytes_text;

/// The images of the store and their size on disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct ImageList {
    pub(super) images: Vec<Listed>,
    pub(super) usage: Usage,
}

impl ImageList {
    /// Returns a table for people.
    pub(super) fn text(&self) -> String {
        if self.images.is_empty() {
            return "no images\n".into();
        }
        let mut rows = Vec::new();
        for image in &self.images {
            let state = match (image.in_use, image.unpacked) {
                (true, _) => "in use",
                (false, true) => "ready",
                (false, false) => "not unpacked",
            };
            let names = if image.names.is_empty() {
                vec!["<none>"]
            } else {
                image.names.iter().map(String::as_str).collect()
            };
            for name in names {
                rows.push(vec![
                    image.id.short().into(),
                    bytes_text(image.unpacked_bytes),
                    bytes_text(image.compressed_bytes),
                    state.into(),
                    name.into(),
                ]);
            }
        }
        let mut text = columns(&["IMAGE ID", "UNPACKED", "COMPRESSED", "STATE", "NAME"], rows);
        let Usage { roots, blobs, partial } = self.usage;
        text.push_str(&format!(
            "on disk: {} (unpacked {}, compressed {}, incomplete {})\n",
            bytes_text(self.usage.total()),
            bytes_text(roots),
            bytes_text(blobs),
            bytes_text(partial)
        ));
        text
    }
}

/// Returns the outcome of a removal, for people.
pub(super) fn pruned_text(pruned: &Pruned) -> String {
    let mut text = String::new();
    for name in &pruned.names {
        text.push_str(&format!("removed the name {name}\n"));
    }
    for id in &pruned.images {
        text.push_str(&format!("removed image {}\n", id.short()));
    }
    for id in &pruned.in_use {
        text.push_str(&format!("kept image {}: it is in use\n", id.short()));
    }
    if pruned.busy {
        text.push_str("kept unused layers: an image is being downloaded\n");
    }
    text.push_str(&format!("freed {}\n", bytes_text(pruned.bytes)));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_a_table_with_totals() {
        let image = |id: &str, names: &[&str], in_use| Listed {
            id: id.repeat(32).parse().unwrap(),
            names: names.iter().map(ToString::to_string).collect(),
            manifest: None,
            created: 0,
            unpacked: true,
            unpacked_bytes: 130 << 20,
            entries: 9,
            compressed_bytes: 45 << 20,
            in_use,
            run: None,
        };
        let images =
            vec![image("ab", &["docker.io/library/python:3", "quay.io/x:1"], true), image("cd", &[], false)];
        let list = ImageList { images, usage: Usage { roots: 2 << 20, blobs: 1 << 20, partial: 0 } };
        let expected = "\
IMAGE ID      UNPACKED   COMPRESSED  STATE   NAME
abababababab  130.0 MiB  45.0 MiB    in use  docker.io/library/python:3
abababababab  130.0 MiB  45.0 MiB    in use  quay.io/x:1
cdcdcdcdcdcd  130.0 MiB  45.0 MiB    ready   <none>
on disk: 3.0 MiB (unpacked 2.0 MiB, compressed 1.0 MiB, incomplete 0 B)
";
        assert_eq!(list.text(), expected);
        assert_eq!(ImageList { images: Vec::new(), usage: Usage::default() }.text(), "no images\n");
    }

    #[test]
    fn a_removal_reports_what_was_removed_and_kept() {
        let pruned = Pruned {
            images: vec!["ab".repeat(32).parse().unwrap()],
            names: vec!["x".into()],
            in_use: vec!["cd".repeat(32).parse().unwrap()],
            bytes: 3 << 20,
            busy: false,
        };
        let expected = "removed the name x\nremoved image abababababab\nkept image cdcdcdcdcdcd: it is in use\n\
                        freed 3.0 MiB\n";
        assert_eq!(pruned_text(&pruned), expected);
    }
}
