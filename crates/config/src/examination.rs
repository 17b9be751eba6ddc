//! Checks a parsed file against the schema and reports every unknown key, wrong type and value out of range.

use std::ops::Range;

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{
    closest::closest,
    forms::{self, Fault, Form},
    quantity,
    report::Problem,
    schema::{Absent, Key, Shape, Table, join},
    values::integer,
};

/// The readable part of a file, and every syntax error.
pub(crate) struct Parsed<'t> {
    pub(crate) table: Spanned<DeTable<'t>>,
    pub(crate) faults: Vec<Problem>,
    /// Whether an unclosed list has swallowed the rest of the file.
    list_is_open: bool,
}

pub(crate) fn parse(text: &str) -> Parsed<'_> {
    let (table, errors) = DeTable::parse_recoverable(text);
    let list_is_open = errors
        .iter()
        .any(|error| error.message().starts_with("unclosed array"));
    let mut faults: Vec<_> = errors
        .iter()
        .map(|error| syntax_error(text, error))
        .collect();
    faults.sort_by_key(|problem| problem.place.as_ref().map(|place| place.span.start));
    // After the first syntax error in a line, further errors in that line are usually misleading.
    faults.dedup_by_key(|problem| problem.place.as_ref().map(|place| place.line));
    let swallowed = faults
        .iter()
        .position(is_about_a_list)
        .filter(|_| list_is_open);
    if let Some(first) = swallowed {
        faults.truncate(first + 1);
        let help = "the `]` of a list is missing above; the rest of the file is ignored";
        faults
            .last_mut()
            .into_iter()
            .for_each(|fault| fault.help.push(help.into()));
    }
    Parsed {
        table,
        faults,
        list_is_open,
    }
}

fn is_about_a_list(fault: &Problem) -> bool {
    fault.message.contains("array")
}

fn syntax_error(text: &str, error: &toml::de::Error) -> Problem {
    let span = error.span().unwrap_or(text.len()..text.len());
    let rest_of_line = text
        .get(span.start..)
        .and_then(|rest| rest.lines().next())
        .unwrap_or_default();
    let (message, expected) = match error.message().split_once(", expected ") {
        // The parser reports a missing value as a string without quotes.
        Some(("string values must be quoted", _)) if rest_of_line.trim().is_empty() => {
            ("no value", None)
        }
        Some(("string values must be quoted", _)) => (
            "a string without quotes",
            Some("a value: a string needs quotes"),
        ),
        // A name, an address or a duration without quotes.
        Some((message, _)) if message.starts_with("invalid") => {
            (message, Some("a value: a string needs quotes"))
        }
        Some((message, expected)) => (message, Some(expected)),
        None => (error.message(), None),
    };
    let mut problem = Problem::error("", message);
    problem.expected = expected.map(ToOwned::to_owned);
    problem.at(text, span)
}

/// Checks a parsed file against the schema.
pub(crate) struct Examination<'t> {
    text: &'t str,
    /// Whether the file has syntax errors. If so, missing keys are not reported.
    has_syntax_errors: bool,
    problems: Vec<Problem>,
}

impl<'t> Examination<'t> {
    pub(crate) fn run(text: &'t str, parsed: &Parsed<'_>, schema: &Table) -> Vec<Problem> {
        let mut examination = Self {
            text,
            has_syntax_errors: !parsed.faults.is_empty(),
            problems: Vec::new(),
        };
        examination.table(parsed.table.get_ref(), schema, "", None);
        let unreliable_lines = unreliable_lines(text, parsed);
        examination.problems.retain(|problem| {
            let line = problem.place.as_ref().map(|place| place.line);
            !line.is_some_and(|line| unreliable_lines.iter().any(|lines| lines.contains(&line)))
        });
        examination.problems
    }

    fn table(
        &mut self,
        table: &DeTable<'_>,
        schema: &Table,
        path: &str,
        span: Option<&Range<usize>>,
    ) {
        for (name, value) in table {
            let key_path = join(path, name.get_ref());
            match schema.key(name.get_ref()) {
                Some(key) => self.value(value, &key.shape, &key_path),
                None => self.unknown(name, schema, &key_path),
            }
        }
        let missing =
            |key: &&Key| matches!(key.absent, Absent::Required) && !table.contains_key(key.name);
        for key in schema.keys.iter().copied().filter(missing) {
            self.missing(key, path, span);
        }
    }

    fn unknown(
        &mut self,
        name: &Spanned<std::borrow::Cow<'_, str>>,
        schema: &Table,
        key_path: &str,
    ) {
        let known = schema.keys.iter().map(|key| key.name);
        let problem = Problem::error(key_path, "unknown key").at(self.text, name.span());
        self.problems.push(match closest(name.get_ref(), known) {
            Some(close) => problem.help(format!("did you mean `{close}`?")),
            None => problem.help(format!("known keys: {}", list_of_keys(schema))),
        });
    }

