//! The commands of the program that pages show: the program must accept each of them. For tests only.

use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag, TagEnd};

/// Lines of code blocks, and code within sentences, that run the program. TOML blocks are left out.
fn lines(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut in_block = false;
    for event in Parser::new(text) {
        match event {
            Event::Start(Tag::CodeBlock(kind)) => {
                in_block = !matches!(kind, CodeBlockKind::Fenced(words) if &*words == "toml");
            }
            Event::End(TagEnd::CodeBlock) => in_block = false,
            Event::Text(block) if in_block => {
                let commands = block.lines().map(|line| line.trim_start_matches("$ "));
                lines.extend(commands.filter(|line| is_command(line)).map(str::to_owned));
            }
            Event::Code(code) if is_command(&code) => lines.push(code.into_string()),
            _ => {}
        }
    }
    lines
}

/// Output may also begin with the name of the program, but then no verb follows.
fn is_command(line: &str) -> bool {
    line.strip_prefix("proscenium ")
        .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_lowercase() || c == '-'))
}

/// The words of a shell command, up to a comment, a pipe or a redirection.
fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for c in line.chars() {
        match (c, quote) {
            (_, Some(open)) if c == open => quote = None,
            ('"' | '\'', None) => quote = Some(c),
            ('#' | '|' | '>' | ';', None) => break,
            (' ', None) => words.push(String::new()),
            _ => words.last_mut().expect("one word at least").push(c),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::error::ErrorKind;

    use super::*;
    use crate::{book::markdown_files, workspace};

    #[test]
    fn the_program_accepts_every_command_of_the_pages() {
        // The pages are listed with git.
        if testkit::Tool::Git.command().is_none() {
            return;
        }
        let root = workspace::root();
        let (mut count, mut refused) = (0, Vec::new());
        for path in markdown_files(root).expect("pages") {
            let page = fs::read_to_string(root.join(&path)).expect("a page");
            for line in lines(&page) {
                count += 1;
                // This placeholder must be a valid address.
                let with_address = line.replace("ADDRESS", "192.0.2.1");
                let parsed = proscenium::command().try_get_matches_from(words(&with_address));
                // A sentence may name a verb without its arguments.
                let wrong = parsed
                    .err()
                    .filter(|e| e.kind() != ErrorKind::MissingRequiredArgument);
                refused.extend(wrong.map(|error| format!("{path}: {line}\n{error}")));
            }
        }
        assert!(count > 200, "commands are found: {count}");
        assert!(refused.is_empty(), "{}", refused.join("\n"));
    }

    #[test]
    fn words_end_at_comments_and_pipes() {
        assert_eq!(
            words("proscenium block web01 --why \"a b # c\"  # comment"),
            ["proscenium", "block", "web01", "--why", "a b # c"]
        );
        assert_eq!(
            words("proscenium status | grep x"),
            ["proscenium", "status"]
        );
    }
}
