//! A function as a skill: a folder with `SKILL.md` that other agents and other people can read, and the source.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::ToolError;
use super::scan;
use super::store::{SavedTool, check, read};

/// Characters of the name of a skill, and of its description.
const LONGEST_NAME: usize = 64;
const LONGEST_DESCRIPTION: usize = 1_000;
/// Functions that an error names.
const MOST_NAMED: usize = 5;
/// Files of a folder that are looked at.
const MOST_FILES: usize = 1_000;

/// A function that somebody else may have written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skill {
    /// The name of the function.
    pub name: String,
    pub source: String,
    pub example: Option<String>,
    /// The file of the source.
    pub file: PathBuf,
}

impl Skill {
    /// Reads the folder of a skill, or the file of one function. Links in the folder are not followed.
    pub fn read(path: &Path) -> Result<Self, ToolError> {
        if !path.is_dir() {
            return Self::read_file(path.to_owned());
        }
        let mut files = python_files(&path.join("scripts"));
        let file = files.pop().ok_or_else(|| ToolError::NoScript(path.to_owned()))?;
        if !files.is_empty() {
            return Err(ToolError::SeveralScripts { folder: path.to_owned(), file });
        }
        let mut skill = Self::read_file(file)?;
        let example = path.join("examples").join(format!("{}.py", skill.name));
        if is_file(&example) {
            skill.example = Some(source_of(&example)?);
        }
        Ok(skill)
    }

    fn read_file(file: PathBuf) -> Result<Self, ToolError> {
        let source = source_of(&file)?;
        let name = match &scan::definitions(&source)[..] {
            [] => return Err(ToolError::NoFunction(file)),
            [name] => (*name).to_owned(),
            names => {
                let names = names.iter().take(MOST_NAMED).map(|name| (*name).to_owned()).collect();
                return Err(ToolError::SeveralFunctions { file, names });
            }
        };
        check(&name)?;
        Ok(Self { name, source, example: None, file })
    }

    /// Returns the files of the folder of a skill: paths below it, and what is in them.
    pub fn files(tool: &SavedTool) -> Vec<(String, String)> {
        let name = &tool.name;
        let script = (format!("scripts/{name}.py"), tool.source.clone());
        let example = tool.example.clone().map(|example| (format!("examples/{name}.py"), example));
        [("SKILL.md".into(), document(tool)), script].into_iter().chain(example).collect()
    }
}

/// Returns the name of the skill of a function: lower-case letters, digits, and single hyphens inside.
pub fn skill_name(function: &str) -> String {
    let words = function.split('_').filter(|word| !word.is_empty()).map(str::to_ascii_lowercase);
    let name: String = words.collect::<Vec<_>>().join("-").chars().take(LONGEST_NAME).collect();
    let name = name.trim_end_matches('-');
    if name.is_empty() { "function".into() } else { name.into() }
}

fn document(tool: &SavedTool) -> String {
    let (name, details) = (&tool.name, &tool.details);
    let about = match details.doc.trim() {
        "" => format!("The Python function {}.", details.signature),
        doc => doc.split_whitespace().collect::<Vec<_>>().join(" "),
    };
    let about: String = about.chars().take(LONGEST_DESCRIPTION).collect();
    // A string of JSON is one of YAML.
    let about = serde_json::Value::from(about);
    let mut text = format!(
        "---\nname: {}\ndescription: {about}\n---\n\n# {name}\n\n```python\n{}\n```\n\n",
        skill_name(name),
        details.signature
    );
    if !details.doc.trim().is_empty() {
        text.push_str(&format!("{}\n\n", details.doc.trim()));
    }
    text.push_str(&format!(
        "The source is in `scripts/{name}.py`. With codebridge, import this folder (`codebridge saved import FOLDER`): \
         every session has the function then.\n"
    ));
    if !details.servers.is_empty() {
        let servers: Vec<String> = details.servers.iter().map(|server| format!("`mcp_{server}`")).collect();
        text.push_str(&format!("\nIt uses MCP servers: {}.\n", servers.join(", ")));
    }
    if tool.example.is_some() {
        text.push_str(&format!("\n`examples/{name}.py` raises an error if the function does not work.\n"));
    }
    text
}

fn python_files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().take(MOST_FILES);
    let files = entries.map(|entry| entry.path());
    let mut files: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|extension| extension == "py") && is_file(path))
        .collect();
    files.sort();
    files
}

/// Whether it is a file, and neither a link nor a pipe.
fn is_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file())
}

fn source_of(path: &Path) -> Result<String, ToolError> {
    match fs::metadata(path) {
        Ok(meta) if !meta.is_file() => Err(ToolError::NoFile(path.to_owned())),
        Ok(_) => read(path).map_err(|source| match source.kind() {
            std::io::ErrorKind::FileTooLarge => ToolError::TooLong,
            _ => ToolError::Io { action: "read", path: path.to_owned(), source },
        }),
        Err(source) => Err(ToolError::Io { action: "read", path: path.to_owned(), source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skill_has_a_plain_name() {
        for (function, skill) in [
            ("close_issue", "close-issue"),
            ("_private__x_", "private-x"),
            ("CamelCase2", "camelcase2"),
            ("___", "function"),
        ] {
            assert_eq!(skill_name(function), skill);
        }
        let long = skill_name(&"ab_".repeat(60));
        assert!(long.len() <= LONGEST_NAME && !long.ends_with('-'), "{long}");
    }

    #[test]
    fn a_folder_has_one_function() {
        let dir = tempfile::tempdir().unwrap();
        let scripts = dir.path().join("scripts");
        assert!(matches!(Skill::read(dir.path()), Err(ToolError::NoScript(_))));
        fs::create_dir_all(&scripts).unwrap();
        std::os::unix::fs::symlink("/etc/hostname", scripts.join("link.py")).unwrap();
        assert!(matches!(Skill::read(dir.path()), Err(ToolError::NoScript(_))), "links are not followed");
        fs::write(scripts.join("f.py"), "# a comment\nasync def f(): pass\n").unwrap();
        fs::create_dir_all(dir.path().join("examples")).unwrap();
        fs::write(dir.path().join("examples/f.py"), "await f()").unwrap();
        let skill = Skill::read(dir.path()).unwrap();
        assert_eq!((skill.name.as_str(), skill.example.as_deref()), ("f", Some("await f()")));
        assert_eq!(Skill::read(&scripts.join("f.py")).unwrap().example, None);
        fs::write(scripts.join("g.py"), "x = 1").unwrap();
        assert!(matches!(Skill::read(dir.path()), Err(ToolError::SeveralScripts { .. })));
        assert!(matches!(Skill::read(&scripts.join("g.py")), Err(ToolError::NoFunction(_))));
        fs::write(scripts.join("g.py"), "def f(): pass\n\ndef g(): return f()\n").unwrap();
        let several = Skill::read(&scripts.join("g.py")).unwrap_err();
        assert!(several.to_string().ends_with("/g.py' defines several functions: f, g"), "{several}");
        assert!(matches!(Skill::read(Path::new("/dev/null")), Err(ToolError::NoFile(_))));
        assert!(matches!(Skill::read(&scripts.join("h.py")), Err(ToolError::Io { .. })));
    }
}
