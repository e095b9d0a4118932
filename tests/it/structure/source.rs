//! Source files as modules: what each one defines, imports and mentions.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// A path as it is written, and the line it is on.
#[derive(Debug, Clone)]
pub(crate) struct Mention {
    pub(crate) path: Vec<String>,
    pub(crate) line: usize,
}

/// One name that a `use` brings in; without a name, all names of its path.
#[derive(Debug)]
pub(crate) struct Import {
    pub(crate) name: Option<String>,
    pub(crate) of: Mention,
    /// Passes the name on to others (`pub use`), which alone is no use of it.
    pub(crate) is_reexport: bool,
}

/// A module of a crate, in a file of its own or inside one.
#[derive(Debug, Default)]
pub(crate) struct Module {
    pub(crate) krate: usize,
    pub(crate) parent: Option<usize>,
    pub(crate) file: usize,
    pub(crate) children: BTreeMap<String, usize>,
    pub(crate) items: BTreeSet<String>,
    pub(crate) imports: Vec<Import>,
    pub(crate) mentions: Vec<Mention>,
}

/// A file, named as seen from the top of the repository.
#[derive(Debug)]
pub(crate) struct SourceFile {
    pub(crate) name: String,
    pub(crate) lines: Vec<String>,
}

/// The modules of all crates, without what is compiled for tests only.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    pub(crate) files: Vec<SourceFile>,
    pub(crate) modules: Vec<Module>,
    /// For each crate its name and its root module. A program's crate has no name: nobody imports it.
    pub(crate) crates: Vec<(String, usize)>,
    root: PathBuf,
}

impl Sources {
    /// Reads the crates of a repository, each one given by its name and the file of its root module.
    pub(crate) fn read(root: &Path, crates: &[(&str, String)]) -> Result<Self, String> {
        let mut sources = Self { root: root.into(), ..Self::default() };
        for (name, file) in crates {
            let module = Module { krate: sources.crates.len(), ..Module::default() };
            sources.crates.push(((*name).into(), sources.modules.len()));
            sources.modules.push(module);
            let id = sources.modules.len() - 1;
            let path = root.join(file);
            let folder = path.parent().unwrap_or(root).to_path_buf();
            sources.read_file(id, &path, &folder)?;
        }
        Ok(sources)
    }

    /// Reads a module's file; its child modules are in `folder`.
    fn read_file(&mut self, module: usize, path: &Path, folder: &Path) -> Result<(), String> {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let parsed = syn::parse_file(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        let name = path.strip_prefix(&self.root).unwrap_or(path).display().to_string();
        self.modules[module].file = self.files.len();
        self.files.push(SourceFile { name, lines: text.lines().map(String::from).collect() });
        self.read_items(module, &parsed.items, path, folder)
    }

    fn read_items(
        &mut self,
        module: usize,
        items: &[syn::Item],
        path: &Path,
        folder: &Path,
    ) -> Result<(), String> {
        let mut reader = Reader { sources: self, module, modules: Vec::new() };
        for item in items {
            reader.visit_item(item);
        }
        let modules = reader.modules;
        for found in modules {
            let (krate, file) = (self.modules[module].krate, self.modules[module].file);
            let child = self.modules.len();
            self.modules.push(Module { krate, file, parent: Some(module), ..Module::default() });
            self.modules[module].children.insert(found.ident.to_string(), child);
            let name = found.ident.to_string();
            if let Some((_, items)) = &found.content {
                self.read_items(child, items, path, &folder.join(name))?;
                continue;
            }
            let file = match attribute_value(&found.attrs, "path") {
                Some(place) => path.parent().unwrap_or(folder).join(place),
                None => [folder.join(format!("{name}.rs")), folder.join(&name).join("mod.rs")]
                    .into_iter()
                    .find(|file| file.is_file())
                    .ok_or_else(|| format!("{}: no file for module {name}", path.display()))?,
            };
            self.read_file(child, &file, &folder.join(&name))?;
        }
        Ok(())
    }
}

/// Whether this is compiled for tests only.
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let word = attribute.parse_args::<syn::Ident>();
        attribute.path().is_ident("cfg") && word.is_ok_and(|word| word == "test")
    })
}

fn attribute_value(attributes: &[syn::Attribute], name: &str) -> Option<String> {
    attributes.iter().find_map(|attribute| match &attribute.meta {
        syn::Meta::NameValue(pair) if pair.path.is_ident(name) => match &pair.value {
            syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
            _ => None,
        },
        _ => None,
    })
}

fn line(span: Span) -> usize {
    span.start().line
}

/// Collects what one module has; the modules inside it are left for later.
struct Reader<'a, 'ast> {
    sources: &'a mut Sources,
    module: usize,
    modules: Vec<&'ast syn::ItemMod>,
}

impl Reader<'_, '_> {
    fn this(&mut self) -> &mut Module {
        &mut self.sources.modules[self.module]
    }

    fn define(&mut self, name: &syn::Ident) {
        self.this().items.insert(name.to_string());
    }

