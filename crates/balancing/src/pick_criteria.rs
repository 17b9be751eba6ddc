//! What a request brings to the choice of its member.

use crate::work::Task;

/// What leads a choice beside the state of the members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PickCriteria {
    /// Hash of the key that a request is about, such as a file's checksum; it goes before every algorithm.
    pub key: Option<u64>,
    /// Hash of the client's address, which `source-hash` goes by; without it that is `least-connections`.
    pub source: Option<u64>,
    /// Hash of the verified certname, which `certname-hash` goes by; without it that is `least-load`.
    pub certname: Option<u64>,
    /// A number drawn anew for each request, even over all of `u64`, which `random` goes by.
    pub random: u64,
    /// What the request is for the member.
    pub task: Task,
    /// Which member the client stays with; it overrides all of the above.
    pub stay: MemberPersistence,
}

/// Which member a client stays with while that member is available and below its limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MemberPersistence {
    /// None: each request may go to another.
    #[default]
    No,
    /// The one that this hash leads to.
    Hash(u64),
    /// The one of this number ([`Member::id`](crate::Member::id)).
    Member(u64),
}
