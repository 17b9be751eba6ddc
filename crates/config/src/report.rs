//! The report of all problems of a configuration, each with its position, the expected value and the remedy.

use std::{fmt, ops::Range};

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use serde::Serialize;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// The text of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigSource {
    /// The path of the file, as shown to operators.
    pub name: String,
    /// Its contents.
    pub text: String,
}

/// All problems found in one reading of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConfigReport {
    /// The path of the file, as shown to operators.
    pub file: String,
    /// The problems in the order of the file. Problems without a position come last.
    pub problems: Vec<Problem>,
    /// The text of the file, for the lines that the report quotes.
    #[serde(skip)]
    text: String,
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Whether the problem prevents the use of the configuration.
    pub severity: ProblemSeverity,
    /// Key path, for example `pools.compilers.members[1].weight`; empty if the problem is not about a key.
    pub key: String,
    /// What is wrong.
    pub message: String,
    /// What a valid file has in this place.
    pub expected: Option<String>,
    /// How to fix it: a correction, or a command to run.
    pub help: Vec<String>,
    /// The position in the file; `None` if the file does not mention the key.
    pub place: Option<TextPosition>,
}

/// How severe a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ProblemSeverity {
    /// The configuration is refused.
    Error,
    /// The configuration is used, but the operator should know about the problem.
    Warning,
}

/// A position in the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TextPosition {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// Bytes of the text that the caret covers.
    #[serde(skip)]
    pub span: Range<usize>,
}

/// Whether a report is rendered with terminal colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Colour {
    /// Plain text. The default.
    #[default]
    Never,
    /// ANSI escapes.
    Always,
}

impl ConfigReport {
    pub(crate) fn new(source: &ConfigSource, mut problems: Vec<Problem>) -> Self {
        sort(&mut problems);
        problems.dedup();
        Self {
            file: source.name.clone(),
            problems,
            text: source.text.clone(),
        }
    }

    /// The report of a configuration file that cannot be read.
    #[must_use]
    pub fn unreadable(file: &str, error: &std::io::Error) -> Self {
        let source = ConfigSource {
            name: file.to_owned(),
            text: String::new(),
        };
        let mut report = Self::new(&source, Vec::new());
        let help = match error.kind() {
            std::io::ErrorKind::NotFound => {
                "name another file with --config, or write this one with `proscenium init` (/usr/share/doc/proscenium/operating/install.md)"
            }
            std::io::ErrorKind::PermissionDenied => "run as an account that may read it",
            _ => "name another file with --config",
        };
        report.fail(
            "",
            &format!("cannot read {file}: {error}"),
            &[help.to_owned()],
        );
        report
    }

    /// Adds an error that was found while applying the configuration, for example an address that cannot be bound, or a
    /// CA bundle that makes no trust store. The error gets the position of its key, or of the table above it.
    pub fn fail(&mut self, key: &str, message: &dyn fmt::Display, help: &[String]) {
        self.add(Problem {
            help: help.to_vec(),
            ..Problem::error(key, message.to_string())
        });
    }

    /// Adds a warning that was found while applying the configuration.
    pub fn warn(&mut self, key: &str, message: &dyn fmt::Display) {
        self.add(Problem::warning(key, message.to_string()));
    }

    fn add(&mut self, mut problem: Problem) {
        problem.place =
            lookup(&self.text, &problem.key).map(|span| TextPosition::new(&self.text, span));
        self.problems.push(problem);
        sort(&mut self.problems);
    }

    /// Whether a problem prevents the use of the configuration.
    #[must_use]
    pub fn has_errors(&self) -> bool {
        self.count(ProblemSeverity::Error) > 0
    }

    /// How many problems of a severity there are.
    #[must_use]
    pub fn count(&self, severity: ProblemSeverity) -> usize {
        self.problems
            .iter()
            .filter(|problem| problem.severity == severity)
            .count()
    }

    /// The report for operators: each problem with the lines that it is about, then a count.
    #[must_use]
    pub fn render(&self, colour: Colour) -> String {
        let renderer = match colour {
            Colour::Never => Renderer::plain(),
            Colour::Always => Renderer::styled(),
        };
        let mut text = String::new();
        for problem in &self.problems {
            text.push_str(&renderer.render(&[self.group(problem)]));
            text.push_str("\n\n");
        }
        text.push_str(&self.summary());
        text.push('\n');
        text
    }

