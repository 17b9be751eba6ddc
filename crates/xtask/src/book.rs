//! `cargo xtask book`: checks every link of the Markdown files, and builds docs/ as a book with mdBook.

#[cfg(test)]
mod commands;
pub(crate) mod links;

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use anyhow::{Context, Result, bail, ensure};

use self::links::Page;
use crate::{pinned_programs, workspace};

/// The version of mdBook that is installed.
const MDBOOK: &str = "0.5.4";
/// The table of contents.
const SUMMARY: &str = "docs/SUMMARY.md";

/// The options of `cargo xtask book`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only check the links
    #[arg(long)]
    links: bool,
}

/// Fails if a link is broken, or if a page of docs/ is not in the book.
pub(crate) fn run(options: &Options) -> Result<()> {
    let root = workspace::root();
    let broken = links::broken(root, &markdown_files(root)?);
    ensure!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
    let files = files_of_the_book(root)?;
    if options.links {
        return Ok(());
    }
    let source = workspace::target().join("book-source");
    stage(root, &files, &source)?;
    let book = workspace::target().join("book");
    // mdBook runs for a second, so building it without optimization saves more time than it costs.
    workspace::run(
        Command::new(pinned_programs::cargo(
            "mdbook",
            MDBOOK,
            &["--debug", "--no-default-features"],
        )?)
        .arg("build")
        .arg("--dest-dir")
        .arg(fs::canonicalize(workspace::target())?.join("book"))
        .arg(&source),
    )?;
    println!("{}", book.join("index.html").display());
    Ok(())
}

/// The Markdown files under version control, by their paths from the root.
pub(crate) fn markdown_files(root: &Path) -> Result<Vec<String>> {
    let listed = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
            "*.md",
        ])
        .current_dir(root)
        .output()
        .context("git does not start")?;
    ensure!(listed.status.success(), "git ls-files: {listed:?}");
    let listed = String::from_utf8(listed.stdout).context("a path is not UTF-8")?;
    let paths = listed.split('\0').filter(|path| root.join(path).is_file());
    Ok(paths.map(str::to_owned).collect())
}

/// The chapters, and the files to which they link, as paths from the root.
fn files_of_the_book(root: &Path) -> Result<BTreeSet<String>> {
    let chapters: BTreeSet<_> = Page::read(root, SUMMARY)?.files().collect();
    for page in markdown_files(root)? {
        let is_of_the_book = page.starts_with("docs/") && page != SUMMARY;
        ensure!(
            !is_of_the_book || chapters.contains(&page),
            "{SUMMARY} does not list {page}"
        );
    }
    let mut files = chapters.clone();
    for chapter in &chapters {
        for file in Page::read(root, chapter)?.files() {
            if !root.join(&file).is_file() {
                bail!(
                    "{chapter} links to the directory {file}, which a book cannot show: link to a file in it"
                );
            }
            ensure!(
                !file.ends_with(".md") || chapters.contains(&file),
                "{chapter} links to {file}, which {SUMMARY} does not list"
            );
            files.insert(file);
        }
    }
    Ok(files)
}

/// Copies the files to a directory in which all of them are below the table of contents, as mdBook requires.
fn stage(root: &Path, files: &BTreeSet<String>, source: &Path) -> Result<()> {
    if source.exists() {
        fs::remove_dir_all(source)?;
    }
    for file in files {
        copy(&root.join(file), &source.join("src").join(file))?;
    }
    copy(&root.join("docs/book.toml"), &source.join("book.toml"))?;
    let summary = fs::read_to_string(root.join(SUMMARY))?;
    fs::write(source.join("src/SUMMARY.md"), from_the_root(&summary))?;
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    Ok(())
}

/// The table of contents with paths from the root of the repository.
fn from_the_root(summary: &str) -> String {
    let mut text = String::new();
    for part in summary.split_inclusive("](") {
        match part.split_once(')') {
            Some((target, rest)) if !text.is_empty() => {
                text.push_str(&links::resolved(SUMMARY, target));
                text.push(')');
                text.push_str(rest);
            }
            _ => text.push_str(part),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_leads_somewhere_and_every_page_is_in_the_book() {
        // The pages are listed with git.
        if testkit::Tool::Git.command().is_some() {
            run(&Options { links: true }).expect("links are good");
        }
    }

    #[test]
    fn the_table_of_contents_has_paths_from_the_root() {
        let summary =
            "# Summary\n\n[Proscenium](../README.md)\n\n- [A (b)](a.md)\n    - [C](d/c.md)\n";
        assert_eq!(
            from_the_root(summary),
            "# Summary\n\n[Proscenium](README.md)\n\n- [A (b)](docs/a.md)\n    - [C](docs/d/c.md)\n"
        );
    }
}
