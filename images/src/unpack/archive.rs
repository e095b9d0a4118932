//! Archives for tests, also invalid ones.

use tar::{EntryType, Header};

/// Builds an archive, entry by entry.
#[derive(Default, Clone)]
pub(crate) struct Archive(pub(crate) Vec<u8>);

impl Archive {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Adds any entry; name and link are written as they are, in pax records when they are long.
    pub(crate) fn entry(self, name: &str, kind: EntryType, mode: u32, link: &str, content: &[u8]) -> Self {
        self.raw(name, kind, mode, link, content, content.len() as u64)
    }

    pub(crate) fn raw(
        mut self,
        name: &str,
        kind: EntryType,
        mode: u32,
        link: &str,
        content: &[u8],
        size: u64,
    ) -> Self {
        if name.len() > 100 || link.len() > 100 {
            self = self.pax(&[("path", name.as_bytes()), ("linkpath", link.as_bytes())]);
        }
        let mut header = Header::new_gnu();
        let gnu = header.as_gnu_mut().unwrap();
        let put = |field: &mut [u8], text: &str| {
            let count = text.len().min(field.len());
            field[..count].copy_from_slice(&text.as_bytes()[..count]);
        };
        put(&mut gnu.name, name);
        put(&mut gnu.linkname, link);
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(1_000_000_000);
        header.set_size(size);
        header.set_cksum();
        self.block(header.as_bytes()).block(content)
    }

    pub(crate) fn file(self, name: &str, content: &[u8]) -> Self {
        self.entry(name, EntryType::Regular, 0o644, "", content)
    }

    pub(crate) fn folder(self, name: &str) -> Self {
        self.entry(name, EntryType::Directory, 0o755, "", b"")
    }

    pub(crate) fn symlink(self, name: &str, target: &str) -> Self {
        self.entry(name, EntryType::Symlink, 0o777, target, b"")
    }

    pub(crate) fn hard_link(self, name: &str, target: &str) -> Self {
        self.entry(name, EntryType::Link, 0o644, target, b"")
    }

    /// Adds pax records for the next entry.
    pub(crate) fn pax(self, records: &[(&str, &[u8])]) -> Self {
        let mut text = Vec::new();
        for (key, value) in records {
            let rest = key.len() + value.len() + 3;
            let mut length = rest + 1;
            while length != rest + length.to_string().len() {
                length = rest + length.to_string().len();
            }
            text.extend_from_slice(format!("{length} {key}=").as_bytes());
            text.extend_from_slice(value);
            text.push(b'\n');
        }
        self.entry("pax", EntryType::XHeader, 0o644, "", &text)
    }

    /// Writes another magic into the header of the latest entry, whose content is one block.
    pub(crate) fn with_magic(mut self, magic: &[u8; 5]) -> Self {
        let start = self.0.len() - 1024;
        let mut header = Header::new_old();
        header.as_mut_bytes().copy_from_slice(&self.0[start..start + 512]);
        header.as_mut_bytes()[257..262].copy_from_slice(magic);
        header.set_cksum();
        self.0[start..start + 512].copy_from_slice(header.as_bytes());
        self
    }

    /// Adds bytes, filled up to a block.
    pub(crate) fn block(mut self, bytes: &[u8]) -> Self {
        self.0.extend_from_slice(bytes);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    /// Returns the archive with its end mark.
    pub(crate) fn done(mut self) -> Vec<u8> {
        self.0.extend_from_slice(&[0; 1024]);
        self.0
    }
}
