//! Kinds of values: how each is read from TOML and printed as TOML, for the type of the field that it sets.
//!
//! A declaration in `keys` names a kind, for example `duration(seconds(1)..=DAY)`. The kind gives the shape that a
//! value is checked against. `Reads<V>` connects it with the types of fields that it can set, so that a field of
//! another type does not compile.

use std::{marker::PhantomData, ops::RangeInclusive, path::PathBuf, time::Duration};

use identity::{CertnamePattern, HeaderPattern, HeaderSet, IdentityName};
use toml::de::DeValue;

use crate::{
    forms::Form,
    quantity,
    schema::{Shape, Table, join},
};

/// A kind of value that can set a field of type `V`.
pub(crate) trait Reads<V> {
    /// Reads a value that has the right type.
    fn read(&self, value: &DeValue<'_>) -> Option<V>;
    /// The value as TOML; `None` if a file expresses it by leaving the key out.
    fn show(&self, value: &V) -> Option<String>;
}

/// A kind that can set a field can also set an optional field of that type.
impl<K: Reads<V>, V> Reads<Option<V>> for K {
    fn read(&self, value: &DeValue<'_>) -> Option<Option<V>> {
        Reads::<V>::read(self, value).map(Some)
    }

    fn show(&self, value: &Option<V>) -> Option<String> {
        self.show(value.as_ref()?)
    }
}

/// A type that is read from a string.
pub(crate) trait Text: Sized {
    fn parse(text: &str) -> Option<Self>;
    fn text(&self) -> String;
}

/// An integer type of a field.
pub(crate) trait Number: Copy + TryFrom<u64> + TryInto<u64> {}

/// An enum whose values are words in a file.
pub(crate) trait Word: Copy + PartialEq + 'static {
    /// Each word with its value, in the order of the reference page.
    const VALUES: &'static [(&'static str, Self)];
    /// The words without their values.
    const WORDS: &'static [&'static str];

    fn of(word: &str) -> Option<Self> {
        let mut values = Self::VALUES.iter();
        let (_, value) = values.find(|(known, _)| *known == word)?;
        Some(*value)
    }

    fn word(self) -> Option<&'static str> {
        let mut values = Self::VALUES.iter();
        let (word, _) = values.find(|(_, value)| *value == self)?;
        Some(word)
    }
}

/// Declares the words of an enum.
macro_rules! enum_words {
    ($($type:ty { $($word:literal => $value:expr,)* })*) => {
        $(
            impl $crate::values::Word for $type {
                const VALUES: &'static [(&'static str, Self)] = &[$(($word, $value)),*];
                const WORDS: &'static [&'static str] = &[$($word),*];
            }
        )*
    };
}
pub(crate) use enum_words;

