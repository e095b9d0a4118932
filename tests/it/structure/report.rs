//! The whole check of a repository, for the test and for the command line.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::graph::Graph;
use super::layers::{Findings, Layers};
use super::source::Sources;

/// What is wrong with a repository's structure.
#[derive(Debug)]
pub(crate) struct Report {
    /// Each one as a chain of files with the lines that import.
    pub(crate) cycles: Vec<String>,
    pub(crate) layers: Findings,
    /// The files that name each crate, by the first word of a path.
    pub(crate) used_crates: BTreeMap<String, BTreeSet<String>>,
    pub(crate) files: usize,
    pub(crate) arrows: usize,
}

/// Checks the repository at `root` against a list of layers.
pub(crate) fn check(root: &Path, layers: &str) -> Result<Report, String> {
    let sources = Sources::read(root, &crates(root))?;
    let graph = Graph::new(&sources);
    Ok(Report {
        cycles: graph.cycles().iter().map(|cycle| graph.describe(cycle)).collect(),
        layers: Layers::parse(layers)?.check(&graph),
        used_crates: graph.first_words(),
        files: sources.files.len(),
        arrows: graph.arrows.len(),
    })
}

/// The libraries by their names, and the programs and integration tests, which nobody imports.
fn crates(root: &Path) -> Vec<(&'static str, String)> {
    let libraries = [
        ("codebridge", "src/lib.rs"),
        ("codebridge_runtimes", "runtimes/src/lib.rs"),
        ("codebridge_images", "images/src/lib.rs"),
    ];
    let mut crates: Vec<_> = libraries.map(|(name, file)| (name, file.to_string())).into();
    for program in ["src/main.rs", "bench/src/main.rs", "tests/it/main.rs"] {
        crates.push(("", program.into()));
    }
    for (folder, file) in [("bench/src/bin", "main.rs"), ("runtimes/tests", ""), ("images/tests", "")] {
        for entry in fs::read_dir(root.join(folder)).into_iter().flatten().flatten() {
            let path = Path::new(folder).join(entry.file_name()).join(file);
            if path.extension().is_some_and(|extension| extension == "rs") {
                crates.push(("", path.display().to_string().trim_end_matches('/').into()));
            }
        }
    }
    crates.retain(|(_, file)| root.join(file).is_file());
    crates
}
