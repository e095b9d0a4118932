//! The files of a session's `/workspace` as plain data: what process 1 of the sandbox says of them, which is hostile.

use std::collections::HashSet;

use codebridge_runtimes::exec::visible_line;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

/// Bytes of a path that the kernel takes.
const LONGEST_PATH: usize = 4095;
/// Files in the list of one run, and the folders that they are in; the guest looks at as many.
const MOST_ENTRIES: usize = 2000;
/// Bytes of one part.
pub(in crate::session) const PART: u64 = 256 << 10;
/// What stands for itself in a URI.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');
/// The same for the name of a session, which is one segment.
const SEGMENT: &AsciiSet = &PLAIN.add(b'/');

/// The start of the URIs of files.
pub const SESSION_URIS: &str = "codebridge://sessions/";

/// A file that a run made or changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedFile {
    /// Below `/workspace`, as the sandbox has it: any bytes, but no component that leads elsewhere.
    pub path: Vec<u8>,
    pub bytes: u64,
    /// Where the client reads it, while the session lives. None for one that ends with its call.
    pub uri: Option<String>,
}

impl ChangedFile {
    /// Returns the path for people, in one line.
    pub fn shown_path(&self) -> String {
        visible_line(&String::from_utf8_lossy(&self.path))
    }
}

/// The files that a run made or changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChangedFiles {
    pub files: Vec<ChangedFile>,
    /// Whether there may be more: the folder has too many files to look at all of them.
    pub is_cut: bool,
    /// Paths of files that were there and are gone.
    pub gone: Vec<Vec<u8>>,
}

impl ChangedFiles {
    /// Reads the list of a frame: `SIZE PATH` and a NUL each, `-` in place of the size of a file that is gone. What is not
    /// as it should be is left out.
    pub(in crate::session) fn parse(list: &[u8]) -> Self {
        let mut changed = Self::default();
        let (mut folders, mut is_full) = (Folders::default(), false);
        for entry in list.split(|byte| *byte == 0).filter(|entry| !entry.is_empty()) {
            if let Some(path) = entry.strip_prefix(b"- ") {
                if !is_hidden(path) {
                    changed.gone.push(path.to_vec());
                }
                continue;
            }
            let mut halves = entry.splitn(2, |byte| *byte == b' ');
            let bytes = halves.next().and_then(|size| str::from_utf8(size).ok()?.parse().ok());
            let (Some(bytes), Some(path)) = (bytes, halves.next()) else { continue };
            if path.is_empty() {
                changed.is_cut = true;
            } else if !is_full && is_below(path) && !is_hidden(path) {
                // Once one does not fit, none is looked at: that costs time.
                let left = MOST_ENTRIES.saturating_sub(changed.files.len() + folders.0.len());
                is_full = left == 0 || !folders.add(path, left - 1);
                if !is_full {
                    changed.files.push(ChangedFile { path: path.to_vec(), bytes, uri: None });
                }
            }
        }
        changed.is_cut |= is_full;
        changed.files.sort_by(|one, other| one.path.cmp(&other.path));
        changed
    }

    /// Adds where the files of this session are read.
    pub(in crate::session) fn in_session(mut self, session: &str) -> Self {
        self.files.iter_mut().for_each(|file| file.uri = Some(uri(session, &file.path)));
        self
    }
}

/// The folders that the files of a list are in: a copy of the files makes them all.
#[derive(Default)]
struct Folders<'a>(HashSet<&'a [u8]>);

impl<'a> Folders<'a> {
    /// Adds those of a path, unless more than `most` of them are new.
    fn add(&mut self, path: &'a [u8], most: usize) -> bool {
        let slashes = path.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/');
        let above = slashes.map(|(end, _)| &path[..end]);
        // With a folder, those that it is in are known.
        let new: Vec<_> = above.take_while(|folder| !self.0.contains(folder)).take(most + 1).collect();
        let fits = new.len() <= most;
        if fits {
            self.0.extend(new);
        }
        fits
    }
}

/// Whether a path leads to something below the folder that it starts from.
pub(in crate::session) fn is_below(path: &[u8]) -> bool {
    let is_plain = |part: &[u8]| !matches!(part, b"" | b"." | b"..") && !part.contains(&0);
    path.len() <= LONGEST_PATH && path.split(|byte| *byte == b'/').all(is_plain)
}

