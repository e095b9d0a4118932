//! Which file uses what of which other file, and where these uses run in a circle.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::source::{Mention, Module, Sources};

/// What a path leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Module(usize),
    /// Something that this file defines.
    Item(usize),
}

/// The first line of a file that uses another file.
#[derive(Debug, Clone)]
pub(crate) struct Arrow {
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) line: usize,
}

/// All arrows between files; re-exports are followed to the file that defines the item.
#[derive(Debug)]
pub(crate) struct Graph<'a> {
    pub(crate) sources: &'a Sources,
    pub(crate) arrows: BTreeMap<(usize, usize), Arrow>,
}

impl<'a> Graph<'a> {
    pub(crate) fn new(sources: &'a Sources) -> Self {
        let mut graph = Self { sources, arrows: BTreeMap::new() };
        for (id, module) in sources.modules.iter().enumerate() {
            let imports = module.imports.iter().filter(|import| !import.is_reexport).map(|import| &import.of);
            for mention in imports.chain(&module.mentions) {
                graph.add(id, module, mention);
            }
        }
        graph
    }

    fn add(&mut self, id: usize, module: &Module, mention: &Mention) {
        for target in self.resolve(id, &mention.path, &mut BTreeSet::new()) {
            let Target::Item(to) = target else { continue };
            let (from, line) = (module.file, mention.line);
            if from != to {
                let arrow = self.arrows.entry((from, to)).or_insert(Arrow { from, to, line });
                arrow.line = arrow.line.min(line);
            }
        }
    }

    /// Follows a path from inside a module. `seen` holds the imports on the way, which may run in a circle.
    fn resolve(&self, from: usize, path: &[String], seen: &mut BTreeSet<(usize, String)>) -> Vec<Target> {
        let modules = &self.sources.modules;
        let Some((first, rest)) = path.split_first() else { return Vec::new() };
        let mut at = match first.as_str() {
            "crate" | "$crate" => vec![Target::Module(self.sources.crates[modules[from].krate].1)],
            "self" => vec![Target::Module(from)],
            "super" => modules[from].parent.map(Target::Module).into_iter().collect(),
            name => {
                let found = self.lookup(from, name, seen);
                let named = self.sources.crates.iter().find(|(krate, _)| krate == name);
                match named {
                    Some((_, root)) if found.is_empty() => vec![Target::Module(*root)],
                    _ => found,
                }
            }
        };
        for name in rest {
            at = at
                .into_iter()
                .flat_map(|target| match target {
                    Target::Module(id) if name == "super" => {
                        modules[id].parent.map(Target::Module).into_iter().collect()
                    }
                    Target::Module(id) => self.lookup(id, name, seen),
                    // The rest of the path is inside the item: a variant, an associated function.
                    item => vec![item],
                })
                .collect();
        }
        at
    }

    /// What a name means in a module: there can be a module and an item of the same name.
    fn lookup(&self, id: usize, name: &str, seen: &mut BTreeSet<(usize, String)>) -> Vec<Target> {
        if !seen.insert((id, name.into())) {
            return Vec::new();
        }
        let module = &self.sources.modules[id];
        let mut found: Vec<Target> =
            module.children.get(name).map(|id| Target::Module(*id)).into_iter().collect();
        if module.items.contains(name) {
            found.push(Target::Item(module.file));
        }
        for import in module.imports.iter().filter(|import| import.name.as_deref() == Some(name)) {
            found.extend(self.resolve(id, &import.of.path, seen));
        }
        if found.is_empty() {
            for import in module.imports.iter().filter(|import| import.name.is_none()) {
                for target in self.resolve(id, &import.of.path, seen) {
                    if let Target::Module(other) = target {
                        found.extend(self.lookup(other, name, seen));
                    }
                }
            }
        }
        seen.remove(&(id, name.into()));
        found
    }

    /// The files that begin a path with a word, by that word.
    pub(crate) fn first_words(&self) -> BTreeMap<String, BTreeSet<String>> {
        let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for module in &self.sources.modules {
            let file = &self.sources.files[module.file].name;
            let imports = module.imports.iter().map(|import| &import.of);
            for word in imports.chain(&module.mentions).filter_map(|mention| mention.path.first()) {
                found.entry(word.clone()).or_default().insert(file.clone());
            }
        }
        found
    }

    /// The cycles between files, each one as its arrows.
    pub(crate) fn cycles(&self) -> Vec<Vec<&Arrow>> {
        let mut uses: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for (from, to) in self.arrows.keys() {
            uses.entry(*from).or_default().insert(*to);
        }
        let arrow = |pair: &[usize]| &self.arrows[&(pair[0], pair[1])];
        cycles(&uses).iter().map(|cycle| cycle.windows(2).map(arrow).collect()).collect()
    }

    /// A chain of arrows as text: each file, and the line that uses the next one.
    pub(crate) fn describe(&self, chain: &[&Arrow]) -> String {
        let files = &self.sources.files;
        let mut text = String::new();
        for arrow in chain {
            let Arrow { from, to, line } = arrow;
            let code = files[*from].lines.get(line.wrapping_sub(1)).map_or("", |line| line.trim());
            text += &format!("  {}:{line}: {code}\n    uses {}\n", files[*from].name, files[*to].name);
        }
        text
    }
}

/// For each arrow on a cycle the shortest cycle through it, from a node back to itself; each cycle once.
pub(crate) fn cycles<N: Ord + Copy>(uses: &BTreeMap<N, BTreeSet<N>>) -> Vec<Vec<N>> {
    let mut found = BTreeMap::new();
    for (from, to) in uses.iter().flat_map(|(from, all)| all.iter().map(move |to| (*from, *to))) {
        if let Some(way_back) = shortest_way(uses, to, from) {
            let cycle = [vec![from], way_back].concat();
            found.entry(cycle.iter().copied().collect::<BTreeSet<N>>()).or_insert(cycle);
        }
    }
    found.into_values().collect()
}

/// The nodes from the first to the last one.
fn shortest_way<N: Ord + Copy>(uses: &BTreeMap<N, BTreeSet<N>>, first: N, last: N) -> Option<Vec<N>> {
    let mut reached_from = BTreeMap::from([(first, first)]);
    let mut queue = VecDeque::from([first]);
    while let Some(node) = queue.pop_front() {
        if node == last {
            let mut way = vec![last];
            while way[0] != first {
                way.insert(0, reached_from[&way[0]]);
            }
            return Some(way);
        }
        for next in uses.get(&node).into_iter().flatten() {
            reached_from.entry(*next).or_insert_with(|| {
                queue.push_back(*next);
                node
            });
        }
    }
    None
}