macro_rules! kinds {
    ($($(#[doc = $doc:literal])* $kind:ident($($field:ident: $type:ty),*) = $function:ident -> $shape:expr;)*) => {
        $(
            $(#[doc = $doc])*
            pub(crate) struct $kind { $($field: $type),* }

            pub(crate) const fn $function($($field: $type),*) -> $kind {
                $kind { $($field),* }
            }

            impl $kind {
                pub(crate) const fn shape(&self) -> Shape {
                    let Self { $($field),* } = self;
                    $shape
                }
            }
        )*
    };
}

kinds! {
    /// `true` or `false`.
    Switch() = switch -> Shape::Switch;
    /// An integer.
    Count(range: RangeInclusive<u64>) = count -> Shape::Count { min: *range.start(), max: *range.end() };
    /// A number of bytes with a unit.
    Size(range: RangeInclusive<u64>) = size -> Shape::Size { min: *range.start(), max: *range.end() };
    /// A share in percent.
    Percent(range: RangeInclusive<u64>) = percent -> Shape::Percent { min: *range.start(), max: *range.end() };
    /// A duration with a unit.
    Period(range: RangeInclusive<Duration>) = duration -> Shape::Duration { min: *range.start(), max: *range.end() };
    /// A string.
    OneText(form: &'static Form) = text -> Shape::Text(form);
    /// A list of strings.
    Texts(form: &'static Form) = texts -> Shape::Texts(form);
    /// A list of strings. An empty list is expressed by leaving the key out.
    Conditions(form: &'static Form) = conditions -> Shape::Texts(form);
    /// A string, or a list of strings.
    TextOrTexts(form: &'static Form) = text_or_texts -> Shape::TextOrTexts(form);
    /// A table of names and strings. An empty table is expressed by leaving the key out.
    Pairs(name: &'static Form, text: &'static Form) = pairs -> Shape::Pairs(name, text);
    /// A table.
    OneTable(table: &'static Table) = table -> Shape::Table(table);
    /// A table with exactly one of its keys.
    OneOf(table: &'static Table) = one_of -> Shape::OneOf(table);
    /// Tables under names that the file chooses.
    Named(table: &'static Table) = named -> Shape::Named(table);
    /// A list of tables.
    Tables(table: &'static Table) = tables -> Shape::Tables(table);
    /// A table, or a list of tables.
    TableOrTables(table: &'static Table) = table_or_tables -> Shape::TableOrTables(table);
    /// A list of strings and tables.
    TextsOrTables(form: &'static Form, table: &'static Table) = texts_or_tables -> Shape::TextsOrTables(form, table);
}

/// One word of an enum.
pub(crate) struct OneWord<W>(PhantomData<W>);

/// A list of words of an enum.
pub(crate) struct Words<W> {
    /// The words that the list may contain.
    words: &'static [&'static str],
    /// Whether an empty list is expressed by leaving the key out.
    is_condition: bool,
    marker: PhantomData<W>,
}

pub(crate) const fn word<W: Word>() -> OneWord<W> {
    OneWord(PhantomData)
}

pub(crate) const fn words<W: Text>(words: &'static [&'static str]) -> Words<W> {
    Words {
        words,
        is_condition: false,
        marker: PhantomData,
    }
}

/// A condition that is a list of words. An empty list is expressed by leaving the key out.
pub(crate) const fn condition_words<W: Text>(words: &'static [&'static str]) -> Words<W> {
    Words {
        words,
        is_condition: true,
        marker: PhantomData,
    }
}

impl<W: Word> OneWord<W> {
    pub(crate) const fn shape(&self) -> Shape {
        Shape::Word(W::WORDS)
    }
}

impl<W> Words<W> {
    pub(crate) const fn shape(&self) -> Shape {
        Shape::Words(self.words)
    }
}

impl Reads<bool> for Switch {
    fn read(&self, value: &DeValue<'_>) -> Option<bool> {
        value.as_bool()
    }

    fn show(&self, value: &bool) -> Option<String> {
        Some(value.to_string())
    }
}

impl<N: Number> Reads<N> for Count {
    fn read(&self, value: &DeValue<'_>) -> Option<N> {
        integer(value)?.try_into().ok()
    }

    fn show(&self, value: &N) -> Option<String> {
        let number: u64 = (*value).try_into().ok()?;
        Some(number.to_string())
    }
}

impl<N: Number> Reads<N> for Size {
    fn read(&self, value: &DeValue<'_>) -> Option<N> {
        quantity::size(value.as_str()?)?.try_into().ok()
    }

    fn show(&self, value: &N) -> Option<String> {
        let bytes = (*value).try_into().ok()?;
        Some(quoted(&quantity::show_size(bytes)))
    }
}

impl<N: Number> Reads<N> for Percent {
    fn read(&self, value: &DeValue<'_>) -> Option<N> {
        quantity::percent(value.as_str()?)?.try_into().ok()
    }

    fn show(&self, value: &N) -> Option<String> {
        let percent = (*value).try_into().ok()?;
        Some(quoted(&quantity::show_percent(percent)))
    }
}

impl Reads<Duration> for Period {
    fn read(&self, value: &DeValue<'_>) -> Option<Duration> {
        quantity::duration(value.as_str()?)
    }

    fn show(&self, value: &Duration) -> Option<String> {
        Some(quoted(&quantity::show_duration(*value)))
    }
}

impl<T: Text> Reads<T> for OneText {
    fn read(&self, value: &DeValue<'_>) -> Option<T> {
        T::parse(value.as_str()?)
    }

    fn show(&self, value: &T) -> Option<String> {
        Some(quoted(&value.text()))
    }
}

impl<T: Text> Reads<Vec<T>> for Texts {
    fn read(&self, value: &DeValue<'_>) -> Option<Vec<T>> {
        list(value)
    }

    fn show(&self, value: &Vec<T>) -> Option<String> {
        Some(show_list(value))
    }
}

impl<T: Text> Reads<Vec<T>> for Conditions {
    fn read(&self, value: &DeValue<'_>) -> Option<Vec<T>> {
        list(value)
    }

    fn show(&self, value: &Vec<T>) -> Option<String> {
        (!value.is_empty()).then(|| show_list(value))
    }
}

impl<T: Text> Reads<Vec<T>> for TextOrTexts {
    fn read(&self, value: &DeValue<'_>) -> Option<Vec<T>> {
        list(value)
    }

    fn show(&self, value: &Vec<T>) -> Option<String> {
        Some(match value.as_slice() {
            [one] => quoted(&one.text()),
            many => show_list(many),
        })
    }
}

impl Reads<Vec<(String, String)>> for Pairs {
    fn read(&self, value: &DeValue<'_>) -> Option<Vec<(String, String)>> {
        pairs_of(value)
    }

    fn show(&self, pairs: &Vec<(String, String)>) -> Option<String> {
        let pair =
            |(name, value): &(String, String)| format!("{} = {}", join("", name), quoted(value));
        let shown: Vec<_> = pairs.iter().map(pair).collect();
        (!shown.is_empty()).then(|| format!("{{ {} }}", shown.join(", ")))
    }
}

impl<W: Word> Reads<W> for OneWord<W> {
    fn read(&self, value: &DeValue<'_>) -> Option<W> {
        W::of(value.as_str()?)
    }

    fn show(&self, value: &W) -> Option<String> {
        Some(quoted(value.word()?))
    }
}

impl<W: Text> Reads<Vec<W>> for Words<W> {
    fn read(&self, value: &DeValue<'_>) -> Option<Vec<W>> {
        list(value)
    }

    fn show(&self, value: &Vec<W>) -> Option<String> {
        (!(self.is_condition && value.is_empty())).then(|| show_list(value))
    }
}

impl Number for u8 {}
impl Number for u16 {}
impl Number for u32 {}
impl Number for u64 {}
impl Number for usize {}

/// Types that are converted with `parse` and `to_string`.
macro_rules! texts {
    ($($type:ty),*) => {
        $(
            impl Text for $type {
                fn parse(text: &str) -> Option<Self> {
                    text.parse().ok()
                }

                fn text(&self) -> String {
                    self.to_string()
                }
            }
        )*
    };
}
texts!(
    std::net::SocketAddr,
    String,
    listener::ListenAddress,
    listener::SocketMode,
    discovery::settings::DnsServer,
    crate::EtcdEndpoint,
    routing::Class,
    balancing::settings::StatusRange
);

impl Text for PathBuf {
    fn parse(text: &str) -> Option<Self> {
        Some(text.into())
    }

    fn text(&self) -> String {
        self.to_string_lossy().into_owned()
    }
}

impl Text for IdentityName {
    fn parse(text: &str) -> Option<Self> {
        Self::parse(text).ok()
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl Text for HeaderPattern {
    fn parse(text: &str) -> Option<Self> {
        Self::parse(text)
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl Text for HeaderSet {
    fn parse(text: &str) -> Option<Self> {
        Self::of(text)
    }

    fn text(&self) -> String {
        self.word().unwrap_or_default().to_owned()
    }
}

impl Text for CertnamePattern {
    fn parse(text: &str) -> Option<Self> {
        Self::parse(text).ok()
    }

    fn text(&self) -> String {
        self.as_str().to_owned()
    }
}

impl Text for routing::Network {
    fn parse(text: &str) -> Option<Self> {
        Self::parse(text).ok()
    }

    fn text(&self) -> String {
        self.to_string()
    }
}

impl Text for pki::CsrKey {
    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|key| key.as_str() == text)
    }

    fn text(&self) -> String {
        self.as_str().to_owned()
    }
}

impl Text for pki::CsrRule {
    fn parse(text: &str) -> Option<Self> {
        Self::LIFTABLE
            .into_iter()
            .find(|rule| rule.as_str() == text)
    }

    fn text(&self) -> String {
        self.as_str().to_owned()
    }
}

/// An integer as `u64`, if it fits.
pub(crate) fn integer(value: &DeValue<'_>) -> Option<u64> {
    let integer = value.as_integer()?;
    u64::from_str_radix(integer.as_str(), integer.radix()).ok()
}

/// The names and strings of a table, in the order of the file.
pub(crate) fn pairs_of(value: &DeValue<'_>) -> Option<Vec<(String, String)>> {
    let mut pairs: Vec<_> = value
        .as_table()?
        .iter()
        .filter_map(|(name, value)| {
            let text = value.get_ref().as_str()?.to_owned();
            Some((name.span().start, (name.get_ref().to_string(), text)))
        })
        .collect();
    pairs.sort_by_key(|(start, _)| *start);
    Some(pairs.into_iter().map(|(_, pair)| pair).collect())
}

/// Formats a TOML basic string.
pub(crate) fn quoted(value: &str) -> String {
    let mut quoted = String::from("\"");
    for character in value.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            control if control.is_control() => {
                quoted.push_str(&format!("\\u{:04X}", u32::from(control)));
            }
            plain => quoted.push(plain),
        }
    }
    quoted.push('"');
    quoted
}

/// The valid elements of a list, or a single string in its place.
fn list<T: Text>(value: &DeValue<'_>) -> Option<Vec<T>> {
    if let Some(text) = value.as_str() {
        return Some(vec![T::parse(text)?]);
    }
    let elements = value.as_array()?.iter();
    Some(
        elements
            .filter_map(|element| T::parse(element.get_ref().as_str()?))
            .collect(),
    )
}

fn show_list<T: Text>(list: &[T]) -> String {
    let shown: Vec<_> = list.iter().map(|element| quoted(&element.text())).collect();
    format!("[{}]", shown.join(", "))
}

impl Reads<balancing::settings::Role> for Switch {
    fn read(&self, value: &DeValue<'_>) -> Option<balancing::settings::Role> {
        Some(if value.as_bool()? {
            balancing::settings::Role::Backup
        } else {
            balancing::settings::Role::Ordinary
        })
    }

    fn show(&self, value: &balancing::settings::Role) -> Option<String> {
        Some((*value == balancing::settings::Role::Backup).to_string())
    }
}
