//! Members from DNS: which queries to send, which answers are valid, and which members follow from an answer.
//!
//! [`Resolver`] sends the queries. Everything else is pure.

mod answer;
mod members;
mod names;
mod resolver;
pub mod settings;

pub use crate::answer::{DnsAnswer, DnsQuestion, RECORDS_MAX, ServiceTarget};
pub use crate::members::{AnswerRules, DiscoveredMember, InvalidAnswer, discovered, question};
pub use crate::names::is_covered;
pub use crate::resolver::{LookupError, Resolved, Resolver};
