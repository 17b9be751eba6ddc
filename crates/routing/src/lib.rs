//! Which pool gets a request, and which clients may send it: path rule, endpoint classes, routes and access rules.
//!
//! This crate does no IO. It decides from a request line, headers, an identity and the facts about a connection. It does not
//! know members. Pools are indices.

mod access;
mod access_step;
mod agent_controlled;
mod authority;
mod certificate_conditions;
mod class;
mod decision;
mod endpoint;
mod explain;
mod network;
mod parameters;
mod path;
mod path_index;
pub mod pool_names;
mod problem;
mod request;
mod route;
mod rule;
pub mod settings;
mod table;
mod upgrade;

pub use access_step::AccessStep;
pub use agent_controlled::{AccessOpener, AgentControlledAccess};
pub use authority::{authority_is_host, host_name};
pub use certificate_conditions::oid_of;
pub use class::{Class, UnknownClass};
pub use decision::{
    ENROLMENT_BODY_BYTES_MAX, ForwardPlan, RefusalReason, RouteDecision, RouteRefusal,
};
pub use endpoint::{Document, Endpoint, Layout, Layouts, Methods, RetryClass, classify};
pub use explain::{RouteExplanation, RoutingStep};
pub use network::{Network, NetworkProblem};
pub use parameters::cookie_value;
pub use path::{CanonicalPath, PathProblem, check_query};
pub use problem::RouteProblem;
pub use request::RoutingRequest;
pub use route::{RouteCondition, RouteEntry, RoutePersistence};
pub use rule::{AccessRule, RuleCondition};
pub use settings::{
    AccessRuleSettings, ClientRule, PathPattern, Persistence, RouteSettings, RoutingSettings,
    RuleAction,
};
pub use table::RouteTable;
pub use upgrade::check_protocol;
