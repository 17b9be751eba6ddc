//! Files and words of the code that pages name: they must exist.

use super::{files_below, read, root};

#[test]
fn every_file_that_the_architecture_names_is_there() {
    let page = read(&root().join("ARCHITECTURE.md"));
    let sources = files_below(&root().join("crates"), "rs");
    let mut named = 0;
    for word in quoted(&page).filter(|word| word.ends_with(".rs") && !word.starts_with("tests/")) {
        named += 1;
        assert!(
            sources.iter().any(|path| path.ends_with(word)),
            "ARCHITECTURE.md names {word}, and no file of crates/ ends so"
        );
    }
    assert!(named > 100, "the page names files: {named}");
}

#[test]
fn the_worked_examples_of_the_contributing_page_are_true() {
    let page = read(&root().join("CONTRIBUTING.md"));
    let (_, examples) = page.split_once("## Worked examples").expect("a section");
    let mut files = Vec::new();
    for example in examples.split("\n### ").skip(1) {
        let (title, text) = example.split_once('\n').expect("a title");
        let steps: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with("- `"))
            .collect();
        for step in &steps {
            let mut words = quoted(step);
            let file = words.next().expect("a file");
            let found = words.next().expect("words to search for");
            let path = root().join(file);
            assert!(path.is_file(), "{title}: no file {file}");
            assert!(read(&path).contains(found), "{title}: {file} lacks {found}");
        }
        let in_crates = steps.iter().filter(|step| step.starts_with("- `crates/"));
        files.push((
            title.split_once(':').map_or(title, |(kind, _)| kind),
            in_crates.count(),
        ));
    }
    // The maximum number of files that a change of each kind may concern, without its test and its pages.
    for (kind, files_max) in [("A counter", 3), ("A gauge", 4), ("An admin endpoint", 4)] {
        let count = files
            .iter()
            .find(|(of, _)| *of == kind)
            .map(|(_, count)| *count);
        assert!(
            count.is_some_and(|count| (1..=files_max).contains(&count)),
            "{kind}: {count:?} files of {files_max}"
        );
    }
    assert_eq!(files.len(), 5, "examples: {files:?}");
}

/// The words of a page between backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}
