//! The metadata that a script carries in comments: `# /// script` (PEP 723).

use std::str::FromStr;

use pep440_rs::{Version, VersionSpecifiers};
use serde::Deserialize;

use super::InstallError;
use crate::requirements::Requirement;

/// Bytes of such metadata. No real script has more.
const LONGEST: usize = 16 << 10;

/// What a script needs. Settings of tools in it are ignored: they may name other indexes and paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Script {
    pub dependencies: Vec<Requirement>,
    requires_python: Option<VersionSpecifiers>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Table {
    #[serde(default)]
    dependencies: Vec<String>,
    requires_python: Option<String>,
}

impl Script {
    /// Reads the TOML of a block.
    pub fn parse(text: &str) -> Result<Self, InstallError> {
        let broken = |why: String| InstallError::Script(why);
        if text.len() > LONGEST {
            return Err(broken(format!("it has more than {} KiB", LONGEST >> 10)));
        }
        let table: Table = toml::from_str(text).map_err(|error| broken(error.message().to_owned()))?;
        let dependencies = table.dependencies.iter().map(|item| item.parse()).collect::<Result<_, _>>()?;
        let requires_python = table.requires_python.as_deref().map(VersionSpecifiers::from_str).transpose();
        let requires_python =
            requires_python.map_err(|_| broken("its requires-python is not a list of versions".into()))?;
        Ok(Self { dependencies, requires_python })
    }

    /// Checks the version of Python that it needs.
    pub fn check_python(&self, has: &str) -> Result<(), InstallError> {
        let fits = |needed: &VersionSpecifiers| has.parse::<Version>().is_ok_and(|has| needed.contains(&has));
        match &self.requires_python {
            Some(needed) if !fits(needed) => {
                Err(InstallError::PythonVersion { needed: needed.to_string(), has: has.to_owned() })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_and_the_version_of_python_are_read_and_tools_are_not() {
        let text = "requires-python = \">=3.11\"\ndependencies = [\"rich\", \"httpx<1\"]\n\
                    [tool.uv]\nindex-url = \"http://x\"\n[tool.uv.sources]\nrich = { path = \"/etc\" }\n";
        let script = Script::parse(text).unwrap();
        let written: Vec<_> = script.dependencies.iter().map(ToString::to_string).collect();
        assert_eq!(written, ["rich", "httpx<1"]);
        assert!(script.check_python("3.14.0").is_ok());
        let error = script.check_python("3.9.2").unwrap_err().to_string();
        assert!(error.contains(">=3.11") && error.contains("3.9.2"), "{error}");
    }

    #[test]
    fn a_block_that_is_no_metadata_is_an_error() {
        for bad in ["dependencies = 1", "dependencies = [", "dependencies = ['x @ file:///etc/passwd']"] {
            assert!(Script::parse(bad).is_err(), "{bad}");
        }
        assert!(Script::parse(&"#".repeat(LONGEST + 1)).is_err());
    }
}
