//! Kinds of work for a Puppet server.

use std::fmt;

/// A kind of work. The kinds differ by orders of magnitude in service time, and in what a refusal costs the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Work {
    /// A catalog. It keeps a JRuby busy for 1 to 90 s.
    Catalog,
    /// Content and metadata of files. An agent requests them while it applies its catalog.
    File,
    /// A report, which an agent sends at the end of its run.
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

    /// Its index in [`ALL`](Self::ALL).
    pub const fn index(self) -> usize {
        self as usize
    }

    /// How far each request of this kind moves the next turn of its lane back, so that every kind gets its part. While all
    /// kinds wait, 32 files and 8 other requests leave the queue for each catalog.
    ///
    /// Files belong to runs that have begun, take milliseconds, and an agent requests one after the other. An agent has nothing
    /// more to do after its report. So of the reports that arrived after a catalog, one leaves the queue for every 32 catalogs.
    /// In a `crowded` queue, 32 reports leave before each catalog. While no catalog waits, a report costs no more than other
    /// work.
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

/// A request's kind of work, and whether it needs a JRuby. The default is other work in a JRuby.
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
