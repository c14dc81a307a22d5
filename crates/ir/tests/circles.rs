//! The shape of the house, one level down: which files of a crate name each other in circles.
//!
//! A file names another where it uses an item that is defined there, by whatever way: `use crate::a::B` is the file that
//! defines `B`, not the one that passes it on. Declaring a module is not naming it; tests do not count.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};
use syn::{Attribute, Item, ItemMod, ItemUse, UseTree, Visibility};

/// Circles that a crate may have, and files in them. Others may have none. It only ever shrinks.
const CIRCLES: &[(&str, usize, usize)] = &[
    ("engine", 2, 8),
    ("gpu", 1, 2),
    ("io", 1, 11),
    ("postgres", 3, 32),
    ("runner", 1, 11),
    ("suites", 1, 5),
];

type ModulePath = Vec<String>;

/// One module of a crate: a file, or a part of one.
#[derive(Default)]
struct Module {
    file: PathBuf,
    /// Items that it defines, and child modules.
    defined: BTreeSet<String>,
    /// What it names otherwise, by the name that it has here.
    imported: HashMap<String, ModulePath>,
    /// Modules all of whose items it has.
    globs: Vec<ModulePath>,
    /// Paths that its code spells.
    named: Vec<ModulePath>,
}

#[derive(Default)]
struct Crate(BTreeMap<ModulePath, Module>);

/// Whether items are for tests, or stand for others that are left out.
fn is_left_out(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let condition = attribute.path().is_ident("cfg").then(|| attribute.parse_args());
        condition.is_some_and(|condition: syn::Result<syn::Meta>| {
            condition.is_ok_and(|meta| meta.path().is_ident("test") || meta.path().is_ident("not"))
        })
    })
}

/// What stands in `#[path = ".."]`.
fn place(attributes: &[Attribute]) -> Option<String> {
    let attribute = attributes.iter().find(|attribute| attribute.path().is_ident("path"))?;
    let value = &attribute.meta.require_name_value().ok()?.value;
    match value {
        syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) => Some(text.value()),
        _ => None,
    }
}

impl Crate {
    fn read(source: &Path) -> Self {
        let root = ["lib.rs", "main.rs"].map(|name| source.join(name));
        let root = root.iter().find(|path| path.exists()).expect("a crate root").clone();
        let mut found = Self::default();
        found.read_file(&root, source, vec![]);
        found
    }

    /// A file, whose child modules lie in a folder.
    fn read_file(&mut self, file: &Path, folder: &Path, path: ModulePath) {
        let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        self.read_items(&parsed.items, file, folder, path);
    }

    fn read_items(&mut self, items: &[Item], file: &Path, folder: &Path, path: ModulePath) {
        let mut reader = Reader { path: path.clone(), ..Reader::default() };
        reader.module.file = file.to_path_buf();
        items.iter().for_each(|item| reader.visit_item(item));
        let Reader { module, children, .. } = reader;
        self.0.insert(path.clone(), module);
        for child in children {
            let name = child.ident.to_string();
            let below = folder.join(&name);
            let path = [path.clone(), vec![name.clone()]].concat();
            match &child.content {
                Some((_, items)) => self.read_items(items, file, &below, path),
                None => {
                    let beside = folder.join(format!("{name}.rs"));
                    let usual = if beside.exists() { beside } else { below.join("mod.rs") };
                    let place = place(&child.attrs).map(|place| file.with_file_name(place));
                    self.read_file(&place.unwrap_or(usual), &below, path);
                }
            }
        }
    }

