//! The administrative state of a member.

use std::fmt;

/// The state that the operator wants a member to have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Administrative {
    /// The member gets requests. The default.
    #[default]
    Ready,
    /// The member finishes its requests and gets no new ones. Probes continue.
    Drain,
    /// The member gets no requests. Probes continue. When maintenance ends, `rise` successful probes bring the member up.
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
