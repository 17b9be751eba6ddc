//! One request from head to last byte: sanitize, route, pick, stamp, send, judge, answer, record.
//!
//! [`Worker`] is one thread's proxy; `exchange::handle` is the request path in one function. No TOML, no files.

mod allowance;
mod attempts;
mod body_fault;
mod client_body;
mod connection;
mod copying;
mod date;
mod edge;
mod enrolment;
mod error;
mod excess;
mod exchange;
mod first_byte;
mod frame_head;
mod frames;
mod generation;
mod http2;
mod idle_limit;
mod incoming;
mod live;
mod no_request;
mod peeked;
mod places;
mod record;
mod renewal;
mod respond;
mod response_body;
mod rules;
mod sanitize;
mod serve;
pub mod settings;
mod spoken;
mod stream;
mod streams;
mod tunnel;
mod upgrade;
mod upload;
mod worker;

pub use body_fault::BodyFault;
pub use edge::{Edge, EdgeCopy, answers as answers_from_copy};
pub use generation::{Generation, PoolRuntime};
pub use renewal::{Renewal, RenewalOff};
pub use rules::RuleRuntime;
pub use settings::{CaSettings, HostRule, PoolRules, Settings};
pub use upload::RequestBody;
pub use worker::{Phase, Shared, Signals, Worker};
