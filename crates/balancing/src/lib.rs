//! Pools and their members: who is picked, who is up, what is tried again; pure, with time and chance as
//! arguments.
//!
//! A [`Member`] lives in a [`Registry`] that outlasts configurations; a [`Pool`] belongs to one generation and holds
//! what its configuration says about the members. [`Admission`] decides whether a request runs, waits or is refused, and
//! [`Pool::pick_for`] chooses its member.

pub mod admission;
pub mod budget;
pub mod health;
pub mod member;
pub mod moves;
pub mod pool;
pub mod rate;
pub mod registry;
pub mod retry;
pub mod settings;
pub mod share;
pub mod work;

mod agent_answer;
mod choice;
mod ejection;
mod member_address;
mod overload;
mod pace;
mod places;
mod rendezvous;
mod retry_budget;
mod rotation;
mod terms;
mod warmup;

pub use crate::admission::{
    Admission, Admitted, Decision, Hold, Limits, Offer, Picker, QueueState, Refusal, Target, Ticket,
};
pub use crate::agent_answer::{ANSWER_BYTES_MAX, AgentState};
pub use crate::budget::{BodyBudget, BodyCharge};
pub use crate::choice::{Lead, MEMBERS_MAX, Stay};
pub use crate::health::{Cause, Change, Health};
pub use crate::member::{Administrative, JRUBIES_MAX, Member, WeightSource};
pub use crate::member_address::{MemberAddress, MemberAddressError, host_and_port, without_ip};
pub use crate::moves::MoveLimiter;
pub use crate::overload::OverloadCause;
pub use crate::pool::{Entry, Lease, PickError, Place, Pool, Why};
pub use crate::rate::{Rate, RateLimiter, RateOf, Rates, TooSoon, counted_as};
pub use crate::registry::{
    EndedInstruction, Instruction, MemberName, PoolState, Registry, TooManyInstructions,
};
pub use crate::rendezvous::{key_hash, share_hash, source_hash};
pub use crate::retry::{Failure, Progress, RetryPolicy, RetryVerdict, Stage};
pub use crate::share::{ClientKey, ClientShare, Holding, Holdings};
pub use crate::work::{Task, Work};