    fn missing(&mut self, key: &Key, path: &str, span: Option<&Range<usize>>) {
        if self.has_syntax_errors {
            return;
        }
        let problem = Problem::error(join(path, key.name), "missing").expected(format!(
            "`{}`: {}",
            key.name,
            key.shape.expected()
        ));
        self.problems.push(match span {
            Some(span) => problem.at(self.text, span.clone()),
            None => problem,
        });
    }

    fn value(&mut self, value: &Spanned<DeValue<'_>>, shape: &Shape, path: &str) {
        match (shape, value.get_ref()) {
            (Shape::Texts(form) | Shape::TextOrTexts(form), DeValue::Array(array)) => {
                for (index, element) in array.iter().enumerate() {
                    self.value(element, &Shape::Text(form), &format!("{path}[{index}]"));
                }
            }
            (Shape::Words(words), DeValue::Array(array)) => {
                for (index, element) in array.iter().enumerate() {
                    self.value(element, &Shape::Word(words), &format!("{path}[{index}]"));
                }
            }
            (Shape::Table(schema) | Shape::TableOrTables(schema), DeValue::Table(table)) => {
                self.table(table, schema, path, Some(&value.span()))
            }
            (Shape::OneOf(schema), DeValue::Table(table)) => {
                self.table(table, schema, path, Some(&value.span()));
                self.exactly_one(table, value, shape, path);
            }
            (Shape::Named(schema), DeValue::Table(tables)) => {
                for (name, value) in tables {
                    let path = join(path, name.get_ref());
                    self.form(name.get_ref(), &forms::NAME, &path, name.span());
                    self.value_of_table(value, schema, &path);
                }
            }
            (Shape::Tables(schema) | Shape::TableOrTables(schema), DeValue::Array(array)) => {
                for (index, element) in array.iter().enumerate() {
                    self.value_of_table(element, schema, &format!("{path}[{index}]"));
                }
            }
            (Shape::TextsOrTables(form, schema), DeValue::Array(array)) => {
                for (index, element) in array.iter().enumerate() {
                    let path = format!("{path}[{index}]");
                    match element.get_ref() {
                        DeValue::Table(_) => self.value_of_table(element, schema, &path),
                        _ => self.value(element, &Shape::Text(form), &path),
                    }
                }
            }
            (Shape::Pairs(name_form, text_form), DeValue::Table(table)) => {
                for (name, value) in table {
                    let path = join(path, name.get_ref());
                    self.value(value, &Shape::Text(text_form), &path);
                    self.form(name.get_ref(), name_form, &path, name.span());
                }
            }
            (Shape::Text(form) | Shape::TextOrTexts(form), DeValue::String(text)) => {
                self.form(text, form, path, value.span());
            }
            (shape, found) => {
                if let Some(problem) = check_scalar(found, shape, path) {
                    self.problems.push(problem.at(self.text, value.span()));
                }
            }
        }
    }

    fn value_of_table(&mut self, value: &Spanned<DeValue<'_>>, schema: &Table, path: &str) {
        match value.get_ref() {
            DeValue::Table(table) => self.table(table, schema, path, Some(&value.span())),
            found => {
                let problem =
                    Problem::error(path, format!("{} in place of a table", with_article(found)));
                let known = format!("a table with {}", list_of_keys(schema));
                self.problems
                    .push(problem.expected(known).at(self.text, value.span()));
            }
        }
    }

    fn exactly_one(
        &mut self,
        table: &DeTable<'_>,
        value: &Spanned<DeValue<'_>>,
        shape: &Shape,
        path: &str,
    ) {
        let message = match table.len() {
            1 => return,
            0 => "an empty table",
            _ => "more than one key",
        };
        let problem = Problem::error(path, message).expected(shape.expected());
        self.problems.push(problem.at(self.text, value.span()));
    }

    fn form(&mut self, text: &str, form: &Form, path: &str, span: Range<usize>) {
        if let Err(Fault { message, help }) = (form.check)(text) {
            let mut problem = Problem::error(path, message)
                .expected(form.what)
                .at(self.text, span);
            problem.help.extend(help);
            self.problems.push(problem);
        }
    }
}

/// Whether a value is valid for its shape. A list or table only needs the right type: invalid elements are left out. A
/// string in place of a list is already reported as an error. It is read as a list of one, so that the setting is not
/// also reported as missing.
pub(crate) fn fits(value: &DeValue<'_>, shape: &Shape) -> bool {
    match (shape, value) {
        (Shape::Text(form) | Shape::TextOrTexts(form), DeValue::String(text)) => {
            (form.check)(text).is_ok()
        }
        (Shape::Texts(_) | Shape::TextOrTexts(_) | Shape::Words(_), DeValue::Array(_))
        | (Shape::Texts(_), DeValue::String(_))
        | (Shape::Pairs(..), DeValue::Table(_)) => true,
        (shape, value) => check_scalar(value, shape, "").is_none(),
    }
}

