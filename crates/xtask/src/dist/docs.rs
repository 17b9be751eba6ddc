//! The documentation that the packages install. Its links must lead to installed files.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use pulldown_cmark::{Event, Options, Parser, Tag};

use crate::{
    book::{
        links::{self, is_external, resolved},
        markdown_files,
    },
    workspace,
};

/// The directory of the installed pages. Messages of the program name it too.
pub(crate) const INSTALLED: &str = admin::DOCUMENTATION;
/// Pages for developers, and the table of contents of the book.
const LEFT_OUT: [&str; 2] = ["docs/decisions/", "docs/SUMMARY.md"];
/// Directories and files that are installed, each with its place relative to the installed pages.
const PLACES: [(&str, &str); 6] = [
    ("docs/", ""),
    ("SECURITY.md", "SECURITY.md"),
    ("conf/", "examples/"),
    (
        "packaging/prometheus/proscenium.",
        "../../proscenium/prometheus/proscenium.",
    ),
    (
        "packaging/proscenium.service",
        "../../../lib/systemd/system/proscenium.service",
    ),
    (
        "packaging/logrotate",
        "../../../../etc/logrotate.d/proscenium",
    ),
];

/// Writes the pages and the examples as the packages install them.
pub(super) fn stage(to: &Path) -> Result<()> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    let root = workspace::root();
    for source in markdown_files(root)? {
        if let Some(installed) = installed(&source) {
            let text = fs::read_to_string(root.join(&source))?;
            write(&to.join(installed), &relinked(&source, &text))?;
        }
    }
    for example in fs::read_dir(root.join("conf"))? {
        let example = example?;
        let text = fs::read_to_string(example.path())?;
        let name = format!("conf/{}", example.file_name().display());
        let installed = installed(&name).context("examples are installed")?;
        let text = text.replace("docs/", &format!("{INSTALLED}/"));
        write(&to.join(installed), &text)?;
    }
    Ok(())
}

/// Fails if a link of an installed page is broken. `tree` is the root of an installation.
pub(super) fn check_links(tree: &Path) -> Result<()> {
    let pages = pages(&tree.join(INSTALLED.trim_start_matches('/')))?;
    let paths: Vec<_> = pages
        .iter()
        .map(|page| Ok(page.strip_prefix(tree)?.display().to_string()))
        .collect::<Result<_>>()?;
    let broken = links::broken(tree, &paths);
    anyhow::ensure!(
        broken.is_empty(),
        "installed pages have broken links:\n{}",
        broken.join("\n")
    );
    println!(
        "  every link of the {} installed pages leads to an installed file",
        paths.len()
    );
    Ok(())
}

/// The Markdown files below a directory.
fn pages(directory: &Path) -> Result<Vec<std::path::PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).with_context(|| directory.display().to_string())? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(pages(&path)?);
        } else if path.extension().is_some_and(|ending| ending == "md") {
            found.push(path);
        }
    }
    Ok(found)
}

/// The place of an installed file of the repository, relative to the directory of the pages.
fn installed(source: &str) -> Option<String> {
    if LEFT_OUT.iter().any(|left_out| source.starts_with(left_out)) {
        return None;
    }
    PLACES.iter().find_map(|(from, to)| {
        let rest = source.strip_prefix(from)?;
        Some(format!("{to}{rest}"))
    })
}

/// The text of a page with links between installed files. A link to any other file is replaced by the file's path in
/// the source tree.
fn relinked(source: &str, text: &str) -> String {
    let from = installed(source).unwrap_or_default();
    let mut changed = text.to_owned();
    let links: Vec<_> = Parser::new_ext(text, Options::ENABLE_TABLES)
        .into_offset_iter()
        .filter_map(|(event, range)| match event {
            Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                Some((range, dest_url))
            }
            _ => None,
        })
        .filter(|(_, link)| !is_external(link) && !link.starts_with('#'))
        .collect();
    // The links are replaced from the end, so that the positions of the earlier ones stay valid.
    for (range, link) in links.into_iter().rev() {
        let (path, anchor) = match link.split_once('#') {
            Some((path, anchor)) => (path, format!("#{anchor}")),
            None => (&*link, String::new()),
        };
        let target = resolved(source, path);
        let written = &text[range.clone()];
        let new = match installed(&target) {
            Some(to) => written.replace(
                &format!("]({link})"),
                &format!("]({}{anchor})", relative(&from, &to)),
            ),
            None => written.trim_start_matches('[').replace(
                &format!("]({link})"),
                &format!(" ({target} in the source tree)"),
            ),
        };
        changed.replace_range(range, &new);
    }
    changed
}

