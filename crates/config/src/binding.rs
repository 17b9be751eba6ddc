//! The `settings!` macro: declares tables, and binds each key to the field that it sets.

use crate::{
    schema::{Key, Table},
    section::Section,
};

/// A table whose keys set fields of a type.
pub(crate) trait Bound {
    /// The type whose fields the keys set.
    type Target: Base;
    const TABLE: &'static Table;

    /// Sets each field whose key the file gives a valid value.
    fn read(section: &Section<'_>, target: &mut Self::Target);

    /// Each key that is bound to a field, with the field's value as TOML.
    fn values(target: &Self::Target) -> Vec<(&'static Key, Option<String>)>;
}

/// A type with a value for every field that a file may leave out.
pub(crate) trait Base {
    fn base() -> Self;
}

/// For tables whose keys are read by hand-written code.
impl Base for () {
    fn base() -> Self {}
}

/// Declares tables: each key with its documentation, its kind, the field that it sets, and its default.
///
/// `key: kind => field;` binds a key to a field; the default is the field's value in [`Base::base`]. `, required` marks
/// a key that the table must have. `, else "words"` describes a default that depends on another setting. `, default
/// value` gives the default of a key that is not bound to a field; hand-written code reads such a key.
macro_rules! settings {
    ($(
        $(#[doc = $table_doc:literal])*
        $table:ident at $path:literal for $target:ty {
            $(
                $(#[doc = $doc:literal])*
                $key:ident $(as $name:literal)?: $kind:expr $(=> $($field:ident).+)? $(, $absent:ident $($value:expr)?)?;
            )*
        }
    )*) => {
        $(
            $(#[doc = $table_doc])*
            pub(crate) struct $table;

            #[allow(
                non_upper_case_globals,
                dead_code,
                reason = "keys are spelled as in a file, and most are read with their table alone"
            )]
            impl $table {
                $(
                    $(#[doc = $doc])*
                    pub(crate) const $key: &'static Key = &Key {
                        name: settings!(@name $key $($name)?),
                        docs: &[$($doc),*],
                        shape: $kind.shape(),
                        absent: settings!(@absent [$target] [$kind] [$($($field).+)?] $($absent $($value)?)?),
                    };
                )*
            }

            impl Bound for $table {
                type Target = $target;
                const TABLE: &'static Table = &Table {
                    path: $path,
                    docs: &[$($table_doc),*],
                    keys: &[$(Self::$key),*],
                };

                #[allow(unused_variables, reason = "some tables bind no key")]
                fn read(section: &Section<'_>, target: &mut $target) {
                    $($(
                        if let Some(value) = section.value(Self::$key, &$kind) {
                            target.$($field).+ = value;
                        }
                    )?)*
                }

                #[allow(unused_variables, reason = "some tables bind no key")]
                fn values(target: &$target) -> Vec<(&'static Key, Option<String>)> {
                    vec![$($((Self::$key, $kind.show(&target.$($field).+)),)?)*]
                }
            }
        )*
    };
    (@name $key:ident) => { stringify!($key) };
    (@name $key:ident $name:literal) => { $name };
    (@absent $target:tt $kind:tt $field:tt required) => { Absent::Required };
    (@absent $target:tt $kind:tt $field:tt else $words:expr) => { Absent::Means($words) };
    (@absent $target:tt [$kind:expr] [] default $value:expr) => { Absent::Default(|| $kind.show(&$value)) };
    (@absent [$target:ty] [$kind:expr] [$($field:ident).+]) => {
        Absent::Default(|| $kind.show(&<$target as Base>::base().$($field).+))
    };
}
pub(crate) use settings;