    /// One line: the file and how many problems it has.
    #[must_use]
    pub fn summary(&self) -> String {
        let errors = counted(self.count(ProblemSeverity::Error), "error");
        let warnings = counted(self.count(ProblemSeverity::Warning), "warning");
        format!("{}: {errors}, {warnings}", self.file)
    }

    fn group<'a>(&'a self, problem: &'a Problem) -> Group<'a> {
        let level = match problem.severity {
            ProblemSeverity::Error => Level::ERROR,
            ProblemSeverity::Warning => Level::WARNING,
        };
        let group = Group::with_title(level.primary_title(problem.title()));
        let group = match &problem.place {
            Some(place) => group.element(
                Snippet::source(&self.text).path(&self.file).annotation(
                    AnnotationKind::Primary.span(place.span.clone()).label(
                        problem
                            .expected
                            .as_deref()
                            .map(|expected| format!("expected {expected}")),
                    ),
                ),
            ),
            None => group.element(Origin::path(&self.file)),
        };
        let unplaced = problem.expected.iter().filter(|_| problem.place.is_none());
        let group = group
            .elements(unplaced.map(|expected| Level::NOTE.message(format!("expected {expected}"))));
        group.elements(problem.help.iter().map(|help| Level::HELP.message(help)))
    }
}

/// The report for operators, without colours.
impl fmt::Display for ConfigReport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.render(Colour::Never))
    }
}

impl std::error::Error for ConfigReport {}

impl Problem {
    pub(crate) fn error(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            severity: ProblemSeverity::Error,
            key: key.into(),
            message: message.into(),
            expected: None,
            help: Vec::new(),
            place: None,
        }
    }

    pub(crate) fn warning(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            severity: ProblemSeverity::Warning,
            ..Self::error(key, message)
        }
    }

    pub(crate) fn expected(mut self, expected: impl Into<String>) -> Self {
        self.expected = Some(expected.into());
        self
    }

    pub(crate) fn help(mut self, help: impl Into<String>) -> Self {
        self.help.push(help.into());
        self
    }

    pub(crate) fn at(mut self, text: &str, span: Range<usize>) -> Self {
        self.place = Some(TextPosition::new(text, span));
        self
    }

    fn title(&self) -> String {
        match self.key.as_str() {
            "" => self.message.clone(),
            key => format!("{key}: {}", self.message),
        }
    }
}

impl TextPosition {
    fn new(text: &str, span: Range<usize>) -> Self {
        let start = floor_boundary(text, span.start);
        let end = floor_boundary(text, span.end).max(start);
        let before = &text[..start];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            span: start..end,
        }
    }
}

/// Sorts by position in the file. Problems without a position come last.
fn sort(problems: &mut [Problem]) {
    problems.sort_by_key(|problem| match &problem.place {
        Some(place) => (0, place.span.start),
        None => (1, 0),
    });
}

/// The position of the value of a key path, or of the longest part of the path that is in the file.
fn lookup(text: &str, key_path: &str) -> Option<Range<usize>> {
    let (table, _faults) = DeTable::parse_recoverable(text);
    let steps = key_path
        .split(['.', '[', ']'])
        .filter(|step| !step.is_empty());
    let mut found: Option<&Spanned<DeValue<'_>>> = None;
    for step in steps {
        let below = match found {
            None => table.get_ref().get(step),
            Some(value) => match value.get_ref() {
                DeValue::Array(array) => {
                    step.parse().ok().and_then(|index: usize| array.get(index))
                }
                value => value.get(step),
            },
        };
        match below {
            Some(value) => found = Some(value),
            None => break,
        }
    }
    found.map(Spanned::span)
}

/// The nearest character boundary at or before an index. A span inside a character would make the rendering panic.
fn floor_boundary(text: &str, index: usize) -> usize {
    let index = index.min(text.len());
    (0..=index)
        .rev()
        .find(|&at| text.is_char_boundary(at))
        .unwrap_or(0)
}

fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        count => format!("{count} {what}s"),
    }
}