/// The link from one file to another; both are seen from the same directory.
fn relative(from: &str, to: &str) -> String {
    let (mut from, mut to): (Vec<_>, Vec<_>) = (from.split('/').collect(), to.split('/').collect());
    while from.len() > 1 && to.len() > 1 && from[0] == to[0] {
        from.remove(0);
        to.remove(0);
    }
    "../".repeat(from.len() - 1) + &to.join("/")
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::create_dir_all(path.parent().unwrap_or(path))?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn links_of_installed_pages_and_pages_that_texts_name_are_installed() {
        // Git lists the pages.
        if testkit::Tool::Git.command().is_none() {
            return;
        }
        let directory = tempfile::tempdir().expect("a directory");
        let (staged, tree) = (directory.path().join("docs"), directory.path().join("tree"));
        stage(&staged).expect("pages");
        install(&staged, &tree);
        check_links(&tree).expect("links are good");
        let installed = |page: &str| tree.join(&INSTALLED[1..]).join(page);
        assert!(installed("guides/cut-over.md").exists());
        assert!(installed("SECURITY.md").exists());
        assert!(!installed("decisions").exists());
        let mut named = 0;
        let texts = crate::dist::tools::output(
            std::process::Command::new("grep")
                .args(["-rhoE", &format!("{INSTALLED}/[a-z/-]+\\.md")])
                .args(["crates/config/src", "crates/proscenium/src", "packaging"])
                .arg(&staged)
                .current_dir(workspace::root()),
        );
        for page in texts.expect("texts name pages").lines() {
            named += 1;
            assert!(tree.join(&page[1..]).exists(), "{page} is not installed");
        }
        assert!(named > 20, "pages are found: {named}");
    }

    /// Copies the files that the manifest lists, except the program.
    fn install(staged: &Path, tree: &Path) {
        let metadata = crate::dist::tools::output(workspace::cargo().args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version=1",
        ]));
        let metadata: Value = serde_json::from_str(&metadata.expect("cargo")).expect("JSON");
        let packages = metadata["packages"].as_array().expect("packages");
        let program = packages.iter().find(|one| one["name"] == "proscenium");
        let assets = program.expect("the program")["metadata"]["deb"]["assets"].as_array();
        for asset in assets.expect("assets") {
            let [source, to] = [0, 1].map(|n| asset[n].as_str().expect("a path"));
            let source = match source.strip_prefix("../../target/dist/docs/") {
                Some(page) => staged.join(page),
                None => workspace::root().join("crates/proscenium").join(source),
            };
            let pattern = source.file_name().expect("a file").to_str().expect("UTF-8");
            let Ok(files) = fs::read_dir(source.parent().expect("a directory")) else {
                continue;
            };
            for file in files.map(|file| file.expect("a file")) {
                let name = file.file_name().into_string().expect("UTF-8");
                let matches = match pattern.strip_prefix('*') {
                    Some(ending) => name.ends_with(ending),
                    None => name == pattern,
                };
                if matches {
                    let to = tree.join(if to.ends_with('/') {
                        format!("{to}{name}")
                    } else {
                        to.to_owned()
                    });
                    fs::create_dir_all(to.parent().expect("a directory")).expect("a directory");
                    fs::copy(file.path(), to).expect("a copy");
                }
            }
        }
    }

    #[test]
    fn links_are_rewritten_for_installed_pages() {
        let page = "[a](ca.md#x) [b](../listeners.md) [`c`](../../conf/mongrel.toml) [d](#here) [e](https://example.com)\n\
            | ![f](../images/f.png) | [g](../../packaging/proscenium.service) |\n[h](../decisions/x.md#y)";
        assert_eq!(
            relinked("docs/operating/a.md", page),
            "[a](ca.md#x) [b](../listeners.md) [`c`](../examples/mongrel.toml) [d](#here) [e](https://example.com)\n\
            | ![f](../images/f.png) | [g](../../../../lib/systemd/system/proscenium.service) |\nh (docs/decisions/x.md in the source tree)"
        );
        assert!(relinked("SECURITY.md", "[a](docs/threats.md)").contains("(threats.md)"));
    }
}
