//! Finds rules and routes that open a guarded class by values that agents write into their own certificate requests.
//!
//! An operator who signs requests may check those values. A CA with autosigning does not check them. The proxy cannot know
//! which of the two applies. A whole certname is safe, because a CA signs only one request for it. Authorization extensions,
//! which agents cannot request, and the client's address are safe as well.

use identity::is_authorization_oid;

use crate::settings::{AccessRuleSettings, RouteSettings, RoutingSettings, RuleAction};
use crate::{Class, oid_of};

/// A rule or route that opens classes by values that agents choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentControlledAccess {
    /// The rule or route.
    pub opener: AccessOpener,
    /// The name of the rule or route.
    pub name: String,
    /// The guarded classes that the rule or route opens.
    pub classes: Vec<Class>,
    /// The values that agents choose, as written in the configuration: `pp_role = "ops"`.
    pub by: String,
}

/// A table in the configuration, by its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessOpener {
    /// `[[access]]`
    Rule(usize),
    /// `[[routes]]`
    Route(usize),
}

impl RoutingSettings {
    /// All rules and routes that open a guarded class by values that agents choose.
    pub fn opened_by_choice(&self) -> Vec<AgentControlledAccess> {
        let rules = self.access.iter().enumerate();
        let rules = rules.filter_map(|(index, rule)| {
            let (classes, by) = self.chosen_by_rule(rule)?;
            let (opener, name) = (AccessOpener::Rule(index), rule.name.clone());
            Some(AgentControlledAccess {
                opener,
                name,
                classes,
                by,
            })
        });
        let routes = self.routes.iter().enumerate();
        let routes = routes.filter_map(|(index, route)| {
            let (classes, by) = self.chosen_by_route(route)?;
            let (opener, name) = (AccessOpener::Route(index), route.name.clone());
            Some(AgentControlledAccess {
                opener,
                name,
                classes,
                by,
            })
        });
        rules.chain(routes).collect()
    }

    fn chosen_by_rule(&self, rule: &AccessRuleSettings) -> Option<(Vec<Class>, String)> {
        let classes = guarded(&rule.class);
        let is_chosen = rule.action == RuleAction::Allow
            && !classes.is_empty()
            && rule.source.is_empty()
            && (rule.certname.is_empty() || has_pattern(&rule.certname))
            && !self.has_authorization(&rule.extension);
        let extensions = rule.extension.iter();
        let extensions = extensions.map(|(name, value)| format!("{name} = {value:?}"));
        let by: Vec<_> = extensions
            .chain(names("certname", &rule.certname))
            .collect();
        // A rule without a condition on the client is invalid, so nothing is reported for it.
        (is_chosen && !by.is_empty()).then(|| (classes, by.join(", ")))
    }

    fn chosen_by_route(&self, route: &RouteSettings) -> Option<(Vec<Class>, String)> {
        let classes = guarded(&route.classes);
        let is_chosen = !classes.is_empty()
            && !route.unguarded
            && route.source.is_empty()
            && (route.certname.is_empty() || has_pattern(&route.certname))
            && has_pattern(&route.allow)
            && !self.has_authorization(&route.extension);
        let by = names("certname", &route.certname)
            .into_iter()
            .chain(names("allow", &route.allow));
        is_chosen.then(|| (classes, by.collect::<Vec<_>>().join(", ")))
    }

    /// Whether one of the extensions is an authorization extension.
    fn has_authorization(&self, extensions: &[(String, String)]) -> bool {
        extensions.iter().any(|(name, _)| {
            oid_of(name, &self.extension_names).is_some_and(|oid| is_authorization_oid(&oid))
        })
    }
}

fn guarded(classes: &[Class]) -> Vec<Class> {
    let opened = classes.iter().filter(|class| class.is_opened_by_rule());
    opened.copied().collect()
}

fn has_pattern(names: &[String]) -> bool {
    names.iter().any(|name| name.contains('*'))
}

