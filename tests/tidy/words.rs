//! Words that the project does not use, and type names that would be used twice.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    process::Command,
    sync::LazyLock,
};

use regex::Regex;
use testkit::Tool;

use super::{is_test, read, root, sources};

/// Each of these words has a plain substitute and no second meaning here: "told" is shown, logged or notified; "nobody"
/// is no client; "judge" is verify, check or decide; "in force" is active. Identifiers are checked word by word.
const ODD_WORDS: &str = "told|nobody|somebody|anybody|whoever|anew|besides|mended|mends|mend|judg(?:ements|ement|ment|ing|ed|es|e)|in[ _]force|go(?:es)?[ _]before|of[ _]no[ _]use|is[ _]of[ _]use|lets?[ _]in\\b|tak(?:es?|en)[ _]up|past[ _]its[ _]time|but[ _]on|meets[ _]no|at[ _]the[ _](?:least|most)|as[ _]good[ _]as|hand(?:s|ed|ing)?[ _]out";

/// A sentence that begins with "what it" or "what they" names neither its subject nor the actor.
const WHAT_IT: &str = r"\bWhat (?:it|they)\b";

/// "X is no Y" is "X is not a Y", except after "there".
const IS_NO: &str = r"(?:^|[^A-Za-z])([Tt]here[ _])?is[ _]no[ _]([A-Za-z]+)";