/// Whether the guest never names such a file. A name of this kind may mean something where a user copies the files to.
fn is_hidden(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(|part| part.starts_with(b".") || part == b"__pycache__")
}

fn uri(session: &str, path: &[u8]) -> String {
    let session = percent_encode(session.as_bytes(), SEGMENT);
    format!("{SESSION_URIS}{session}/files/{}", percent_encode(path, PLAIN))
}

/// Returns the session and the path that a URI of a file names.
pub fn parse_file_uri(uri: &str) -> Option<(String, Vec<u8>)> {
    let (session, path) = uri.strip_prefix(SESSION_URIS)?.split_once("/files/")?;
    let session = percent_decode_str(session).decode_utf8().ok()?.into_owned();
    Some((session, percent_decode_str(path).collect()))
}

/// A part of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilePart {
    /// Of the whole file.
    pub size: u64,
    pub bytes: Vec<u8>,
}

/// Why a file of a session cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    #[error("there is no session '{0}'")]
    NoSession(String),
    #[error("the path does not lead to a file below /workspace")]
    Path,
    /// As the sandbox says it.
    #[error("{0}")]
    Refused(String),
    #[error("the session has ended")]
    Ended,
    #[error("the sandbox did not answer in time")]
    TimedOut,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_as_many_folders_and_files_as_the_guest_looks_at() {
        let list = |paths: &mut dyn Iterator<Item = String>| {
            ChangedFiles::parse(paths.map(|path| format!("1 {path}\0")).collect::<String>().as_bytes())
        };
        // 1998 folders within each other are real, also when many files are in the last one.
        let deepest = "a/".repeat(1998);
        let changed = list(&mut ["x", "y", "z"].map(|name| format!("{deepest}{name}")).into_iter());
        assert_eq!((changed.files.len(), changed.is_cut), (2, true));
        // Files that were forged would cost folders without end.
        let changed = list(&mut (0..200).map(|number| format!("{number}/{}x", "a/".repeat(999))));
        assert_eq!((changed.files.len(), changed.is_cut), (1, true));
        let changed = list(&mut (0..3000).map(|number| format!("{number}")));
        assert_eq!((changed.files.len(), changed.is_cut), (MOST_ENTRIES, true));
    }

    #[test]
    fn a_list_of_files_is_read_as_far_as_it_is_sound() {
        let list = b"3 a.csv\x004 sub/b c.png\x000 \x001 ../x\x001 /etc/passwd\x001 a//b\x00x y\x001\x00- o ld\x00-1 z\x002 \xff\n\x00";
        let changed = ChangedFiles::parse(list).in_session("ma/in");
        let paths: Vec<_> = changed.files.iter().map(|file| (file.shown_path(), file.bytes)).collect();
        let expected = [("a.csv", 3), ("sub/b c.png", 4), ("\u{fffd}\u{fffd}", 2)];
        assert_eq!(paths, expected.map(|(path, bytes)| (path.to_owned(), bytes)));
        assert!(changed.is_cut);
        assert_eq!(changed.gone, [b"o ld"]);
        let uris: Vec<_> = changed.files.iter().map(|file| file.uri.as_deref().unwrap()).collect();
        assert_eq!(
            uris,
            [
                "codebridge://sessions/ma%2Fin/files/a.csv",
                "codebridge://sessions/ma%2Fin/files/sub/b%20c.png",
                "codebridge://sessions/ma%2Fin/files/%FF%0A",
            ]
        );
        let hidden =
            b"1 .envrc\x001 .git/config\x001 a/.git/hooks/x\x001 a/__pycache__/b.pyc\x00- .bashrc\x001 a.b\x00";
        let changed = ChangedFiles::parse(hidden);
        assert_eq!(changed.files.iter().map(ChangedFile::shown_path).collect::<Vec<_>>(), ["a.b"]);
        assert!(changed.gone.is_empty());
        assert!(ChangedFiles::parse(&[b"1 ".to_vec(), vec![b'x'; 5000]].concat()).files.is_empty());
    }
}
