//! Where a request goes and who may ask: path rule, endpoint classes, routes, access.
//!
//! Pure: a request line, headers, an identity and the facts of a connection in, a decision out. Members are unknown here, pools are indices.

mod access;
mod authority;
mod certified;
mod chosen;
mod class;
mod endpoint;
mod explain;
mod network;
mod parameters;
mod path;
mod path_index;
pub mod pool_names;
mod route;
mod rule;
pub mod settings;
mod table;
mod upgrade;

pub use authority::{authority_is_host, host_name};
pub use certified::oid_of;
pub use chosen::{Chosen, Opener};
pub use class::{Class, UnknownClass};
pub use endpoint::{Document, Endpoint, Layout, Layouts, Methods, RetryClass, classify};
pub use explain::{AccessStep, Explanation, Step};
pub use network::{Network, NetworkProblem};
pub use parameters::cookie_value;
pub use path::{CanonicalPath, PathProblem, check_query};
pub use route::{Condition, RouteEntry, RoutePersistence};
pub use rule::{AccessRule, RuleCondition};
pub use settings::{
    AccessRuleSettings, ClientRule, PathPattern, Persistence, RouteSettings, RuleAction, Settings,
};
pub use table::{
    Decision, ENROLMENT_BODY_BYTES_MAX, Plan, Question, RefusalReason, RouteProblem, RouteRefusal,
    RouteTable,
};
pub use upgrade::check_protocol;
