//! One table of the file with its declaration, to read values by key.
//!
//! An invalid value is already reported by `examination`. It is read as if it were absent, so that the later checks can
//! find more problems.

use std::{collections::HashMap, ops::Range, path::PathBuf};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{
    examination::fits,
    report::Problem,
    schema::{Key, Table, join},
    values::{Reads, pairs_of},
};

/// An element of a list that may contain strings and tables.
pub(crate) enum Entry<'d> {
    Text {
        text: String,
        span: Range<usize>,
        path: String,
    },
    Table(Section<'d>),
}

/// A table of the file, or one that the file leaves out.
#[derive(Clone)]
pub(crate) struct Section<'d> {
    text: &'d str,
    table: Option<&'d DeTable<'d>>,
    schema: &'static Table,
    path: String,
    span: Option<Range<usize>>,
}

impl<'d> Section<'d> {
    pub(crate) fn root(text: &'d str, table: &'d DeTable<'d>, schema: &'static Table) -> Self {
        Self {
            text,
            table: Some(table),
            schema,
            path: String::new(),
            span: None,
        }
    }

    pub(crate) fn is_set(&self, key: &Key) -> bool {
        self.raw(key).is_some()
    }

    /// Whether a key that must have a table has another value. `examination` has already reported it.
    pub(crate) fn is_not_a_table(&self, key: &Key) -> bool {
        self.raw(key)
            .is_some_and(|value| !value.get_ref().is_table())
    }

    /// Whether the file has an empty list for a key.
    pub(crate) fn is_empty_list(&self, key: &Key) -> bool {
        let array = self.raw(key).and_then(|value| value.get_ref().as_array());
        array.is_some_and(|array| array.is_empty())
    }

    /// Whether the file has an empty table for a key.
    pub(crate) fn is_empty_table(&self, key: &Key) -> bool {
        let table = self.raw(key).and_then(|value| value.get_ref().as_table());
        table.is_some_and(|table| table.is_empty())
    }

