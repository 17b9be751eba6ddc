//! Import cycles between files. A reader must know all files of a cycle to understand one of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use super::{files_below, read, root};

/// Maximum number of files in an import cycle: a type with its builder, or two halves of one idea.
const FILES_MAX: usize = 3;

#[test]
fn no_circle_of_files_is_larger_than_three() {
    let mut large = Vec::new();
    for source in source_folders() {
        let imports = imports_of(&source);
        assert!(!imports.is_empty(), "{} has files", source.display());
        let circles = circles(&imports).into_iter();
        large.extend(
            circles
                .filter(|circle| circle.len() > FILES_MAX)
                .map(|circle| format!("    {}: {}", source.display(), circle.join(", "))),
        );
    }
    assert!(
        large.is_empty(),
        "more than {FILES_MAX} files import each other in a circle (move what they share to a file below them):\n{}",
        large.join("\n")
    );
}

#[test]
fn circles_are_found_through_reexports_and_nested_imports() {
    let parsed = |text: &str| imports(&syn::parse_file(text).expect("Rust"));
    assert_eq!(
        parsed("use crate::{a::{self, B}, c::D as E}; use std::fmt; pub(crate) use crate::f;"),
        [vec!["a"], vec!["a", "B"], vec!["c", "D"], vec!["f"]]
    );
    assert_eq!(
        parsed("#[cfg(test)] mod tests { use crate::a; }"),
        Vec::<Vec<String>>::new()
    );
    let graph = |edges: &[(&str, &[&str])]| {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        circles(
            &edges
                .iter()
                .map(|(from, to)| ((*from).to_owned(), owned(to)))
                .collect(),
        )
    };
    let found = graph(&[("a", &["b"]), ("b", &["c", "d"]), ("c", &["a"]), ("d", &[])]);
    assert_eq!(found, [["a", "b", "c"]]);
    assert!(graph(&[("a", &["b"]), ("b", &["c"]), ("c", &[])]).is_empty());
}

type Imports = BTreeMap<String, BTreeSet<String>>;

fn source_folders() -> Vec<PathBuf> {
    let crates = std::fs::read_dir(root().join("crates")).expect("crates");
    let sources = crates.map(|krate| krate.expect("a crate").path().join("src"));
    sources.filter(|path| path.is_dir()).collect()
}

/// The modules that each module of a crate imports with `use crate::`, without imports by tests.
fn imports_of(source: &Path) -> Imports {
    let modules: BTreeMap<String, syn::File> = files_below(source, "rs")
        .into_iter()
        .map(|path| {
            let name = module_name(path.strip_prefix(source).expect("below the crate"));
            let file = syn::parse_file(&read(&path));
            (
                name,
                file.unwrap_or_else(|error| panic!("{}: {error}", path.display())),
            )
        })
        .collect();
    let reexports = modules.get("").map(reexports).unwrap_or_default();
    let is_file = |name: &str| !name.is_empty() && modules.contains_key(name);
    let is_tested = |name: &&String| is_file(name) && !name.split("::").any(|part| part == "tests");
    modules
        .keys()
        .filter(is_tested)
        .map(|name| {
            let paths = imports(&modules[name]).into_iter();
            let files = paths.filter_map(|mut path| {
                if let Some(module) = reexports.get(&path[0]) {
                    path.splice(0..0, module.iter().cloned());
                }
                let prefixes = (1..=path.len())
                    .rev()
                    .map(|length| path[..length].join("::"));
                prefixes.into_iter().find(|prefix| is_file(prefix))
            });
            let others = files.filter(|file| file != name).collect();
            (name.clone(), others)
        })
        .collect()
}

/// The name of a module: `state/blocks.rs` is `state::blocks`, and the root of the crate has the empty name.
fn module_name(path: &Path) -> String {
    let path = path.with_extension("");
    let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
    match parts.join("::").as_str() {
        "lib" | "main" => String::new(),
        name => name.trim_end_matches("::mod").to_owned(),
    }
}

/// Paths below `crate::` that a file imports, outside its tests.
fn imports(file: &syn::File) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    collect(&file.items, &mut |use_tree| {
        let mut paths = Vec::new();
        expand(use_tree, &mut Vec::new(), &mut paths);
        found.extend(
            paths
                .into_iter()
                .filter(|path| path[0] == "crate" && path.len() > 1)
                .map(|path| path[1..].to_vec()),
        );
    });
    found
}

/// The module from which the root of a crate exports each name.
fn reexports(file: &syn::File) -> BTreeMap<String, Vec<String>> {
    let mut found = BTreeMap::new();
    collect(&file.items, &mut |use_tree| {
        let mut paths = Vec::new();
        expand(use_tree, &mut Vec::new(), &mut paths);
        for mut path in paths {
            if matches!(path[0].as_str(), "crate" | "self") {
                path.remove(0);
            }
            if let Some(name) = path.pop().filter(|_| !path.is_empty()) {
                found.insert(name, path);
            }
        }
    });
    found
}

/// Calls `found` for every import in these items and in the modules within them, except in tests.
fn collect(items: &[syn::Item], found: &mut impl FnMut(&syn::UseTree)) {
    for item in items {
        match item {
            syn::Item::Use(import) => found(&import.tree),
            syn::Item::Mod(module) if module.ident != "tests" => {
                if let Some((_, items)) = &module.content {
                    collect(items, found);
                }
            }
            _ => {}
        }
    }
}

fn expand(tree: &syn::UseTree, prefix: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
    match tree {
        syn::UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            expand(&path.tree, prefix, paths);
            prefix.pop();
        }
        syn::UseTree::Group(group) => {
            for tree in &group.items {
                expand(tree, prefix, paths);
            }
        }
        syn::UseTree::Glob(_) => paths.push(prefix.clone()),
        syn::UseTree::Name(name) if name.ident == "self" => paths.push(prefix.clone()),
        syn::UseTree::Name(syn::UseName { ident })
        | syn::UseTree::Rename(syn::UseRename { ident, .. }) => {
            let mut path = prefix.clone();
            path.push(ident.to_string());
            paths.push(path);
        }
    }
}

/// Groups of two or more modules, each of which reaches all others.
fn circles(imports: &Imports) -> Vec<Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> = imports
        .keys()
        .map(|from| (from, reachable(from, imports)))
        .collect();
    let mut circles = BTreeSet::new();
    for (from, to) in &reached {
        let circle = to.iter().filter(|to| reached[**to].contains(from));
        let circle: Vec<String> = circle.map(|name| (*name).clone()).collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

fn reachable<'i>(from: &'i String, imports: &'i Imports) -> BTreeSet<&'i String> {
    let mut found = BTreeSet::new();
    let mut next = vec![from];
    while let Some(name) = next.pop() {
        for to in imports.get(name).into_iter().flatten() {
            if imports.contains_key(to) && found.insert(to) {
                next.push(to);
            }
        }
    }
    found
}
