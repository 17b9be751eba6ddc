//! The order in which members would get a request, with the reason for each position.

use std::{fmt, time::Duration};

use crate::{administrative::Administrative, health::Health, offer::PickError};

/// A member's position in the order in which members would get a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankedMember {
    /// Index of the member's entry in the pool.
    pub index: usize,
    /// The reason for its position.
    pub why: RankReason,
}

/// The reason for a member's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankReason {
    /// Shortest expected wait among the remaining members.
    LeastLoad {
        /// How long the work in flight is expected to keep one JRuby busy.
        expected: Duration,
        /// Its JRubies.
        jrubies: u32,
        /// Its weight.
        weight: u32,
    },
    /// Fewest requests in flight, in proportion to the weight, among the remaining members.
    LeastConnections {
        /// Attempts in flight.
        in_flight: u32,
        /// Its weight.
        weight: u32,
    },
    /// Next in the rotation among the remaining members.
    Rotation {
        /// Its weight.
        weight: u32,
    },
    /// The less loaded of two remaining members, drawn by weight.
    Drawn {
        /// Attempts in flight.
        in_flight: u32,
        /// Its weight.
        weight: u32,
    },
    /// The request's key hashes to it rather than to the remaining members.
    Hash,
    /// The client's address hashes to it rather than to the remaining members.
    SourceHash,
    /// The certname hashes to it rather than to the remaining members whose load is within the bound.
    CertnameHash,
    /// First of the remaining members in the configured order.
    First,
    /// The client stays with this member by persistence.
    Persistence,
    /// Not used: at its limit.
    Full {
        /// Attempts in flight.
        in_flight: u32,
        /// Its limit.
        max: u32,
    },
    /// Not used for a moment: it refused a request because its own queue is full.
    Overloaded,
    /// Not used: its JRubies are all busy.
    Working {
        /// Attempts in flight that hold a JRuby.
        working: u32,
        /// Maximum number of such attempts.
        max: u32,
    },
    /// Not used: not up.
    Health(Health),
    /// Not used for now: ejected because attempts failed.
    Ejected,
    /// Not used: taken out by the operator or the agent check.
    Administrative(Administrative),
    /// Not used: its weight is 0 for now.
    NoWeight,
}

impl RankReason {
    /// The refusal of a request that only this member may get.
    pub(crate) const fn refusal(self) -> PickError {
        if self.is_busy() {
            PickError::Full
        } else {
            PickError::NoneAvailable
        }
    }

    /// Whether the member gets requests.
    pub const fn is_used(self) -> bool {
        !matches!(
            self,
            Self::Health(_) | Self::Ejected | Self::Administrative(_) | Self::NoWeight
        ) && !self.is_busy()
    }

    /// Whether the member gets no request now, but may get the next one.
    pub const fn is_busy(self) -> bool {
        matches!(
            self,
            Self::Full { .. } | Self::Working { .. } | Self::Overloaded
        )
    }
}

impl fmt::Display for RankReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeastConnections { in_flight, weight } => {
                write!(
                    f,
                    "fewest in flight for its weight ({in_flight} in flight, weight {weight})"
                )
            }
            Self::LeastLoad {
                expected,
                jrubies,
                weight,
            } => {
                let expected = expected.as_millis();
                write!(
                    f,
                    "shortest expected wait ({expected} ms of work in flight, JRubies {jrubies}, weight {weight})"
                )
            }
            Self::Rotation { weight } => write!(f, "next in rotation (weight {weight})"),
            Self::Drawn { in_flight, weight } => {
                write!(
                    f,
                    "less busy of two random members ({in_flight} in flight, weight {weight})"
                )
            }
            Self::Hash => f.write_str("selected by the hash of the file's checksum"),
            Self::Persistence => f.write_str("selected by the persistence of the route"),
            Self::SourceHash => f.write_str("selected by the hash of the client's address"),
            Self::CertnameHash => f.write_str("selected by the hash of the certname"),
            Self::First => f.write_str("first in the configured order"),
            Self::Working { working, max } => {
                write!(
                    f,
                    "not used: its JRubies are busy ({working} of {max} requests)"
                )
            }
            Self::Full { in_flight, max } => {
                write!(f, "not used: at its limit ({in_flight} of {max} in flight)")
            }
            Self::Overloaded => f.write_str("not used: its own queue was full a moment ago"),
            Self::Health(Health::Unknown) => f.write_str("not used: not probed yet"),
            Self::Health(health) => write!(f, "not used: {health}"),
            Self::Administrative(state) => write!(f, "not used: {state}"),
            Self::Ejected => f.write_str("not used: ejected because attempts failed"),
            Self::NoWeight => f.write_str("not used: its weight is 0 for now"),
        }
    }
}