    /// The file that defines what an absolute path names; `None` of another crate's items.
    fn definer(&self, path: &[String], depth: usize) -> Option<&Path> {
        let lengths = (0..=path.len()).rev();
        let known = lengths.into_iter().find(|&length| self.0.contains_key(&path[..length]))?;
        let module = &self.0[&path[..known]];
        // A module alone is no item of it; it may be a variable of that name.
        let name = path.get(known)?;
        if module.defined.contains(name) {
            return Some(&module.file);
        }
        if depth > 8 {
            return None;
        }
        if let Some(target) = module.imported.get(name) {
            let target = [target, &path[known + 1..]].concat();
            return self.definer(&target, depth + 1);
        }
        let through = module.globs.iter().filter_map(|glob| {
            let target = [glob, &path[known..]].concat();
            let has = self.0.get(glob).is_some_and(|module| module.has(name));
            has.then(|| self.definer(&target, depth + 1)).flatten()
        });
        through.into_iter().next()
    }

    /// Which file names which.
    fn graph(&self) -> BTreeMap<&Path, BTreeSet<&Path>> {
        let mut graph: BTreeMap<&Path, BTreeSet<&Path>> = BTreeMap::new();
        for module in self.0.values() {
            let named = graph.entry(&module.file).or_default();
            let files = module.named.iter().filter_map(|path| self.definer(path, 0));
            named.extend(files.filter(|file| *file != module.file));
        }
        graph
    }
}

impl Module {
    fn has(&self, name: &str) -> bool {
        self.defined.contains(name) || self.imported.contains_key(name)
    }
}

/// Reads the items of a module.
#[derive(Default)]
struct Reader<'a> {
    path: ModulePath,
    module: Module,
    children: Vec<&'a ItemMod>,
}

impl Reader<'_> {
    /// A path as it is from the root of the crate; of those that begin with a name, as if that were the module's own.
    fn absolute(&self, path: &[String]) -> ModulePath {
        let mut base = self.path.clone();
        let mut rest = path;
        while let Some((first, more)) = rest.split_first() {
            match first.as_str() {
                "crate" => base = vec![],
                "super" => drop(base.pop()),
                "self" => {}
                _ => break,
            }
            rest = more;
        }
        [&base, rest].concat()
    }

    fn import(&mut self, tree: &UseTree, before: &mut Vec<String>, passes_on: bool) {
        match tree {
            UseTree::Path(path) => {
                before.push(path.ident.to_string());
                self.import(&path.tree, before, passes_on);
                before.pop();
            }
            UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.import(tree, before, passes_on));
            }
            UseTree::Glob(_) => {
                let target = self.absolute(before);
                self.module.globs.push(target);
            }
            UseTree::Name(name) => self.import_as(&name.ident, &name.ident, before, passes_on),
            UseTree::Rename(to) => self.import_as(&to.ident, &to.rename, before, passes_on),
        }
    }

    fn import_as(
        &mut self,
        item: &syn::Ident,
        called: &syn::Ident,
        before: &[String],
        passes_on: bool,
    ) {
        let item = item.to_string();
        let own = (item != "self").then_some(item);
        let target = self.absolute(&before.iter().cloned().chain(own).collect::<Vec<_>>());
        if !passes_on {
            self.module.named.push(target.clone());
        }
        let called =
            if called == "self" { before.last().cloned() } else { Some(called.to_string()) };
        // A name that stands for itself is another crate's.
        if let Some(called) = called
            && target != [self.path.as_slice(), std::slice::from_ref(&called)].concat()
        {
            self.module.imported.insert(called, target);
        }
    }

    fn define(&mut self, item: &Item) {
        let name = match item {
            Item::Const(item) => &item.ident,
            Item::Enum(item) => &item.ident,
            Item::Fn(item) => &item.sig.ident,
            Item::Static(item) => &item.ident,
            Item::Struct(item) => &item.ident,
            Item::Trait(item) => &item.ident,
            Item::Type(item) => &item.ident,
            Item::Union(item) => &item.ident,
            _ => return,
        };
        self.module.defined.insert(name.to_string());
    }
}