fn names(key: &str, names: &[String]) -> Option<String> {
    has_pattern(names).then(|| format!("{key} = {names:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(change: impl Fn(&mut AccessRuleSettings)) -> Option<AgentControlledAccess> {
        let mut rule = AccessRuleSettings {
            name: "ops".to_owned(),
            action: RuleAction::Allow,
            class: vec![Class::Files, Class::CaAdministration],
            ..AccessRuleSettings::default()
        };
        change(&mut rule);
        let settings = RoutingSettings {
            access: vec![rule],
            extension_names: vec![
                ("site".to_owned(), "1.3.6.1.4.1.34380.1.2.7".to_owned()),
                ("right".to_owned(), "1.3.6.1.4.1.34380.1.3.99".to_owned()),
            ],
            ..RoutingSettings::default()
        };
        settings.opened_by_choice().pop()
    }

    fn extension(name: &str) -> Vec<(String, String)> {
        vec![(name.to_owned(), "ops".to_owned())]
    }

    #[test]
    fn values_that_agents_choose_are_reported_if_they_open_a_class() {
        for name in ["pp_role", "site", "1.3.6.1.4.1.34380.1.1.13"] {
            let chosen = rule(|rule| rule.extension = extension(name)).expect(name);
            assert_eq!(chosen.classes, [Class::CaAdministration], "{name}");
            assert_eq!(chosen.by, format!("{name} = \"ops\""));
        }
        let names = vec!["ca.example.com".to_owned(), "ops*".to_owned()];
        let chosen = rule(|rule| rule.certname = names.clone()).expect("a pattern");
        assert!(chosen.by.contains("ops*"), "{chosen:?}");
    }

    #[test]
    fn values_that_agents_cannot_choose_are_not_reported() {
        let protected = ["pp_cli_auth", "pp_auth_role", "right"];
        for name in protected.into_iter().chain(["1.3.6.1.4.1.34380.1.3.39"]) {
            let chosen = rule(|rule| {
                rule.extension = [extension("pp_role"), extension(name)].concat();
            });
            assert_eq!(chosen, None, "{name}");
        }
        let role = |rule: &mut AccessRuleSettings| rule.extension = extension("pp_role");
        let chosen = rule(|rule| {
            role(rule);
            rule.certname = vec!["ca.example.com".to_owned()];
        });
        assert_eq!(chosen, None, "a whole name");
        let chosen = rule(|rule| {
            role(rule);
            rule.source = vec!["10.0.0.0/8".to_owned()];
        });
        assert_eq!(chosen, None, "an address");
        let chosen = rule(|rule| {
            role(rule);
            rule.class = vec![Class::Files];
        });
        assert_eq!(chosen, None, "what is open to every agent");
        let chosen = rule(|rule| {
            role(rule);
            rule.action = RuleAction::Refuse;
        });
        assert_eq!(chosen, None, "it opens nothing");
    }

    #[test]
    fn a_route_that_allows_a_pattern_of_names_is_reported() {
        let mut route = RouteSettings {
            name: "admin".to_owned(),
            allow: vec!["admin*.example.com".to_owned()],
            classes: vec![Class::CaAdministration],
            ..RouteSettings::default()
        };
        let by_choice = |route: &RouteSettings| {
            let settings = RoutingSettings {
                routes: vec![route.clone()],
                ..RoutingSettings::default()
            };
            settings.opened_by_choice().pop()
        };
        let chosen = by_choice(&route).expect("a pattern");
        assert_eq!(chosen.opener, AccessOpener::Route(0));
        route.extension = extension("pp_role");
        assert!(by_choice(&route).is_some(), "agents choose that too");
        route.extension = extension("pp_auth_role");
        assert_eq!(by_choice(&route), None);
        route.extension = Vec::new();
        route.allow = vec!["admin.example.com".to_owned()];
        assert_eq!(by_choice(&route), None);
    }
}
