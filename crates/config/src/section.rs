//! One table of the file with its declaration: values by key, defaults filled in.
//!
//! It is lenient where the examination was strict: a value that is not right has been reported, and reads as its
//! default here, so that what follows can look for more.

use std::{ops::Range, path::PathBuf, time::Duration};

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use crate::{
    examination::{MemberEntry, fits},
    quantity,
    report::Problem,
    schema::{Absent, Key, Shape, Table},
};

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

    pub(crate) fn is_set(&self, key: &str) -> bool {
        self.raw(key).is_some()
    }

    /// Whether a key that should hold tables holds something else, which the examination has reported.
    pub(crate) fn is_no_table(&self, key: &str) -> bool {
        self.raw(key)
            .is_some_and(|value| !value.get_ref().is_table())
    }

    /// Whether the file gives a list without elements.
    pub(crate) fn is_empty_list(&self, key: &str) -> bool {
        let array = self.raw(key).and_then(|value| value.get_ref().as_array());
        array.is_some_and(|array| array.is_empty())
    }

    /// Whether the file gives a table without keys.
    pub(crate) fn is_empty_table(&self, key: &str) -> bool {
        let table = self.raw(key).and_then(|value| value.get_ref().as_table());
        table.is_some_and(|table| table.is_empty())
    }

    /// The key path of a key in this table.
    pub(crate) fn key_path(&self, key: &str) -> String {
        join(&self.path, key)
    }

    /// Where a key's value stands, else the table.
    pub(crate) fn span(&self, key: &str) -> Option<Range<usize>> {
        self.raw(key)
            .map(Spanned::span)
            .or_else(|| self.span.clone())
    }

    /// Where the table stands.
    pub(crate) fn own_span(&self) -> Option<Range<usize>> {
        self.span.clone()
    }

    pub(crate) fn error(&self, key: &str, message: impl Into<String>) -> Problem {
        self.place(Problem::error(self.key_path(key), message), self.span(key))
    }

    pub(crate) fn warning(&self, key: &str, message: impl Into<String>) -> Problem {
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

    pub(crate) fn text(&self, key: &str) -> Option<String> {
        self.read(key, |value| value.as_str().map(ToOwned::to_owned))
    }

    pub(crate) fn path(&self, key: &str) -> Option<PathBuf> {
        self.text(key).map(PathBuf::from)
    }

    /// The texts of a list, or the one text in the place of a list.
    pub(crate) fn texts(&self, key: &str) -> Vec<String> {
        self.spanned_texts(key)
            .into_iter()
            .map(|(text, _)| text)
            .collect()
    }

    pub(crate) fn spanned_texts(&self, key: &str) -> Vec<(String, Range<usize>)> {
        let Some(value) = self.raw(key) else {
            return Vec::new();
        };
        let Some(array) = value.get_ref().as_array() else {
            return text_of(value).into_iter().collect();
        };
        array.iter().filter_map(text_of).collect()
    }

    pub(crate) fn switch(&self, key: &str) -> bool {
        self.read(key, |value| value.as_bool()).unwrap_or_default()
    }

    pub(crate) fn count(&self, key: &str) -> Option<u32> {
        self.read(key, |value| integer(value)?.try_into().ok())
    }

    pub(crate) fn duration(&self, key: &str) -> Option<Duration> {
        self.read(key, |value| quantity::duration(value.as_str()?))
    }

    pub(crate) fn size(&self, key: &str) -> Option<u64> {
        self.read(key, |value| quantity::size(value.as_str()?))
    }

    /// The table under a key, an absent one where there is none.
    pub(crate) fn table(&self, key: &str) -> Self {
        let schema = match self.schema.key(key).shape {
            Shape::Table(schema) | Shape::OneOf(schema) => schema,
            _ => panic!("{key} of \"{}\" is no table", self.schema.path),
        };
        let value = self.raw(key);
        Self {
            text: self.text,
            table: value.and_then(|value| value.get_ref().as_table()),
            schema,
            path: self.key_path(key),
            span: value.map(Spanned::span),
        }
    }

    /// Tables that the file names, in its order.
    pub(crate) fn named(&self, key: &str) -> Vec<(String, Self)> {
        let Shape::Named(schema) = self.schema.key(key).shape else {
            panic!("{key} of \"{}\" holds no named tables", self.schema.path);
        };
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

    /// Tables of a list, in order.
    pub(crate) fn tables(&self, key: &str) -> Vec<Self> {
        let Shape::Tables(schema) = self.schema.key(key).shape else {
            panic!("{key} of \"{}\" is no list of tables", self.schema.path);
        };
        let array = self.raw(key).and_then(|value| value.get_ref().as_array());
        let numbered = array.into_iter().flat_map(|array| array.iter()).enumerate();
        numbered
            .filter_map(|(index, value)| {
                self.below(value, schema, format!("{}[{index}]", self.key_path(key)))
            })
            .collect()
    }

    /// Elements of a list of texts and tables, in order.
    pub(crate) fn entries(&self, key: &str) -> Vec<MemberEntry<'d>> {
        let Shape::TextsOrTables(_, schema) = self.schema.key(key).shape else {
            panic!(
                "{key} of \"{}\" is no list of texts and tables",
                self.schema.path
            );
        };
        let array = self.raw(key).and_then(|value| value.get_ref().as_array());
        let numbered = array.into_iter().flat_map(|array| array.iter()).enumerate();
        numbered
            .filter_map(|(index, value)| {
                let path = format!("{}[{index}]", self.key_path(key));
                match text_of(value) {
                    Some((text, span)) => Some(MemberEntry::Text { text, span, path }),
                    None => self.below(value, schema, path).map(MemberEntry::Table),
                }
            })
            .collect()
    }

    /// Names and texts that the file chooses, in its order.
    pub(crate) fn pairs(&self, key: &str) -> Vec<(String, String)> {
        let table = self.raw(key).and_then(|value| value.get_ref().as_table());
        let mut pairs: Vec<_> = table
            .into_iter()
            .flatten()
            .filter_map(|(name, value)| {
                Some((name.span().start, name.get_ref(), value.get_ref().as_str()?))
            })
            .collect();
        pairs.sort_by_key(|(start, ..)| *start);
        pairs
            .into_iter()
            .map(|(_, name, value)| (name.to_string(), value.to_owned()))
            .collect()
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

    fn read<T>(&self, key: &str, convert: impl Fn(&DeValue<'_>) -> Option<T>) -> Option<T> {
        let declared = self.schema.key(key);
        let written = self
            .raw(key)
            .filter(|value| fits(value.get_ref(), &declared.shape));
        written
            .and_then(|value| convert(value.get_ref()))
            .or_else(|| default_of(declared, convert))
    }

    fn raw(&self, key: &str) -> Option<&'d Spanned<DeValue<'d>>> {
        debug_assert!(self.schema.key(key).name == key);
        self.table?.get(key)
    }
}

/// The number of an integer, if it is one that fits.
pub(crate) fn integer(value: &DeValue<'_>) -> Option<u64> {
    let integer = value.as_integer()?;
    u64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

/// A key below a path; quoted where it is no bare key.
pub(crate) fn join(path: &str, key: &str) -> String {
    let bare = !key.is_empty()
        && key
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    let key = if bare { key.into() } else { format!("{key:?}") };
    match path {
        "" => key,
        path => format!("{path}.{key}"),
    }
}

fn text_of(value: &Spanned<DeValue<'_>>) -> Option<(String, Range<usize>)> {
    Some((value.get_ref().as_str()?.to_owned(), value.span()))
}

fn default_of<T>(key: &Key, convert: impl Fn(&DeValue<'_>) -> Option<T>) -> Option<T> {
    let Absent::Value(text) = key.absent else {
        return None;
    };
    let value = DeValue::parse(text).expect("a test parses every default");
    convert(value.get_ref())
}
