//! Members from DNS: lookups, the last valid answers, their storage and their status.

mod answers;
mod lookup;
mod status;
mod stored;

pub(crate) use answers::{Answers, CaWriter, HELD_WRITES, configured, questions, rules};
pub(crate) use lookup::resolve;
pub(crate) use stored::{FILE, StoredAnswers};
