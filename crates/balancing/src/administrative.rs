//! What the operator wants of a member.

use std::fmt;

/// What the operator wants of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Administrative {
    /// Takes requests. The default.
    #[default]
    Ready,
    /// Finishes what it has and takes no more; probes go on.
    Drain,
    /// Takes no requests; probes go on, and `rise` good ones after it bring the member back.
    Maintenance,
}

impl Administrative {
    pub(crate) fn of(value: u8) -> Self {
        match value {
            value if value == Self::Drain as u8 => Self::Drain,
            value if value == Self::Maintenance as u8 => Self::Maintenance,
            _ => Self::Ready,
        }
    }

    /// The word in the API and in records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Drain => "drain",
            Self::Maintenance => "maintenance",
        }
    }
}

impl fmt::Display for Administrative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
