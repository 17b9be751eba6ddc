//! Records that several proxies share through a store: the states of members, and blocks of certificates. This crate
//! does no IO, and time is an argument.
//!
//! Each proxy owns its state, and the store only carries records. Two versions of a record are ordered, and the higher
//! one replaces the lower one wherever both are known ([`Records::merge`]). A wiped store, an old backup and a proxy
//! that was cut off are therefore the same case. An absent record has no meaning. docs/decisions/fleet.md gives the
//! reasons.

mod block;
mod crl_hint;
mod key;
mod member;
mod proxy_entry;
mod record;
mod records;
mod stamp;
mod turn;

pub use block::{BlockId, BlockRecord, Lift};
pub use crl_hint::{ActiveCrlEntry, ActiveCrls, CrlHints, HINT_JITTER_MAX, NewerCrls, newer_crls};
pub use key::RecordKey;
pub use member::{MemberRecord, MemberState};
pub use proxy_entry::{
    Difference, ENTRY_BYTES_MAX, EntryFault, HeardProxy, ProxyEntry, WithdrawnMember, differences,
};
pub use record::{RECORD_BYTES_MAX, Record, RecordContent, RecordFault};
pub use records::{Merged, RECORDS_MAX, Records, TooManyRecords};
pub use stamp::Stamp;
pub use turn::{TURN_BYTES_MAX, TURN_KEY, TurnFault, TurnRecord, not_ready};
