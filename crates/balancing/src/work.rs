//! What kind of work a request is for a Puppet server.

use std::fmt;

/// A kind of work. Service times differ by orders of magnitude between them, and so does what a refusal costs the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Work {
    /// A catalog: 1 to 90 s of a JRuby.
    Catalog,
    /// Content and metadata of files. An agent asks for these while it applies its catalog.
    File,
    /// A report: the end of a run that has done its work.
    Report,
    /// Everything else. The default.
    #[default]
    Other,
}

impl Work {
    /// All kinds, in the order of their index.
    pub const ALL: [Self; 4] = [Self::Catalog, Self::File, Self::Report, Self::Other];

    /// The word in records and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Catalog => "catalog",
            Self::File => "file",
            Self::Report => "report",
            Self::Other => "other",
        }
    }

    /// Its place in [`ALL`](Self::ALL).
    pub const fn index(self) -> usize {
        self as usize
    }

    /// How far each request of this kind moves its lane of the queue back, so that every kind gets its part: while all of
    /// them wait, each catalog lets 32 files and 8 others go first.
    ///
    /// Files belong to runs that have begun, take milliseconds, and an agent asks for one after the other. After its report
    /// an agent has no more to do: of those that came after a catalog one in 32 catalogs goes first, or, if the queue is
    /// `crowded`, 32 before each. Where no catalog waits, a report costs no more than other work.
    pub(crate) const fn queue_cost(self, crowded: bool) -> u64 {
        match self {
            Self::File => 1,
            Self::Other => 4,
            Self::Catalog => 32,
            Self::Report if crowded => 1,
            Self::Report => 1024,
        }
    }
}

/// What a request is for a member: its kind of work, and whether a JRuby does it. The default is other work in a JRuby.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Task {
    /// Its kind of work.
    pub work: Work,
    /// Whether Puppet Server answers it outside its JRubies.
    pub without_jruby: bool,
}

impl Task {
    /// Work of this kind in a JRuby.
    pub const fn of(work: Work) -> Self {
        Self {
            work,
            without_jruby: false,
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
