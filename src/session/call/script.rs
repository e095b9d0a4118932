//! What a run of the command line has beside its code: arguments, the modules beside its file, files for `/workspace`, and
//! standard input. The sandbox asks for the last three piece by piece; it reads nothing but what is named here.

use std::fmt::{self, Debug, Formatter};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, open};
use serde::Serialize;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::Mutex;

use crate::session::questions::{QuestionError, ok};
use crate::workflows::Journal;

/// Stands before the bytes of an answer that is no JSON.
const RAW: u8 = b'=';
/// Bytes of a file or of standard input in one answer.
const LONGEST_PIECE: u32 = 1 << 20;
/// Bytes of a module.
const LONGEST_MODULE: u64 = 16 << 20;
/// Names of modules beside a script that are looked at.
const MOST_MODULES: usize = 4_000;

/// Where standard input comes from.
pub type Input = Box<dyn AsyncRead + Send + Unpin>;

/// How a run is started, as `python FILE ARGUMENTS` starts one.
#[derive(Default)]
pub struct Script {
    /// `sys.argv`.
    pub argv: Vec<String>,
    /// The file of the code as it was named, if it has one.
    pub file: Option<PathBuf>,
    /// Whether only the modules directly beside the file are read, and none of the folders there.
    pub is_narrow: bool,
    /// Files for `/workspace`.
    pub files: Vec<FileIn>,
    /// Standard input of the code. It is read when the code reads it.
    pub input: Option<Mutex<Input>>,
    /// Where the ends of its steps are kept, of a workflow.
    pub workflow: Option<Arc<Journal>>,
}

/// A file that is copied into `/workspace` before the code runs.
#[derive(Debug)]
pub struct FileIn {
    /// Its name there.
    pub name: String,
    pub file: File,
    pub bytes: u64,
    pub is_executable: bool,
    /// When it was last changed, in nanoseconds.
    pub modified: i64,
}

impl Debug for Script {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { argv, file, is_narrow, files, input, workflow } = self;
        let has_input = input.is_some();
        f.debug_struct("Script")
            .field("argv", argv)
            .field("file", file)
            .field("is_narrow", is_narrow)
            .field("files", files)
            .field("input", &has_input)
            .field("workflow", &workflow.as_ref().map(|journal| journal.id()))
            .finish()
    }
}

#[derive(Debug, Serialize)]
struct Module {
    /// Its file, below the folder of the script.
    path: String,
    source: String,
    is_package: bool,
}

impl Script {
    /// Returns what the guest has to know before the run, as JSON. Empty for `-c` with standard input only, `-` for code that came
    /// from there.
    pub(in crate::session) fn describe(&self) -> Vec<u8> {
        if self.file.is_none() && self.files.is_empty() {
            match (self.argv.as_slice(), self.input.is_some()) {
                ([word], true) if word == "-c" => return Vec::new(),
                ([word], false) if word == "-" => return b"-".to_vec(),
                _ => {}
            }
        }
        let files = self.files.iter().map(|FileIn { name, bytes, is_executable, modified, .. }| {
            json!({ "name": name, "bytes": bytes, "is_executable": is_executable, "modified": modified })
        });
        let description = json!({
            "argv": self.argv,
            "file": self.file.as_deref().map(Path::to_string_lossy),
            "modules": self.modules(),
            "files": files.collect::<Vec<_>>(),
            "input": self.input.is_some(),
            "workflow": self.workflow.is_some(),
        });
        description.to_string().into_bytes()
    }

    /// Returns the folder of the script, as Python finds it: links to the file are followed.
    pub fn folder(&self) -> Option<PathBuf> {
        Some(self.file.as_deref()?.canonicalize().ok()?.parent()?.to_owned())
    }

