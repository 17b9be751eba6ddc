//! Members from DNS: lookups, the last valid answers, their storage and their status.

mod answers;
mod lookup;
mod status;
mod stored;

pub use answers::{Answers, questions};
pub(crate) use answers::{CaWriter, HELD_WRITES, configured, rules};
pub use lookup::Lookup;
pub(crate) use lookup::resolve;
pub(crate) use stored::{FILE, StoredAnswers};
