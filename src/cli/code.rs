//! Where the code of `exec` comes from, and what it is started with.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, IsTerminal, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tokio::sync::Mutex;

use super::ExecArgs;
use crate::mcp::stdio;
use crate::nearest::nearest_entry;
use crate::session::{FileIn, Input, Script};
use crate::sizes::bytes_text;

/// Bytes of a name in `/workspace`.
const LONGEST_NAME: usize = 255;

/// Why there is no code to run.
#[derive(Debug, thiserror::Error)]
pub(super) enum CodeError {
    #[error("no code: expected FILE, -c CODE, or code on standard input")]
    None,
    #[error("{} is a notebook", .0.display())]
    Notebook(PathBuf),
    #[error("{} is a folder", .0.display())]
    CodeFolder(PathBuf),
    #[error("failed to read {}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("failed to read code from standard input: {0}")]
    Input(#[source] io::Error),
    #[error("could not copy {} into the sandbox: {source}", path.display())]
    FileIn { path: PathBuf, source: io::Error },
    #[error("could not copy {} into the sandbox: it is a folder", .0.display())]
    Folder(PathBuf),
    #[error("could not copy {} into the sandbox: it is neither a file nor a folder", .0.display())]
    NoFile(PathBuf),
    #[error("could not copy {name} into the sandbox: /workspace has {}, and the files of --in have {}", bytes_text(*space), bytes_text(*bytes))]
    TooLarge { name: String, bytes: u64, space: u64 },
    #[error("invalid name '{0}' for a file in /workspace")]
    Name(String),
    #[error("two files of --in have the name '{0}' in /workspace")]
    Twice(String),
}

impl CodeError {
    /// Returns what to do about it.
    pub(super) fn hint(&self) -> Option<String> {
        let fixed = match self {
            Self::Notebook(path) => {
                return Some(format!("jupyter nbconvert --to script {}", path.display()));
            }
            Self::CodeFolder(path) => {
                return Some(format!("name a file in it: {}", path.join("main.py").display()));
            }
            Self::File { path, source } | Self::FileIn { path, source } if is_missing(source) => {
                return nearest_entry(path, Path::is_file)
                    .map(|near| format!("did you mean {}?", near.display()));
            }
            Self::TooLarge { bytes, .. } => {
                // Code needs some space too.
                let size = bytes.saturating_mul(2).div_ceil(1 << 20);
                return Some(format!(
                    "give the sandbox a larger /workspace: --workspace-size {size}m, or share the folder: --share DIR"
                ));
            }
            Self::None => Some("`codebridge exec --help` shows the forms of the command"),
            Self::Folder(_) => Some("share the folder with --share DIR"),
            Self::NoFile(path) if path == Path::new("-") => Some("standard input is sys.stdin of the code"),
            Self::Name(_) => Some("name it with --in FILE:NAME; NAME has no '/' and no control characters"),
            Self::Twice(_) => Some("give one of them another name with --in FILE:NAME"),
            _ => None,
        };
        fixed.map(str::to_owned)
    }
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// Code, and what it is started with.
#[derive(Debug)]
pub(super) struct Source {
    pub(super) code: String,
    pub(super) script: Script,
}

/// Reads the code that the arguments name.
pub(super) fn read(args: &ExecArgs) -> Result<Source, CodeError> {
    let files = files_in(&args.flags.files)?;
    let words: Vec<String> = args.words.iter().map(|word| word.to_string_lossy().into_owned()).collect();
    // As `python -c CODE ARGUMENTS` has it.
    if let Some(code) = &args.code {
        let argv = std::iter::once("-c".into()).chain(words).collect();
        let script = Script { argv, files, input: input(), ..Script::default() };
        return Ok(Source { code: code.clone(), script });
    }
    match args.words.first().map(Path::new) {
        Some(path) if path != Path::new("-") => {
            if path.is_dir() {
                return Err(CodeError::CodeFolder(path.to_owned()));
            }
            if path.extension().is_some_and(|extension| extension == "ipynb") && path.exists() {
                return Err(CodeError::Notebook(path.to_owned()));
            }
            let code = std::fs::read_to_string(path);
            let code = code.map_err(|source| CodeError::File { path: path.to_owned(), source })?;
            let file = Some(path.to_owned());
            Ok(Source {
                code,
                script: Script { argv: words, file, files, input: input(), ..Script::default() },
            })
        }
        None if io::stdin().is_terminal() => Err(CodeError::None),
        _ => {
            let mut code = String::new();
            io::stdin().read_to_string(&mut code).map_err(CodeError::Input)?;
            let argv = if words.is_empty() { vec!["-".into()] } else { words };
            Ok(Source { code, script: Script { argv, files, ..Script::default() } })
        }
    }
}

/// Opens standard input for the code. Nothing is read before the code reads it.
fn input() -> Option<Mutex<Input>> {
    let input: Input = Box::new(stdio::input().ok()?);
    Some(Mutex::new(input))
}

/// Checks that the files for `/workspace` fit.
pub(super) fn check_size(files: &[FileIn], space: u64) -> Result<(), CodeError> {
    let bytes = files.iter().fold(0, |sum: u64, file| sum.saturating_add(file.bytes));
    let largest = files.iter().max_by_key(|file| file.bytes).filter(|_| bytes > space);
    largest.map_or(Ok(()), |file| Err(CodeError::TooLarge { name: file.name.clone(), bytes, space }))
}

/// Opens the files that are copied into the sandbox.
fn files_in(words: &[OsString]) -> Result<Vec<FileIn>, CodeError> {
    let mut files: Vec<FileIn> = Vec::new();
    for word in words {
        let (path, name) = split(word);
        let text = name.and_then(OsStr::to_str).filter(|name| is_name(name));
        let name =
            text.ok_or_else(|| CodeError::Name(name.unwrap_or(word).to_string_lossy().into_owned()))?;
        if files.iter().any(|file| file.name == name) {
            return Err(CodeError::Twice(name.to_owned()));
        }
        files.push(open(path, name)?);
    }
    Ok(files)
}

/// Returns the file and its name in the sandbox. A file whose name has a colon is that file.
fn split(word: &OsStr) -> (&Path, Option<&OsStr>) {
    let whole = Path::new(word);
    let colon = word.as_bytes().iter().rposition(|&byte| byte == b':');
    match colon {
        Some(colon) if !whole.exists() => {
            let (path, name) = word.as_bytes().split_at(colon);
            (Path::new(OsStr::from_bytes(path)), Some(OsStr::from_bytes(&name[1..])))
        }
        _ => (whole, whole.file_name()),
    }
}

fn is_name(name: &str) -> bool {
    let is_special = matches!(name, "" | "." | "..");
    !is_special && name.len() <= LONGEST_NAME && !name.contains('/') && !name.contains(char::is_control)
}

fn open(path: &Path, name: &str) -> Result<FileIn, CodeError> {
    let failed = |source| CodeError::FileIn { path: path.to_owned(), source };
    if path == Path::new("-") {
        return Err(CodeError::NoFile(path.to_owned()));
    }
    // Opening a pipe would wait for its other end.
    let metadata = std::fs::metadata(path).map_err(failed)?;
    if metadata.is_dir() {
        return Err(CodeError::Folder(path.to_owned()));
    }
    if !metadata.is_file() {
        return Err(CodeError::NoFile(path.to_owned()));
    }
    let file = File::open(path).map_err(failed)?;
    let is_executable = metadata.mode() & 0o111 != 0;
    let modified = metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec());
    Ok(FileIn { name: name.to_owned(), file, bytes: metadata.len(), is_executable, modified })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_has_a_neighbour() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("report.py"), "").unwrap();
        let hint = |name: &str| {
            let source = io::Error::from(io::ErrorKind::NotFound);
            CodeError::File { path: folder.path().join(name), source }.hint()
        };
        assert!(hint("reprot.py").is_some_and(|hint| hint.ends_with("report.py?")));
        assert_eq!(hint("wombat"), None);
    }

    #[test]
    fn files_have_their_own_name_or_the_given_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).into_os_string();
        std::fs::write(path("a.csv"), "12").unwrap();
        std::fs::write(path("b:c"), "").unwrap();
        let names = |words: &[OsString]| {
            files_in(words).map(|files| files.into_iter().map(|file| file.name).collect::<Vec<_>>())
        };
        assert_eq!(names(&[path("a.csv"), path("a.csv:x y"), path("b:c")]).unwrap(), ["a.csv", "x y", "b:c"]);
        let error = |words: &[OsString]| names(words).unwrap_err();
        assert!(matches!(error(&[path("a.csv"), path("a.csv")]), CodeError::Twice(_)));
        for name in ["", ".", "..", "x/y", "../x", "x\ny", &"x".repeat(256)] {
            assert!(
                matches!(
                    error(&[path(&format!("a.csv:{name}"))]),
                    CodeError::Name(_) | CodeError::FileIn { .. }
                ),
                "{name}"
            );
        }
        assert!(matches!(error(&[path("missing")]), CodeError::FileIn { .. }));
        let given = files_in(&[path("a.csv"), path("b:c")]).unwrap();
        assert!(check_size(&given, 2).is_ok());
        let refused = check_size(&given, 1).unwrap_err();
        assert!(refused.to_string().contains("a.csv into the sandbox: /workspace has 1 B"), "{refused}");
        assert!(refused.hint().is_some_and(|hint| hint.contains("--workspace-size 1m")));
        assert!(matches!(error(&["-".into()]), CodeError::NoFile(_)));
        assert!(matches!(error(&["/dev/zero".into()]), CodeError::NoFile(_)));
        assert!(matches!(error(&[folder.path().as_os_str().to_owned()]), CodeError::Folder(_)));
    }
}