    /// Returns the names of the modules and packages beside the script.
    fn modules(&self) -> Vec<String> {
        let entries = self.folder().and_then(|folder| folder.read_dir().ok());
        let names = entries.into_iter().flatten().flatten().filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let module = match name.strip_suffix(".py") {
                Some(module) => module,
                None if !self.is_narrow && entry.path().is_dir() => &name,
                None => return None,
            };
            is_identifier(module).then(|| module.to_owned())
        });
        names.take(MOST_MODULES).collect()
    }

    /// Answers a question for a module by its full name; null if there is none. Nothing but Python files below the folder of
    /// the script is read, of a narrow one only those directly in it; links out of it are not followed.
    pub(in crate::session) fn module(&self, name: &str) -> Result<Vec<u8>, QuestionError> {
        let Some(folder) = self.folder().filter(|_| name.split('.').all(is_identifier)) else {
            return ok(&None::<Module>);
        };
        let place = name.replace('.', "/");
        for (path, is_package) in [(format!("{place}/__init__.py"), true), (format!("{place}.py"), false)] {
            if let Some(source) = read_module(&folder, &path, self.is_narrow)? {
                return ok(&Module { path, source, is_package });
            }
        }
        let is_folder = !self.is_narrow && below(&folder, &place).is_some_and(|path| path.is_dir());
        // A package without a file of its own.
        let package =
            || Module { path: format!("{place}/__init__.py"), source: String::new(), is_package: true };
        ok(&is_folder.then(package))
    }

    /// Answers with a piece of a file for `/workspace`.
    pub(in crate::session) fn piece(&self, index: usize, offset: u64) -> Result<Vec<u8>, QuestionError> {
        let file = self.files.get(index).ok_or_else(|| QuestionError::plain("there is no such file"))?;
        let left = file.bytes.saturating_sub(offset).min(LONGEST_PIECE.into());
        let mut answer = vec![RAW; 1 + left as usize];
        let mut read = 0;
        while read < left as usize {
            let size = file.file.read_at(&mut answer[1 + read..], offset + read as u64);
            match size
                .map_err(|error| QuestionError::plain(format!("failed to read {}: {error}", file.name)))?
            {
                0 => break,
                size => read += size,
            }
        }
        answer.truncate(1 + read);
        Ok(answer)
    }

    /// Answers with what is there of standard input, once there is something: nothing at its end.
    pub(in crate::session) async fn input(&self, most: u32) -> Result<Vec<u8>, QuestionError> {
        let input = self.input.as_ref().ok_or_else(|| QuestionError::plain("there is no standard input"))?;
        let mut answer = vec![RAW; 1 + most.clamp(1, LONGEST_PIECE) as usize];
        let read = input.lock().await.read(&mut answer[1..]).await;
        let size =
            read.map_err(|error| QuestionError::plain(format!("failed to read standard input: {error}")))?;
        answer.truncate(1 + size);
        Ok(answer)
    }
}

fn is_identifier(name: &str) -> bool {
    let is_word = |letter: char| letter == '_' || letter.is_alphanumeric();
    !name.is_empty() && name.chars().all(is_word) && !name.starts_with(|letter: char| letter.is_ascii_digit())
}

/// Returns the real place of a path, if that is below the folder and no hidden file.
fn below(folder: &Path, path: &str) -> Option<PathBuf> {
    let real = folder.join(path).canonicalize().ok()?;
    let inside = real.strip_prefix(folder).ok()?;
    let is_hidden = inside.components().any(|part| part.as_os_str().as_encoded_bytes().starts_with(b"."));
    (!is_hidden).then_some(real)
}

