//! The keys of records in the store, below its prefix.

use std::fmt;

/// The subject of a record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordKey {
    /// The administrative state of a member.
    Member {
        /// The pool.
        pool: String,
        /// The address of the member in it.
        member: String,
    },
    /// A block, by its id.
    Block(String),
}

const MEMBERS: &str = "members/";
const BLOCKS: &str = "blocks/";

impl RecordKey {
    /// Reads a key. `None` if it is of a kind that this version does not know.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(rest) = text.strip_prefix(MEMBERS) {
            // A pool has no slash in its name; the path of a Unix socket does.
            let (pool, member) = rest.split_once('/')?;
            let (pool, member) = (pool.to_owned(), member.to_owned());
            return (!pool.is_empty() && !member.is_empty())
                .then_some(Self::Member { pool, member });
        }
        let id = text.strip_prefix(BLOCKS)?;
        (!id.is_empty()).then(|| Self::Block(id.to_owned()))
    }
}

impl fmt::Display for RecordKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Member { pool, member } => write!(f, "{MEMBERS}{pool}/{member}"),
            Self::Block(id) => write!(f, "{BLOCKS}{id}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_printed_and_parsed() {
        for text in [
            "members/compilers/c1.example.com:8140",
            "members/compilers/[2001:db8::1]:8140",
            "members/local/unix:/run/puppet/a.sock",
            "blocks/p1.example.com-19a2b3c4d5e-7",
        ] {
            let key = RecordKey::parse(text).expect(text);
            assert_eq!(key.to_string(), text);
        }
        for text in [
            "",
            "members/",
            "members/p",
            "members//m",
            "members/p/",
            "blocks/",
            "turn",
        ] {
            assert_eq!(RecordKey::parse(text), None, "{text}");
        }
    }
}
