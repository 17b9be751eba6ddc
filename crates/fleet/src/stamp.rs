//! The order of changes to one record.

use serde::{Deserialize, Serialize};

/// The order of changes to one record. A new stamp is higher than all that its proxy has seen, so clocks decide only
/// between operators who could not see each other's change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Stamp {
    /// Milliseconds since the epoch, or one more than the highest stamp seen, whichever is higher.
    pub ms: u64,
    /// Certname of the proxy on which the change was made.
    pub by: String,
}

impl Stamp {
    /// The stamp of a change at `now` (milliseconds since the epoch) on the proxy `by`.
    #[must_use]
    pub fn after(highest_seen: u64, now: u64, by: &str) -> Self {
        Self {
            ms: now.max(highest_seen.saturating_add(1)),
            by: by.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_higher_than_all_seen_whatever_the_clock_says() {
        for (seen, now, expected) in [
            (0, 1000, 1000),
            (1000, 1000, 1001),
            (5000, 1000, 5001),
            (u64::MAX, 1000, u64::MAX),
        ] {
            assert_eq!(Stamp::after(seen, now, "p1").ms, expected);
        }
        let (first, second) = (Stamp::after(0, 5, "p1"), Stamp::after(0, 5, "p2"));
        assert!(first < second, "equal times are ordered by name");
    }
}
