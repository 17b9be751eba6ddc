//! The criteria by which a request's member is picked.

use crate::work::Task;

/// The criteria of a pick, apart from the state of the members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PickCriteria {
    /// Hash of a request's key, such as a file's checksum. It overrides every algorithm.
    pub key: Option<u64>,
    /// Hash of the client's address, for `source-hash`. Without it, that algorithm picks like `least-connections`.
    pub source: Option<u64>,
    /// Hash of the verified certname, for `certname-hash`. Without it, that algorithm picks like `least-load`.
    pub certname: Option<u64>,
    /// A random number for each request, uniform over `u64`, for the algorithm `random`.
    pub random: u64,
    /// The kind of work.
    pub task: Task,
    /// The member that the client stays with. It overrides all other criteria.
    pub persistence: MemberPersistence,
}

/// Which member a client stays with while that member is available and below its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemberPersistence {
    /// No persistence: each request may go to another member.
    #[default]
    No,
    /// The member that this hash selects.
    Hash(u64),
    /// The member with this [`Member::id`](crate::Member::id).
    Member(u64),
}
