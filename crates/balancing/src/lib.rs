//! Pools and their members: admission, the choice of a member, health, and retries. Pure: time and random numbers are
//! arguments.
//!
//! A [`Member`] belongs to a [`Registry`], which outlasts configurations. A [`Pool`] belongs to one generation and has its
//! settings for the members. [`Admission`] decides whether a request runs, waits or is refused, and [`Pool::pick_for`] picks
//! its member.

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

mod administrative;
mod agent_answer;
mod availability;
mod choice;
mod ejection;
mod hash;
mod member_address;
mod member_factors;
mod offer;
mod overload;
mod pace;
mod pick_criteria;
mod pool_entry;
mod pool_factors;
mod pool_state;
mod pool_sums;
mod rank;

mod rendezvous;
mod retry_budget;
mod rotation;
mod slots;
mod turns;
mod warmup;

pub use crate::administrative::Administrative;
pub use crate::admission::{
    Admission, AdmissionDecision, AdmissionRefusal, Admitted, ClientSlot, Picker, QueueLimits,
    QueueState, Ticket,
};
pub use crate::agent_answer::{ANSWER_BYTES_MAX, AgentState};
pub use crate::availability::Availability;
pub use crate::body_budget::{BodyBudget, BodyCharge};
pub use crate::hash::{key_hash, share_hash, source_hash};
pub use crate::health::{Health, HealthCause, HealthChange};
pub use crate::member::{JRUBIES_MAX, Member, WeightSource};
pub use crate::member_address::{MemberAddress, MemberAddressError, host_and_port, without_ip};
pub use crate::moves::MoveLimiter;
pub use crate::offer::{EligibleMembers, Offer, PickError};
pub use crate::overload::OverloadCause;
pub use crate::pick_criteria::{MemberPersistence, PickCriteria};
pub use crate::pool::{Lease, Pool};
pub use crate::pool_entry::{MEMBERS_MAX, PoolEntry};
pub use crate::pool_state::PoolState;
pub use crate::rank::{RankReason, RankedMember};
pub use crate::rate::{Rate, RateExceeded, RateLimiter, RateScope, Rates, counted_as};
pub use crate::registry::{
    EndedInstruction, Instruction, MemberName, Registry, TooManyInstructions,
};
pub use crate::retry::{AttemptFailure, AttemptStage, Progress, RetryPolicy, RetryVerdict};
pub use crate::share::{ClientKey, ClientShare, Holding, Holdings};
pub use crate::work::{Task, Work};
