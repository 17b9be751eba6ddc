//! The record of a block. It changes only once, when an operator lifts it.

use serde::{Deserialize, Serialize};

/// The id of a block: unique among all proxies and all times.
pub type BlockId = String;

/// A block of certificates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockRecord {
    /// Its id.
    pub id: BlockId,
    /// The certificates, as the admin API names them.
    pub blocked: serde_json::Value,
    /// The account that set it, as `root`.
    pub by: String,
    /// The proxy on which it was set.
    pub proxy: String,
    /// The reason.
    pub why: String,
    /// When it was set, in milliseconds since the epoch.
    pub since: u64,
    /// The last millisecond in which it is active. `None` if it is active until it is lifted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<u64>,
    /// How it was lifted. `None` if it was not lifted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifted: Option<Lift>,
}

/// The end of a block by an operator.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lift {
    /// The account.
    pub by: String,
    /// The proxy.
    pub proxy: String,
    /// When, in milliseconds since the epoch.
    pub at: u64,
}

impl BlockRecord {
    /// When it ended or will end, in milliseconds since the epoch. `None` if it is active until it is lifted.
    #[must_use]
    pub fn end(&self) -> Option<u64> {
        let lifted = self.lifted.as_ref().map(|lift| lift.at);
        [lifted, self.until].into_iter().flatten().min()
    }
}