#[test]
fn pages_comments_messages_and_names_use_plain_words() {
    let mut wrong = Vec::new();
    let Some(git) = Tool::Git.command() else {
        return;
    };
    for path in written_files(git) {
        let text = read(&root().join(&path));
        // The table of refused words names them.
        let is_table = |line: &str| path == "CONTRIBUTING.md" && line.starts_with("| ");
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !is_table(line)) {
            for word in odd_words(line) {
                wrong.push(format!("    {path}:{}: \"{word}\"", number + 1));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} odd words (use the standard term; CONTRIBUTING.md has a list):\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn odd_words_are_found_in_prose_and_in_names() {
    for (line, expected) in [
        ("it is told to the client", "told"),
        ("fn a_refusal_is_told()", "told"),
        ("struct JudgedRequest", "Judged"),
        ("Nobody reads it", "Nobody"),
        ("a CRL that is in force", "in force"),
        ("what is no CRL is refused", "is no CRL"),
        ("two of them at the least", "at the least"),
        ("What they list is revoked.", "What they"),
        ("fn what_is_no_crl_is_refused()", "is_no_crl"),
    ] {
        assert_eq!(odd_words(line), [expected], "{line}");
    }
    for line in [
        "there is no CRL",
        "fn there_is_no_way_to_start_open()",
        "it is no longer active",
        "the threshold is untold-of",
        "fold, cannot, buttons",
        "it shows what they list",
    ] {
        assert_eq!(odd_words(line), Vec::<String>::new(), "{line}");
    }
}

fn odd_words(line: &str) -> Vec<String> {
    // A word in CamelCase ends where the next begins; an underscore separates words.
    static ODD: LazyLock<Regex> = LazyLock::new(|| pattern(&format!("(?i)(?:{ODD_WORDS})")));
    static IS_NO_SUCH: LazyLock<Regex> = LazyLock::new(|| pattern(IS_NO));
    static WHAT: LazyLock<Regex> = LazyLock::new(|| pattern(WHAT_IT));
    let bytes = line.as_bytes();
    let is_word = |start: usize, end: usize| {
        let before = start.checked_sub(1).map(|at| bytes[at]);
        let starts = before.is_none_or(|byte| {
            !byte.is_ascii_alphabetic()
                || byte.is_ascii_lowercase() && bytes[start].is_ascii_uppercase()
        });
        let ends = bytes.get(end).is_none_or(|byte| !byte.is_ascii_lowercase());
        starts && ends
    };
    let words = ODD
        .find_iter(line)
        .filter(|found| is_word(found.start(), found.end()));
    let mut words: Vec<_> = words.map(|found| found.as_str().to_owned()).collect();
    let riddles = IS_NO_SUCH.captures_iter(line).filter(|found| {
        let follows = &found[2];
        found.get(1).is_none() && !["longer", "more", "less", "other"].contains(&follows)
    });
    words.extend(WHAT.find_iter(line).map(|found| found.as_str().to_owned()));
    words.extend(riddles.map(|found| found[0].trim_start_matches(['_', ' ', '`', '(']).to_owned()));
    words
}

fn pattern(text: &str) -> Regex {
    Regex::new(text).expect("a pattern")
}

/// Names that say nothing about what a type holds, or were used for half a dozen different things.
const VAGUE_TYPES: &[&str] = &[
    "Told", "Asked", "Kept", "Spoken", "Standing", "Place", "Ending", "Finding", "Watch",
];

#[test]
fn the_name_of_a_public_type_is_unique_in_the_workspace() {
    let declared =
        pattern(r"(?m)^[ \t]*(pub(?:\([a-z: ]+\))? )?(?:struct|enum|union|trait|type) ([A-Z]\w*)");
    let mut files: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut vague = Vec::new();
    for (path, text) in sources() {
        for found in declared.captures_iter(&text) {
            let (name, file) = (found[2].to_owned(), path.display().to_string());
            if VAGUE_TYPES.contains(&name.as_str()) {
                vague.push(format!("{name} in {file}"));
            }
            let is_public = found
                .get(1)
                .is_some_and(|visible| visible.as_str() == "pub ");
            if is_public && path.starts_with("crates") && !is_bench(&path) {
                files.entry(name).or_default().insert(file);
            }
        }
    }
    assert!(files.len() > 300, "types are found: {}", files.len());
    let twice: Vec<_> = files.iter().filter(|(_, files)| files.len() > 1).collect();
    assert!(twice.is_empty(), "public types with one name: {twice:#?}");
    assert!(vague.is_empty(), "type names that say nothing: {vague:#?}");
}

fn is_bench(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str() == "benches")
}

/// A test file tests one promise. A file with more lines than this tests several.
const TEST_LINES_MAX: usize = 800;

#[test]
fn no_test_file_is_longer_than_800_lines() {
    let long: Vec<_> = sources()
        .into_iter()
        .filter(|(path, _)| is_test(path))
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(_, lines)| *lines > TEST_LINES_MAX)
        .collect();
    assert!(long.is_empty(), "split these by promise: {long:?}");
}

/// Files of the repository that people wrote, as paths from the root. The files of these rules are left out, because
/// they name the odd words.
fn written_files(mut git: Command) -> Vec<String> {
    let listed = git.args(["ls-files", "-z"]).current_dir(root()).output();
    let listed = listed.expect("git lists the files of the repository");
    assert!(listed.status.success(), "git ls-files: {listed:?}");
    let listed = String::from_utf8(listed.stdout).expect("paths are UTF-8");
    let written: Vec<_> = listed
        .split('\0')
        .filter(|path| is_written(path) && root().join(path).is_file())
        .map(str::to_owned)
        .collect();
    assert!(written.len() > 500, "files are found: {}", written.len());
    written
}

fn is_written(path: &str) -> bool {
    let is_data = path.contains("/corpus/")
        || path.starts_with("ssl-fixtures/")
        || path.starts_with("tests/tidy")
        || ["Cargo.lock", "LICENSE"].contains(&path);
    let extension = Path::new(path).extension().unwrap_or_default();
    let extension = extension.to_string_lossy();
    // Scripts such as tests/lab/lab have no extension.
    let is_text = [
        "", "rs", "md", "toml", "bash", "sh", "rb", "service", "conf", "5", "8", "fish",
    ]
    .contains(&extension.as_ref());
    is_text && !is_data
}
