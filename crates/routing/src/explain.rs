//! Every step of a decision, told by the functions that decide.

use std::fmt;

use crate::{
    AccessRule, Endpoint, Layout, RouteCondition, RouteDecision, RouteEntry, RuleAction,
    RuleCondition,
};

/// One step of a decision, in order.
#[derive(Clone, Copy, Debug)]
pub enum RoutingStep<'a> {
    /// What the request asks for.
    Endpoint(Endpoint<'a>),
    /// A route was tried: it matched, or this condition did not hold.
    Tried {
        /// The route.
        route: &'a RouteEntry,
        /// The condition that did not hold.
        failed: Option<RouteCondition>,
    },
    /// The path and the query of a legacy request name two environments.
    EnvironmentMismatch,
    /// No configured route matched, and no built-in one serves the class.
    NoRoute,
    /// A rule was tried: it holds, or this condition did not.
    Rule {
        /// The rule.
        rule: &'a AccessRule,
        /// The condition that did not hold.
        failed: Option<RuleCondition>,
    },
    /// Who may.
    Access(AccessStep),
    /// Whether the endpoint knows the method.
    Method {
        /// It does.
        known: bool,
    },
}

/// What access control said, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessStep {
    /// Granted: the class is open to anyone.
    OpenToAnyone,
    /// Granted: the route is for any client.
    AnyClient,
    /// Granted: a verified agent.
    Verified,
    /// Granted: the document is the agent's own.
    Own,
    /// Granted: the route's `allow` names the agent.
    Named,
    /// Granted: a rule lifts what the class would refuse.
    AllowedByRule,
    /// Granted: the certificate is refused, and the listener forwards that verdict.
    FailedForwarded,
    /// 404: renewal, and it is not configured, or this route does not open it.
    NotConfigured,
    /// 404: below an endpoint that has nothing below it.
    NoEndpoint,
    /// 403: the certificate is refused.
    RefusedCertificate,
    /// 403: no certificate.
    NoCertificate,
    /// 403: another agent's document.
    NotOwn,
    /// 403: `allow` does not name the agent.
    NotAllowed,
    /// 403: the class is closed unless a route opens it.
    ClassClosed,
    /// 403: never passed on.
    Never,
    /// 403: a rule says so.
    RefusedByRule,
}

impl AccessStep {
    /// Those that refuse.
    pub const REFUSALS: [Self; 9] = [
        Self::NotConfigured,
        Self::NoEndpoint,
        Self::RefusedCertificate,
        Self::NoCertificate,
        Self::NotOwn,
        Self::NotAllowed,
        Self::ClassClosed,
        Self::Never,
        Self::RefusedByRule,
    ];

    /// Whether the request may go on.
    pub const fn is_granted(self) -> bool {
        matches!(
            self,
            Self::OpenToAnyone
                | Self::AnyClient
                | Self::Verified
                | Self::Own
                | Self::Named
                | Self::AllowedByRule
                | Self::FailedForwarded
        )
    }

    /// The name in records.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::OpenToAnyone => "open-to-anyone",
            Self::AnyClient => "any-client",
            Self::Verified => "verified",
            Self::Own => "own",
            Self::Named => "named",
            Self::AllowedByRule => "allowed-by-rule",
            Self::FailedForwarded => "failed-forwarded",
            Self::NotConfigured => "not-configured",
            Self::NoEndpoint => "no-endpoint",
            Self::RefusedCertificate => "refused-certificate",
            Self::NoCertificate => "no-certificate",
            Self::NotOwn => "not-own",
            Self::NotAllowed => "not-allowed",
            Self::ClassClosed => "class-closed",
            Self::Never => "never",
            Self::RefusedByRule => "access-rule",
        }
    }

    /// Whether no rule is asked: who the client is, or what the endpoint is, settles it.
    pub(crate) const fn is_beyond_rules(self) -> bool {
        matches!(
            self,
            Self::NotConfigured
                | Self::NoEndpoint
                | Self::RefusedCertificate
                | Self::NoCertificate
                | Self::Never
        )
    }
}

/// A decision with the steps that led to it.
#[derive(Debug)]
pub struct RouteExplanation<'a> {
    /// In order; what was not reached is not there.
    pub steps: Vec<RoutingStep<'a>>,
    /// What [`crate::RouteTable::find`] says.
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
    /// One line a step.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.steps.iter().try_for_each(|step| writeln!(f, "{step}"))
    }
}
