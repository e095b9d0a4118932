//! The list of layers: what each part of a folder may use of the other parts.
//!
//! A line `[src/upstream]` begins the list of that folder's parts: the folders and files directly below it. A line
//! `pool: catalog error` says that `pool` may use `catalog` and `error`, and nothing else of that folder; a part that is
//! not listed may use nothing. In `[crates]` the parts are the folders of the repository, `src` being the root package.

use std::collections::{BTreeMap, BTreeSet};

use super::graph::{Arrow, Graph, cycles};

/// The arrows that are allowed, by folder and part.
#[derive(Debug)]
pub(crate) struct Layers {
    folders: BTreeMap<String, BTreeMap<String, BTreeSet<String>>>,
}

/// What the check found.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Arrows that no line allows, with the use in the sources.
    pub(crate) forbidden: Vec<String>,
    /// Allowed arrows that nothing uses, and parts that do not exist.
    pub(crate) unused: Vec<String>,
    /// Cycles between parts.
    pub(crate) cycles: Vec<String>,
    pub(crate) arrows_seen: usize,
}

impl Layers {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let mut folders: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
        let mut folder = None;
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                folder = Some(folders.entry(name.into()).or_default());
                continue;
            }
            let (part, uses) = line.split_once(':').ok_or_else(|| format!("layers: no colon in: {line}"))?;
            let parts = folder.as_mut().ok_or_else(|| format!("layers: no folder before: {line}"))?;
            let uses = uses.split_whitespace().map(String::from).collect();
            if parts.insert(part.trim().into(), uses).is_some() {
                return Err(format!("layers: {part} is listed twice"));
            }
        }
        Ok(Self { folders })
    }

    pub(crate) fn check(&self, graph: &Graph<'_>) -> Findings {
        let mut findings = Findings::default();
        for (folder, allowed) in &self.folders {
            let mut used: BTreeMap<(&str, &str), &Arrow> = BTreeMap::new();
            for arrow in graph.arrows.values() {
                let name = |file: usize| part_of(folder, &graph.sources.files[file].name);
                if let (Some(from), Some(to)) = (name(arrow.from), name(arrow.to))
                    && from != to
                {
                    used.entry((from, to)).or_insert(arrow);
                }
            }
            findings.arrows_seen += used.len();
            for ((from, to), arrow) in &used {
                if !allowed.get(*from).is_some_and(|uses| uses.contains(*to)) {
                    let place = graph.describe(&[arrow]);
                    findings.forbidden.push(format!("[{folder}] {from} uses {to}\n{place}"));
                }
            }
            for (part, uses) in allowed {
                for to in uses.iter().filter(|to| !used.contains_key(&(part.as_str(), to.as_str()))) {
                    findings.unused.push(format!("[{folder}] {part} does not use {to}"));
                }
            }
            let uses = allowed
                .iter()
                .map(|(part, uses)| (part.as_str(), uses.iter().map(String::as_str).collect()))
                .collect();
            for cycle in cycles(&uses) {
                findings.cycles.push(format!("[{folder}] {}", cycle.join(" → ")));
            }
        }
        findings
    }
}

/// The part of a folder that a file belongs to. The folder's own `mod.rs` is the part `mod`, its `lib.rs` the part `lib`.
pub(crate) fn part_of<'a>(folder: &str, file: &'a str) -> Option<&'a str> {
    if folder == "crates" {
        return file.split('/').next();
    }
    let inside = file.strip_prefix(folder)?.strip_prefix('/')?;
    let part = inside.split('/').next()?;
    Some(part.strip_suffix(".rs").unwrap_or(part))
}
