//! The steps of a decision, recorded by the functions that decide.

use std::fmt;

use crate::access_step::AccessStep;
use crate::{
    AccessRule, Endpoint, Layout, RouteCondition, RouteDecision, RouteEntry, RuleAction,
    RuleCondition,
};

/// One step of a decision, in order.
#[derive(Clone, Copy, Debug)]
pub enum RoutingStep<'a> {
    /// The endpoint of the request.
    Endpoint(Endpoint<'a>),
    /// A route was tried. It matched, or this condition did not.
    Tried {
        /// The route.
        route: &'a RouteEntry,
        /// The condition that did not match.
        failed: Option<RouteCondition>,
    },
    /// The path and the query of a legacy request name different environments.
    EnvironmentMismatch,
    /// No configured route matched, and no built-in route serves the class.
    NoRoute,
    /// A rule was tried. It matched, or this condition did not.
    Rule {
        /// The rule.
        rule: &'a AccessRule,
        /// The condition that did not match.
        failed: Option<RuleCondition>,
    },
    /// The result of access control.
    Access(AccessStep),
    /// The check whether the endpoint supports the method.
    Method {
        /// Whether it does.
        known: bool,
    },
}

/// A decision with the steps that led to it.
#[derive(Debug)]
pub struct RouteExplanation<'a> {
    /// The steps in order, up to the one that decided.
    pub steps: Vec<RoutingStep<'a>>,
    /// The result of [`crate::RouteTable::find`].
    pub decision: RouteDecision<'a>,
}

impl fmt::Display for RoutingStep<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Endpoint(endpoint) => {
                write!(f, "class: {}", endpoint.class)?;
                if let Some(name) = endpoint.certname {
                    write!(f, ", of certname {name}")?;
                }
                match endpoint.layout {
                    Layout::Modern => Ok(()),
                    Layout::Legacy => f.write_str(", in the URL layout of Puppet 0.25 to 3"),
                }
            }
            Self::Tried {
                route,
                failed: None,
            } => write!(f, "route {}: matches", route.name),
            Self::Tried {
                route,
                failed: Some(condition),
            } => {
                write!(
                    f,
                    "route {}: no match, by its condition {condition:?}",
                    route.name,
                    condition = condition.to_string()
                )
            }
            Self::NoRoute => f.write_str("no route"),
            Self::EnvironmentMismatch => {
                f.write_str("environment: the path and the query name different ones")
            }
            Self::Rule {
                rule,
                failed: Some(condition),
            } => write!(
                f,
                "rule {}: no match, by its condition {:?}",
                rule.name,
                condition.to_string()
            ),
            Self::Rule { rule, failed: None } => write!(
                f,
                "rule {}: matches, {}",
                rule.name,
                match rule.action {
                    RuleAction::Allow => "allows",
                    RuleAction::Refuse if rule.observe => "would refuse, but only observes",
                    RuleAction::Refuse => "refuses",
                }
            ),
            Self::Access(access) if access.is_granted() => {
                write!(f, "access: granted ({})", access.as_str())
            }
            Self::Access(access) => write!(f, "access: denied ({})", access.as_str()),
            Self::Method { known: true } => f.write_str("method: known to the endpoint"),
            Self::Method { known: false } => f.write_str("method: not known to the endpoint"),
        }
    }
}

impl fmt::Display for RouteExplanation<'_> {
    /// Writes one line per step.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}