    /// Looks up the declaration of a key by name, for names in problems that another crate reports.
    pub(crate) fn key(&self, name: &str) -> Option<&'static Key> {
        self.schema.key(name)
    }

    /// The key path of a key in this table.
    pub(crate) fn key_path(&self, key: &Key) -> String {
        join(&self.path, key.name)
    }

    /// The position of a key's value, or else of the table.
    pub(crate) fn span(&self, key: &Key) -> Option<Range<usize>> {
        self.raw(key)
            .map(Spanned::span)
            .or_else(|| self.span.clone())
    }

    /// The position of the table.
    pub(crate) fn own_span(&self) -> Option<Range<usize>> {
        self.span.clone()
    }

    pub(crate) fn error(&self, key: &Key, message: impl Into<String>) -> Problem {
        self.place(Problem::error(self.key_path(key), message), self.span(key))
    }

    pub(crate) fn warning(&self, key: &Key, message: impl Into<String>) -> Problem {
        self.place(
            Problem::warning(self.key_path(key), message),
            self.span(key),
        )
    }

    pub(crate) fn place(&self, problem: Problem, span: Option<Range<usize>>) -> Problem {
        match span {
            Some(span) => problem.at(self.text, span),
            None => problem,
        }
    }

    /// A valid value of a key, in the type of the field that it sets.
    pub(crate) fn value<V>(&self, key: &Key, kind: &impl Reads<V>) -> Option<V> {
        let written = self.raw(key)?.get_ref();
        fits(written, &key.shape)
            .then(|| kind.read(written))
            .flatten()
    }

    pub(crate) fn text(&self, key: &Key) -> Option<String> {
        let written = self.raw(key)?.get_ref();
        let text = written.as_str().filter(|_| fits(written, &key.shape))?;
        Some(text.to_owned())
    }

    pub(crate) fn path(&self, key: &Key) -> Option<PathBuf> {
        self.text(key).map(PathBuf::from)
    }

    /// The strings of a list, or a single string in its place, each with its position.
    pub(crate) fn spanned_texts(&self, key: &Key) -> Vec<(String, Range<usize>)> {
        let Some(value) = self.raw(key) else {
            return Vec::new();
        };
        let Some(array) = value.get_ref().as_array() else {
            return text_of(value).into_iter().collect();
        };
        array.iter().filter_map(text_of).collect()
    }

    /// The table under a key, or an absent table.
    pub(crate) fn table(&self, key: &Key) -> Self {
        let schema = self.declared_table(key);
        let value = self.raw(key);
        Self {
            text: self.text,
            table: value.and_then(|value| value.get_ref().as_table()),
            schema,
            path: self.key_path(key),
            span: value.map(Spanned::span),
        }
    }

    /// The tables that the file gives names, in the order of the file.
    pub(crate) fn named(&self, key: &Key) -> Vec<(String, Self)> {
        let schema = self.declared_table(key);
        let tables = self.raw(key).and_then(|value| value.get_ref().as_table());
        let mut named: Vec<_> = tables
            .into_iter()
            .flatten()
            .filter_map(|(name, value)| {
                let path = join(&self.key_path(key), name.get_ref());
                Some((name.get_ref().to_string(), self.below(value, schema, path)?))
            })
            .collect();
        named.sort_by_key(|(_, section)| section.span.as_ref().map(|span| span.start));
        named
    }

    /// The tables of a list, in order.
    pub(crate) fn tables(&self, key: &Key) -> Vec<Self> {
        let schema = self.declared_table(key);
        let array = self.raw(key).and_then(|value| value.get_ref().as_array());
        let numbered = array.into_iter().flat_map(|array| array.iter()).enumerate();
        numbered
            .filter_map(|(index, value)| {
                self.below(value, schema, format!("{}[{index}]", self.key_path(key)))
            })
            .collect()
    }

    /// The tables of a list, or a single table in its place: the first, then the others. The first is absent if there
    /// is none.
    pub(crate) fn one_or_more(&self, key: &Key) -> (Self, Vec<Self>) {
        let mut tables = self.tables(key).into_iter();
        match tables.next() {
            Some(first) => (first, tables.collect()),
            None => (self.table(key), Vec::new()),
        }
    }

    /// The elements of a list of strings and tables, in order.
    pub(crate) fn entries(&self, key: &Key) -> Vec<Entry<'d>> {
        let schema = self.declared_table(key);
        let array = self.raw(key).and_then(|value| value.get_ref().as_array());
        let numbered = array.into_iter().flat_map(|array| array.iter()).enumerate();
        numbered
            .filter_map(|(index, value)| {
                let path = format!("{}[{index}]", self.key_path(key));
                match text_of(value) {
                    Some((text, span)) => Some(Entry::Text { text, span, path }),
                    None => self.below(value, schema, path).map(Entry::Table),
                }
            })
            .collect()
    }

    /// Names and strings that the file chooses, in the order of the file.
    pub(crate) fn pairs(&self, key: &Key) -> Vec<(String, String)> {
        self.raw(key)
            .and_then(|value| pairs_of(value.get_ref()))
            .unwrap_or_default()
    }

    fn below(
        &self,
        value: &'d Spanned<DeValue<'d>>,
        schema: &'static Table,
        path: String,
    ) -> Option<Self> {
        Some(Self {
            text: self.text,
            table: Some(value.get_ref().as_table()?),
            schema,
            path,
            span: Some(value.span()),
        })
    }

    /// The declaration of the table under a key.
    ///
    /// # Panics
    /// If the key has no table. This is a programming error that shows at the first call.
    fn declared_table(&self, key: &Key) -> &'static Table {
        key.shape
            .table()
            .unwrap_or_else(|| panic!("{} of \"{}\" holds no table", key.name, self.schema.path))
    }

    fn raw(&self, key: &Key) -> Option<&'d Spanned<DeValue<'d>>> {
        debug_assert!(self.schema.key(key.name).is_some(), "{}", key.name);
        self.table?.get(key.name)
    }
}

fn text_of(value: &Spanned<DeValue<'_>>) -> Option<(String, Range<usize>)> {
    Some((value.get_ref().as_str()?.to_owned(), value.span()))
}

/// Reports tables of a list whose name an earlier one already has.
pub(crate) fn repeated_names(
    list: &str,
    key: &Key,
    sections: &[Section<'_>],
    problems: &mut Vec<Problem>,
) {
    let mut seen: HashMap<String, usize> = HashMap::new();
    for (index, section) in sections.iter().enumerate() {
        let Some(name) = section.text(key) else {
            continue;
        };
        if let Some(other) = seen.insert(name.clone(), index) {
            let problem = section.error(
                key,
                format!("`{list}[{other}]` has the same name, \"{name}\""),
            );
            problems.push(problem.expected("another name"));
        }
    }
}
