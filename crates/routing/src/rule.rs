//! One rule of `[[access]]`: its conditions and its action.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use identity::{Agent, CertnamePattern, extension_names, is_extension_oid};

use crate::certificate_conditions::{ExtensionCondition, extensions_hold, issuer_holds, patterns};
use crate::problem::RouteProblem;
use crate::request::RoutingRequest;
use crate::settings::{AccessRuleSettings, RoutingSettings, RuleAction};
use crate::{Class, Endpoint, Network, RouteEntry};

/// A rule of the table. An empty list matches every request.
#[derive(Debug)]
pub struct AccessRule {
    /// Name in records, metrics, refusals and `explain`.
    pub name: Arc<str>,
    /// Its index among the rules.
    pub index: usize,
    /// Its effect on requests that match.
    pub action: RuleAction,
    /// Whether it only logs what it would refuse.
    pub observe: bool,
    classes: u16,
    route: Vec<String>,
    source: Vec<Network>,
    certname: Vec<CertnamePattern>,
    issuer: Vec<String>,
    extension: Vec<ExtensionCondition>,
}

/// A condition of a rule that did not match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleCondition {
    /// `class`
    Class,
    /// `route`
    Route,
    /// `source`
    Source,
    /// `certname`
    Certname,
    /// `issuer`
    Issuer,
    /// `extension`
    Extension,
}

impl fmt::Display for RuleCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Class => "class",
            Self::Route => "route",
            Self::Source => "source",
            Self::Certname => "certname",
            Self::Issuer => "issuer",
            Self::Extension => "extension",
        })
    }
}

impl AccessRule {
    /// Builds all rules. Adds every problem to `problems`.
    pub(crate) fn all<'r>(
        settings: &RoutingSettings,
        routes: impl Iterator<Item = &'r RouteEntry>,
        problems: &mut Vec<RouteProblem>,
    ) -> Vec<Self> {
        if settings.access.is_empty() {
            return Vec::new();
        }
        let routes: Vec<&str> = routes.map(|route| &*route.name).collect();
        let rules = settings.access.iter().enumerate();
        rules
            .filter_map(|(index, rule)| {
                if settings.access[..index]
                    .iter()
                    .any(|earlier| earlier.name == rule.name)
                {
                    problems.push(RouteProblem::of_rule(
                        index,
                        "name",
                        format!("two rules have the name {:?}", rule.name),
                    ));
                }
                Self::new(index, rule, settings, &routes, problems)
            })
            .collect()
    }

    fn new(
        index: usize,
        rule: &AccessRuleSettings,
        settings: &RoutingSettings,
        routes: &[&str],
        problems: &mut Vec<RouteProblem>,
    ) -> Option<Self> {
        let before = problems.len();
        let mut report =
            |key, message: String| problems.push(RouteProblem::of_rule(index, key, message));
        if rule.name.is_empty() {
            report("name", "the rule has no name".to_owned());
        }
        check_allow(rule, &mut report);
        for name in &rule.route {
            if !routes.contains(&name.as_str()) {
                report("route", format!("there is no route {name:?}"));
            }
        }
        let source = Network::all(&rule.source, &mut report);
        let certname = patterns(&rule.certname, "certname", &mut report);
        let own = &settings.extension_names;
        let extension = ExtensionCondition::all(&rule.extension, own, &mut report);
        (problems.len() == before).then(|| Self {
            name: rule.name.as_str().into(),
            index,
            action: rule.action,
            observe: rule.action == RuleAction::Refuse && (rule.observe || settings.access_observe),
            classes: rule.class.iter().fold(0, |bits, class| bits | class.bit()),
            route: rule.route.clone(),
            source,
            certname,
            issuer: rule.issuer.clone(),
            extension,
        })
    }

    /// Whether the rule names `class`. A rule opens only classes that it names.
    pub(crate) fn names(&self, class: Class) -> bool {
        self.classes & class.bit() != 0
    }

    /// The first condition that does not match. An unknown fact about a client matches no condition.
    pub(crate) fn failed(
        &self,
        endpoint: &Endpoint<'_>,
        route: &RouteEntry,
        question: &RoutingRequest<'_>,
    ) -> Option<RuleCondition> {
        // Only a client with a verified chain counts.
        let agent = question.identity.agent();
        if self.classes != 0 && !self.names(endpoint.class) {
            Some(RuleCondition::Class)
        } else if !(self.route.is_empty() || self.route.iter().any(|name| **name == *route.name)) {
            Some(RuleCondition::Route)
        } else if !self.source_holds(question.source) {
            Some(RuleCondition::Source)
        } else if !self.certname_holds(agent) {
            Some(RuleCondition::Certname)
        } else if !issuer_holds(&self.issuer, agent) {
            Some(RuleCondition::Issuer)
        // A value that cannot be decoded reliably never satisfies an allowing rule, and always satisfies a refusing one.
        } else if !extensions_hold(&self.extension, agent, self.action == RuleAction::Refuse) {
            Some(RuleCondition::Extension)
        } else {
            None
        }
    }

    fn source_holds(&self, client: Option<IpAddr>) -> bool {
        let known = |client| self.source.iter().any(|network| network.contains(client));
        self.source.is_empty() || client.is_some_and(known)
    }

    fn certname_holds(&self, agent: Option<&Agent>) -> bool {
        let named = |agent: &Agent| {
            let name = agent.certname().as_str();
            self.certname.iter().any(|pattern| pattern.matches(name))
        };
        self.certname.is_empty() || agent.is_some_and(named)
    }
}

/// Checks that an allowing rule does not open a guarded class to every client, and does not merely seem to open a class.
fn check_allow(rule: &AccessRuleSettings, report: &mut impl FnMut(&'static str, String)) {
    if rule.action == RuleAction::Refuse {
        return;
    }
    if rule.observe {
        report(
            "observe",
            "a rule that allows refuses no client, so `observe` has no effect".to_owned(),
        );
    }
    let is_pattern = |name: &String| name.contains('*');
    if rule.class.contains(&Class::ServerAdministration)
        && (rule.certname.is_empty() || rule.certname.iter().any(is_pattern))
    {
        report(
            "class",
            "the class \"server-administration\" can be opened only to complete certnames, without `*`: name them by certname"
                .to_owned(),
        );
    }
    // Otherwise any certificate of this CA would suffice, such as that of a compromised web server.
    let opened = rule.class.iter().find(|class| class.is_opened_by_rule());
    if let Some(class) = opened
        && rule.certname.is_empty()
        && rule.extension.is_empty()
    {
        report(
            "class",
            format!(
                "the class \"{class}\" can be opened only to named agents: name them by certname or extension"
            ),
        );
    }
}

/// Adds the problems of `[identity.extensions]` to `problems`.
pub(crate) fn check_names(own: &[(String, String)], problems: &mut Vec<RouteProblem>) {
    for (name, oid) in own {
        let message = if extension_names().any(|known| known == name) {
            format!("{name:?} is one of Puppet's own names")
        } else if !is_extension_oid(oid) {
            format!("{oid:?} is not the OID of an extension with a string value")
        } else {
            continue;
        };
        problems.push(RouteProblem {
            route: None,
            rule: None,
            key: "identity.extensions",
            message,
        });
    }
}
