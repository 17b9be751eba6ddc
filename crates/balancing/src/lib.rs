//! Pools and their members: who is picked, who is up, what is tried again; pure, with time and chance as
//! arguments.
//!
//! A [`Member`] lives in a [`Registry`] that outlasts configurations; a [`Pool`] belongs to one generation and holds
//! what its configuration says about the members. [`Admission`] decides whether a request runs, waits or is refused, and
//! [`Pool::pick_for`] chooses its member.

pub mod admission;
pub mod body_budget;
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

mod rendezvous;
mod retry_budget;
mod rotation;
mod slots;
mod terms;
mod warmup;

pub use crate::admission::{
    Admission, AdmissionDecision, AdmissionRefusal, Admitted, ClientSlot, EligibleMembers, Offer,
    Picker, QueueLimits, QueueState, Ticket,
};
pub use crate::agent_answer::{ANSWER_BYTES_MAX, AgentState};
pub use crate::body_budget::{BodyBudget, BodyCharge};
pub use crate::choice::{MEMBERS_MAX, MemberPersistence, PickCriteria};
pub use crate::health::{Health, HealthCause, HealthChange};
pub use crate::member::{Administrative, JRUBIES_MAX, Member, WeightSource};
pub use crate::member_address::{MemberAddress, MemberAddressError, host_and_port, without_ip};
pub use crate::moves::MoveLimiter;
pub use crate::overload::OverloadCause;
pub use crate::pool::{Lease, PickError, Pool, PoolEntry, RankReason, RankedMember};
pub use crate::rate::{Rate, RateExceeded, RateLimiter, RateScope, Rates, counted_as};
pub use crate::registry::{
    EndedInstruction, Instruction, MemberName, PoolState, Registry, TooManyInstructions,
};
pub use crate::rendezvous::{key_hash, share_hash, source_hash};
pub use crate::retry::{AttemptFailure, AttemptStage, Progress, RetryPolicy, RetryVerdict};
pub use crate::share::{ClientKey, ClientShare, Holding, Holdings};
pub use crate::work::{Task, Work};
