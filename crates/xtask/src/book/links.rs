//! The links and anchors of Markdown files, and which links are broken. Nothing is requested from the network.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context, Result};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};

/// A Markdown file.
pub(crate) struct Page {
    /// The path of the page from the root of the repository.
    path: String,
    anchors: BTreeSet<String>,
    /// Each link with the number of its line.
    links: Vec<(usize, String)>,
}

impl Page {
    /// Reads the file with this path from the root.
    pub(crate) fn read(root: &Path, path: &str) -> Result<Self> {
        let text = fs::read_to_string(root.join(path));
        Ok(Self::parse(path, &text.with_context(|| path.to_owned())?))
    }

    fn parse(path: &str, text: &str) -> Self {
        let mut page = Self {
            path: path.to_owned(),
            anchors: BTreeSet::new(),
            links: Vec::new(),
        };
        let mut heading = None;
        let mut used = BTreeMap::new();
        for (event, range) in Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter() {
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::Text(words) | Event::Code(words) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&words);
                    }
                }
                Event::End(TagEnd::Heading(_)) => {
                    let anchor = anchor(&heading.take().unwrap_or_default());
                    page.anchors.insert(unique(&mut used, anchor));
                }
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
                    let line = text[..range.start].matches('\n').count() + 1;
                    page.links.push((line, dest_url.into_string()));
                }
                _ => {}
            }
        }
        page
    }

    /// The files and directories to which the page links, by their paths from the root.
    pub(crate) fn files(&self) -> impl Iterator<Item = String> {
        let local = self.links.iter().filter(|(_, link)| !is_external(link));
        local
            .map(|(_, link)| resolved(&self.path, parts(link).0))
            .filter(|file| *file != self.path)
    }
}

/// A line for each broken link of these files.
pub(crate) fn broken(root: &Path, paths: &[String]) -> Vec<String> {
    let pages: BTreeMap<_, _> = paths
        .iter()
        .filter_map(|path| Some((path.clone(), Page::read(root, path).ok()?)))
        .collect();
    let mut lines = Vec::new();
    for page in pages.values() {
        for (line, link) in &page.links {
            if let Some(problem) = problem(root, &pages, &page.path, link) {
                lines.push(format!("{}:{line}: {link}: {problem}", page.path));
            }
        }
    }
    lines
}

fn problem(
    root: &Path,
    pages: &BTreeMap<String, Page>,
    from: &str,
    link: &str,
) -> Option<&'static str> {
    if is_external(link) {
        let valid = link
            .parse::<http::Uri>()
            .is_ok_and(|uri| uri.scheme_str() == Some("https") && uri.host().is_some());
        return (!valid).then_some("not an https URL");
    }
    let (_, anchor) = parts(link);
    let file = resolved(from, parts(link).0);
    match (pages.get(&file), anchor) {
        _ if file.starts_with("..") => Some("outside the repository"),
        _ if !root.join(&file).exists() => Some("there is no such file"),
        (Some(page), Some(anchor)) if !page.anchors.contains(anchor) => {
            Some("the page has no such heading")
        }
        (None, Some(_)) => Some("only Markdown files have anchors"),
        _ => None,
    }
}

pub(crate) fn is_external(link: &str) -> bool {
    link.contains("://") || link.starts_with("mailto:")
}

/// The path and the anchor of a link.
fn parts(link: &str) -> (&str, Option<&str>) {
    link.split_once('#')
        .map_or((link, None), |(path, anchor)| (path, Some(anchor)))
}

/// A link's path from the root, without `.` and `..`; the page itself if the path is empty.
pub(crate) fn resolved(from: &str, path: &str) -> String {
    if path.is_empty() {
        return from.to_owned();
    }
    let mut parts: Vec<_> = from.split('/').collect();
    parts.pop();
    for part in path.split('/').filter(|part| !["", "."].contains(part)) {
        match parts.last() {
            Some(last) if part == ".." && *last != ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    parts.join("/")
}

/// The anchor of a heading, as git hosts and mdBook generate it.
fn anchor(heading: &str) -> String {
    heading
        .trim()
        .to_lowercase()
        .chars()
        .filter_map(|c| match c {
            _ if c.is_alphanumeric() || "_-".contains(c) => Some(c),
            _ if c.is_whitespace() => Some('-'),
            _ => None,
        })
        .collect()
}

/// Makes an anchor unique: the second heading with the same words gets `-1`, the third `-2`.
fn unique(used: &mut BTreeMap<String, usize>, anchor: String) -> String {
    let count = used.entry(anchor.clone()).or_default();
    *count += 1;
    match *count - 1 {
        0 => anchor,
        n => format!("{anchor}-{n}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_are_those_of_git_hosts_and_of_mdbook() {
        let text = "# A `[listeners.NAME]`: what? a_b (x)\n## `GET` and — x\n## X\n## X\n```\n# no heading\n```\n";
        let page = Page::parse("a.md", text);
        let anchors: Vec<_> = page.anchors.iter().map(String::as_str).collect();
        assert_eq!(
            anchors,
            ["a-listenersname-what-a_b-x", "get-and--x", "x", "x-1"]
        );
    }

    #[test]
    fn links_that_lead_nowhere_are_found() {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path();
        fs::create_dir(root.join("docs")).expect("a directory");
        let text = "# Top\n[1](../b.md) [2](../b.md#here) [3](#top) [4](../x.toml) [5](https://example.com/a#b) ![6](../x.toml)\n\
            `[x](none.md)`\n\n| [7](none.md) |\n| - |\n[8](../b.md#gone) [9](#gone) [10](../x.toml#a) [11](../../b.md) [12](http://example.com) [13](https://)\n";
        fs::write(root.join("docs/a.md"), text).expect("a file");
        fs::write(root.join("b.md"), "# Here\n").expect("a file");
        fs::write(root.join("x.toml"), "").expect("a file");
        let broken = broken(root, &["docs/a.md".to_owned(), "b.md".to_owned()]);
        assert_eq!(
            broken,
            [
                "docs/a.md:5: none.md: there is no such file",
                "docs/a.md:7: ../b.md#gone: the page has no such heading",
                "docs/a.md:7: #gone: the page has no such heading",
                "docs/a.md:7: ../x.toml#a: only Markdown files have anchors",
                "docs/a.md:7: ../../b.md: outside the repository",
                "docs/a.md:7: http://example.com: not an https URL",
                "docs/a.md:7: https://: not an https URL",
            ]
        );
    }
}