impl<'a> Visit<'a> for Reader<'a> {
    fn visit_item(&mut self, item: &'a Item) {
        let attributes = match item {
            Item::Mod(item) => &item.attrs,
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Use(item) => &item.attrs,
            _ => &Vec::new(),
        };
        if is_left_out(attributes) {
            return;
        }
        match item {
            Item::Mod(child) => self.children.push(child),
            Item::Use(ItemUse { tree, vis, .. }) => {
                let passes_on = !matches!(vis, Visibility::Inherited);
                self.import(tree, &mut Vec::new(), passes_on);
            }
            other => {
                self.define(other);
                visit::visit_item(self, other);
            }
        }
    }

    /// Who may see an item is no use of it.
    fn visit_visibility(&mut self, _: &'a Visibility) {}

    fn visit_path(&mut self, path: &'a syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        self.module.named.push(self.absolute(&names));
        visit::visit_path(self, path);
    }
}

/// Files that can be reached from each other, by groups of more than one.
fn circles<'a>(graph: &BTreeMap<&'a Path, BTreeSet<&'a Path>>) -> Vec<BTreeSet<&'a Path>> {
    let reached: BTreeMap<&Path, BTreeSet<&Path>> = graph
        .keys()
        .map(|&start| {
            let (mut seen, mut next) = (BTreeSet::new(), vec![start]);
            while let Some(file) = next.pop() {
                next.extend(graph[file].iter().copied().filter(|file| seen.insert(*file)));
            }
            (start, seen)
        })
        .collect();
    let mut circles: Vec<BTreeSet<&Path>> = Vec::new();
    for (&file, seen) in &reached {
        if seen.contains(file) && !circles.iter().any(|circle| circle.contains(file)) {
            let circle = seen.iter().copied().filter(|other| reached[other].contains(file));
            circles.push(circle.collect());
        }
    }
    circles
}

#[test]
fn files_name_each_other_in_no_circles() {
    let allowed: HashMap<&str, (usize, usize)> =
        CIRCLES.iter().map(|(name, circles, files)| (*name, (*circles, *files))).collect();
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut wrong = String::new();
    let mut folders: Vec<_> = fs::read_dir(crates).unwrap().map(|e| e.unwrap().path()).collect();
    folders.sort();
    for folder in folders.iter().filter(|folder| folder.join("Cargo.toml").exists()) {
        let name = folder.file_name().unwrap().to_str().unwrap();
        let source = folder.join("src");
        let found = Crate::read(&source);
        let graph = found.graph();
        let circles = circles(&graph);
        let files: usize = circles.iter().map(BTreeSet::len).sum();
        let may = allowed.get(name).copied().unwrap_or_default();
        if (circles.len(), files) != may {
            let short = |file: &Path| file.strip_prefix(&source).unwrap().display().to_string();
            let of = |circle: &BTreeSet<&Path>| {
                let names = circle.iter().map(|file| {
                    let named = graph[file].intersection(circle).map(|file| short(file));
                    format!("{} ─► {}", short(file), named.collect::<Vec<_>>().join(" "))
                });
                names.collect::<Vec<_>>().join("\n    ")
            };
            let listed: Vec<_> = circles.iter().map(of).collect();
            wrong += &format!(
                "{name}: {} circles of {files} files, may have {may:?}:\n    {}\n",
                circles.len(),
                listed.join("\n\n    "),
            );
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn a_circle_is_found_through_what_passes_it_on() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
    write("lib.rs", "mod a; mod b; mod c; pub use a::A;");
    write("a.rs", "use crate::b::B; pub struct A(B);");
    write("b.rs", "pub struct B; fn f() -> Option<crate::A> { None }");
    write("c.rs", "use crate::{A, b::B}; struct C(A, B);");
    let found = Crate::read(folder.path());
    let graph = found.graph();
    let found = self::circles(&graph);
    let expected = ["a.rs", "b.rs"].map(|name| folder.path().join(name));
    assert_eq!(found, [expected.iter().map(PathBuf::as_path).collect()]);
    write("b.rs", "pub struct B; #[cfg(test)] mod tests { use super::super::A; }");
    let found = Crate::read(folder.path());
    assert_eq!(self::circles(&found.graph()).len(), 0);
}