    fn import(&mut self, tree: &syn::UseTree, mut path: Vec<String>, is_reexport: bool) {
        let (name, last, span) = match tree {
            syn::UseTree::Path(inner) => {
                path.push(inner.ident.to_string());
                return self.import(&inner.tree, path, is_reexport);
            }
            syn::UseTree::Group(group) => {
                for inner in &group.items {
                    self.import(inner, path.clone(), is_reexport);
                }
                return;
            }
            syn::UseTree::Name(inner) => {
                (Some(inner.ident.to_string()), Some(&inner.ident), inner.ident.span())
            }
            syn::UseTree::Rename(inner) => {
                (Some(inner.rename.to_string()), Some(&inner.ident), inner.ident.span())
            }
            syn::UseTree::Glob(inner) => (None, None, inner.star_token.spans[0]),
        };
        match last {
            Some(ident) if ident == "self" => {}
            Some(ident) => path.push(ident.to_string()),
            None => {}
        }
        let name = match name {
            Some(name) if name == "self" => path.last().cloned(),
            name => name,
        };
        self.this().imports.push(Import { name, of: Mention { path, line: line(span) }, is_reexport });
    }

    /// Paths in the arguments of a macro, which have no syntax of their own.
    fn tokens(&mut self, tokens: TokenStream) {
        let (mut path, mut colons, mut after_dot, mut on) = (Vec::new(), 0, false, 0);
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if colons < 2 {
                        self.mention(std::mem::take(&mut path), on);
                        on = line(ident.span());
                    }
                    if !after_dot {
                        path.push(ident.to_string());
                    }
                    (colons, after_dot) = (0, false);
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' && !path.is_empty() => colons += 1,
                other => {
                    self.mention(std::mem::take(&mut path), on);
                    colons = 0;
                    after_dot = matches!(&other, TokenTree::Punct(punct) if punct.as_char() == '.');
                    if let TokenTree::Group(group) = other {
                        self.tokens(group.stream());
                    }
                }
            }
        }
        self.mention(path, on);
    }

    fn mention(&mut self, path: Vec<String>, line: usize) {
        if !path.is_empty() {
            self.this().mentions.push(Mention { path, line });
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_, 'ast> {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        use syn::Item;
        let (attributes, name) = match item {
            Item::Const(item) => (&item.attrs, Some(&item.ident)),
            Item::Enum(item) => (&item.attrs, Some(&item.ident)),
            Item::Fn(item) => (&item.attrs, Some(&item.sig.ident)),
            Item::Static(item) => (&item.attrs, Some(&item.ident)),
            Item::Struct(item) => (&item.attrs, Some(&item.ident)),
            Item::Trait(item) => (&item.attrs, Some(&item.ident)),
            Item::Type(item) => (&item.attrs, Some(&item.ident)),
            Item::Union(item) => (&item.attrs, Some(&item.ident)),
            Item::Impl(item) => (&item.attrs, None),
            Item::Macro(item) => (&item.attrs, item.ident.as_ref()),
            Item::Mod(item) => (&item.attrs, None),
            Item::Use(item) => (&item.attrs, None),
            _ => return,
        };
        if is_for_tests(attributes) {
            return;
        }
        if let Some(name) = name {
            self.define(name);
        }
        match item {
            Item::Mod(module) => self.modules.push(module),
            Item::Use(item) => {
                let is_reexport = !matches!(item.vis, syn::Visibility::Inherited);
                self.import(&item.tree, Vec::new(), is_reexport);
            }
            // An exported macro is found at the root of its crate.
            Item::Macro(item)
                if item.attrs.iter().any(|attribute| attribute.path().is_ident("macro_export")) =>
            {
                if let Some(name) = &item.ident {
                    let name = name.to_string();
                    let mut path = vec![name.clone()];
                    let mut module = self.module;
                    while let Some(parent) = self.sources.modules[module].parent {
                        let here = &self.sources.modules[parent].children;
                        path.extend(here.iter().find(|(_, id)| **id == module).map(|(name, _)| name.clone()));
                        module = parent;
                    }
                    path.reverse();
                    let of = Mention { path, line: 0 };
                    let import = Import { name: Some(name), of, is_reexport: true };
                    self.sources.modules[module].imports.push(import);
                }
            }
            _ => visit::visit_item(self, item),
        }
    }

    fn visit_impl_item(&mut self, item: &'ast syn::ImplItem) {
        let attributes = match item {
            syn::ImplItem::Const(item) => &item.attrs,
            syn::ImplItem::Fn(item) => &item.attrs,
            syn::ImplItem::Type(item) => &item.attrs,
            _ => return,
        };
        if !is_for_tests(attributes) {
            visit::visit_impl_item(self, item);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let on = path.segments.first().map_or(0, |segment| line(segment.ident.span()));
        self.mention(segments, on);
        visit::visit_path(self, path);
    }

    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.visit_path(&call.path);
        self.tokens(call.tokens.clone());
    }
}