/// Checks a value that is neither a list nor a table.
fn check_scalar(value: &DeValue<'_>, shape: &Shape, path: &str) -> Option<Problem> {
    let wrong = |message: String| Some(Problem::error(path, message).expected(shape.expected()));
    let wrong_type = || wrong(format!("{} is the wrong type", with_article(value)));
    match (shape, value) {
        (Shape::Switch, DeValue::Boolean(_)) => None,
        (Shape::Switch, DeValue::String(text)) if text == "true" || text == "false" => {
            let problem = wrong(format!("\"{text}\" is a string"));
            problem.map(|problem| problem.help(format!("write {text} without quotes")))
        }
        (Shape::Count { min, max }, DeValue::Integer(number)) => match integer(value) {
            Some(count) if (*min..=*max).contains(&count) => None,
            _ => wrong(format!("{number} is out of range")),
        },
        (Shape::Duration { min, max }, DeValue::String(text)) => match quantity::duration(text) {
            Some(duration) if (*min..=*max).contains(&duration) => None,
            Some(duration) if duration < *min => wrong(format!("\"{text}\" is too short")),
            Some(_) => wrong(format!("\"{text}\" is too long")),
            None => wrong(format!("\"{text}\" is not a duration"))
                .map(|problem| problem.help("write an integer and a unit: ms, s, m, h or d")),
        },
        (Shape::Duration { .. }, DeValue::Integer(number)) => {
            wrong("a number without a unit".into())
                .map(|problem| problem.help(format!("for seconds write \"{number}s\"")))
        }
        (Shape::Size { min, max }, DeValue::String(text)) => match quantity::size(text) {
            Some(size) if (*min..=*max).contains(&size) => None,
            Some(size) if size < *min => wrong(format!("\"{text}\" is too small")),
            Some(_) => wrong(format!("\"{text}\" is too large")),
            None => wrong(format!("\"{text}\" is not a size"))
                .map(|problem| problem.help("write an integer and a unit: B, KiB, MiB or GiB")),
        },
        (Shape::Size { .. }, DeValue::Integer(number)) => wrong("a number without a unit".into())
            .map(|problem| problem.help(format!("for bytes write \"{number}B\""))),
        (Shape::Percent { min, max }, DeValue::String(text)) => match quantity::percent(text) {
            Some(percent) if (*min..=*max).contains(&percent) => None,
            Some(percent) if percent < *min => wrong(format!("\"{text}\" is too small")),
            Some(_) => wrong(format!("\"{text}\" is too large")),
            None => wrong(format!("\"{text}\" is not a share"))
                .map(|problem| problem.help("write an integer and %, as \"25%\"")),
        },
        (Shape::Percent { .. }, DeValue::Integer(number)) => {
            wrong("a number without a unit".into())
                .map(|problem| problem.help(format!("for percent write \"{number}%\"")))
        }
        (Shape::Word(words), DeValue::String(text)) => {
            if words.contains(&text.as_ref()) {
                None
            } else {
                let problem = wrong(format!("\"{text}\" is not a valid value"));
                let close = closest(text, words.iter().copied());
                problem.map(|problem| match close {
                    Some(close) => problem.help(format!("did you mean \"{close}\"?")),
                    None => problem,
                })
            }
        }
        (Shape::Texts(_) | Shape::Words(_) | Shape::TextsOrTables(..), DeValue::String(text)) => {
            wrong("a string in place of a list".into())
                .map(|problem| problem.help(format!("write [\"{text}\"]")))
        }
        (Shape::Tables(_), DeValue::Table(_)) => {
            let key = path.rsplit('.').next().unwrap_or(path);
            wrong("a table in place of a list of tables".into())
                .map(|problem| problem.help(format!("write [[{path}]], or {key} = [{{ … }}]")))
        }
        (Shape::OneOf(_), DeValue::String(text)) => wrong("a string in place of a table".into())
            .map(|problem| problem.help(format!("write {{ prefix = \"{text}\" }}"))),
        _ => wrong_type(),
    }
}

/// Line ranges that the parser may have misread: from each syntax error to the next table header.
fn unreliable_lines(text: &str, parsed: &Parsed<'_>) -> Vec<Range<usize>> {
    let numbered = text.lines().enumerate();
    let headers: Vec<_> = numbered
        .filter(|(_, line)| line.trim_start().starts_with('['))
        .map(|(index, _)| index + 1)
        .collect();
    let end = |fault: &Problem, line: usize| match headers.iter().find(|header| **header > line) {
        Some(header) if !(parsed.list_is_open && is_about_a_list(fault)) => *header,
        _ => usize::MAX,
    };
    let faults = parsed.faults.iter();
    faults
        .filter_map(|fault| {
            let line = fault.place.as_ref()?.line;
            Some(line..end(fault, line))
        })
        .collect()
}

fn list_of_keys(schema: &Table) -> String {
    let names: Vec<_> = schema
        .keys
        .iter()
        .map(|key| format!("`{}`", key.name))
        .collect();
    names.join(", ")
}

fn with_article(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "a switch (true or false)",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