fn read_module(folder: &Path, path: &str, is_narrow: bool) -> Result<Option<String>, QuestionError> {
    let is_read = |real: &PathBuf| {
        real.extension() == Some("py".as_ref()) && (!is_narrow || real.parent() == Some(folder))
    };
    let Some(real) = below(folder, path).filter(is_read) else {
        return Ok(None);
    };
    let failed = |error: &dyn fmt::Display| QuestionError::plain(format!("failed to read {path}: {error}"));
    // Opening a pipe would wait for its other end.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(open(&real, flags, Mode::empty()).map_err(|error| failed(&error))?);
    let metadata = file.metadata().map_err(|error| failed(&error))?;
    if !metadata.is_file() {
        return Ok(None);
    }
    if metadata.len() > LONGEST_MODULE {
        return Err(failed(&format_args!("it has more than {} MiB", LONGEST_MODULE >> 20)));
    }
    let mut source = Vec::new();
    file.take(LONGEST_MODULE).read_to_end(&mut source).map_err(|error| failed(&error))?;
    // An encoding that the file declares is rare; Python's default is UTF-8.
    String::from_utf8(source).map(Some).map_err(|_| failed(&"it is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(script: &Script, name: &str) -> serde_json::Value {
        serde_json::from_slice::<serde_json::Value>(&script.module(name).unwrap()).unwrap()["ok"].take()
    }

    #[test]
    fn only_modules_below_the_folder_of_the_script_are_read() {
        let around = tempfile::tempdir().unwrap();
        let folder = around.path().join("tools");
        std::fs::create_dir_all(folder.join("package/inner")).unwrap();
        std::fs::create_dir_all(folder.join(".hidden")).unwrap();
        let write = |path: &str, text: &str| std::fs::write(folder.join(path), text).unwrap();
        write("main.py", "");
        write("helper.py", "x = 1");
        write("package/__init__.py", "y = 2");
        write("package/inner/part.py", "z = 3");
        write(".hidden/secret.py", "secret");
        write("data.txt", "secret");
        write("latin.py", "");
        std::fs::write(folder.join("latin.py"), b"# \xe4").unwrap();
        std::fs::write(around.path().join("outside.py"), "secret").unwrap();
        let link = |target: &Path, name: &str| std::os::unix::fs::symlink(target, folder.join(name)).unwrap();
        link(&around.path().join("outside.py"), "escaped.py");
        link(&folder.join(".hidden/secret.py"), "unhidden.py");
        link(&folder.join("data.txt"), "text.py");
        link(&folder.join("helper.py"), "alias.py");
        link(Path::new("/dev/zero"), "endless.py");
        // A read of it would wait for a writer.
        rustix::fs::mkfifoat(rustix::fs::CWD, folder.join("pipe.py"), Mode::from(0o600)).unwrap();
        link(&folder.join("package/inner/part.py"), "deep.py");
        let script = Script { file: Some(folder.join("main.py")), ..Script::default() };
        assert_eq!(
            asked(&script, "helper"),
            json!({ "path": "helper.py", "source": "x = 1", "is_package": false })
        );
        assert_eq!(asked(&script, "alias")["source"], "x = 1");
        assert_eq!(asked(&script, "package")["source"], "y = 2");
        assert_eq!(asked(&script, "package.inner")["is_package"], true);
        assert_eq!(asked(&script, "package.inner.part")["source"], "z = 3");
        for name in [
            "", ".", "..", "../outside", "..outside", "/etc/passwd", "escaped", "unhidden", "text",
            "endless", "pipe", ".hidden.secret", "nothing", "data", "helper.x", "a\0b", "package.",
        ] {
            assert!(asked(&script, name).is_null(), "{name}");
        }
        assert!(script.module("latin").unwrap_err().to_string().contains("not UTF-8"));
        let described: serde_json::Value = serde_json::from_slice(&script.describe()).unwrap();
        let names = described["modules"].as_array().unwrap();
        assert!(
            names.contains(&json!("package")) && !described.to_string().contains("hidden/"),
            "{described}"
        );
        assert!(asked(&Script::default(), "helper").is_null());
        assert_eq!(asked(&script, "deep")["source"], "z = 3");
        let narrow = Script { is_narrow: true, ..script };
        assert_eq!(asked(&narrow, "alias")["source"], "x = 1");
        for name in ["package", "package.inner", "package.inner.part", "deep", "unhidden", "escaped"] {
            assert!(asked(&narrow, name).is_null(), "{name}");
        }
        assert!(narrow.modules().contains(&"helper".into()) && !narrow.modules().contains(&"package".into()));
    }

    #[test]
    fn a_file_is_answered_in_pieces() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        std::fs::write(&path, vec![b'x'; LONGEST_PIECE as usize + 3]).unwrap();
        let file = FileIn {
            name: "data".into(),
            file: File::open(&path).unwrap(),
            bytes: LONGEST_PIECE as u64 + 3,
            is_executable: false,
            modified: 0,
        };
        let script = Script { files: vec![file], ..Script::default() };
        assert_eq!(script.piece(0, 0).unwrap().len(), 1 + LONGEST_PIECE as usize);
        assert_eq!(script.piece(0, LONGEST_PIECE.into()).unwrap(), b"=xxx");
        assert_eq!(script.piece(0, u64::MAX).unwrap(), b"=");
        assert!(script.piece(1, 0).is_err());
        // It became shorter.
        std::fs::write(&path, "ab").unwrap();
        assert_eq!(script.piece(0, 0).unwrap(), b"=ab");
    }

    #[tokio::test]
    async fn input_is_read_when_it_is_asked_for() {
        let input: Input = Box::new(&b"abcdef"[..]);
        let script = Script { argv: vec!["-c".into()], input: Some(Mutex::new(input)), ..Script::default() };
        assert_eq!(script.describe(), b"");
        let piped = Script { argv: vec!["-".into()], ..Script::default() };
        assert_eq!(piped.describe(), b"-");
        assert_eq!(script.input(4).await.unwrap(), b"=abcd");
        assert_eq!(script.input(u32::MAX).await.unwrap(), b"=ef");
        assert_eq!(script.input(4).await.unwrap(), b"=");
        assert!(Script::default().input(4).await.is_err());
    }
}
