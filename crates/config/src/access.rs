//! `[[access]]`.

use ::identity::extension_names;
use routing::{AccessRuleSettings, RuleAction, oid_of};

use crate::{
    binding::{Base, Bound},
    closest::closest,
    config::Config,
    keys::{Access, Root},
    report::{Problem, ProblemSeverity},
    schema::Key,
    section::{Section, repeated_names},
};

/// Builds the rules of `[[access]]`, and reports their problems. The schema check has already reported invalid values.
pub(crate) fn build<'d>(
    root: &Section<'d>,
    config: &Config,
    problems: &mut Vec<Problem>,
) -> (Vec<Section<'d>>, Vec<AccessRuleSettings>) {
    let sections = root.tables(Root::access);
    let own = &config.routes.extension_names;
    for section in &sections {
        empty_conditions(section, problems);
        known_extensions(section, Access::extension, own, problems);
    }
    repeated_names("access", Access::name, &sections, problems);
    if config.routes.access_observe && !sections.is_empty() {
        let problem = root.warning(
            Root::access_observe,
            "all rules of [[access]] only log what they would refuse",
        );
        problems.push(problem.help("access records and metrics show what each rule would refuse; set it to false to enforce them"));
    }
    let (sections, rules): (Vec<_>, Vec<_>) = sections
        .into_iter()
        .filter_map(|section| {
            let rule = rule(&section)?;
            Some((section, rule))
        })
        .unzip();
    // A condition with an error is missing from the rule, so the rule would seem to match every client.
    if !has_errors(problems) {
        report_unreachable_rules(config, &sections, &rules, problems);
    }
    (sections, rules)
}

pub(crate) fn has_errors(problems: &[Problem]) -> bool {
    let mut problems = problems.iter();
    problems.any(|problem| problem.severity == ProblemSeverity::Error)
}

/// The first rule that matches decides. A rule that no request can reach is a mistake. If it refuses, operators rely on
/// a protection that does not exist.
fn report_unreachable_rules(
    config: &Config,
    sections: &[Section<'_>],
    rules: &[AccessRuleSettings],
    problems: &mut Vec<Problem>,
) {
    let own = &config.routes.extension_names;
    let observes = |rule: &AccessRuleSettings| {
        rule.observe || (rule.action == RuleAction::Refuse && config.routes.access_observe)
    };
    for (index, (section, rule)) in sections.iter().zip(rules).enumerate() {
        let mut earlier = rules[..index].iter().filter(|earlier| !observes(earlier));
        let Some(earlier) = earlier.find(|earlier| covers(earlier, rule, own)) else {
            continue;
        };
        let message = format!(
            "this rule never applies: the earlier rule \"{}\" matches every request that it would match",
            earlier.name
        );
        let problem = section.warning(Access::name, message);
        problems.push(problem.help("move it before that rule, or remove it"));
    }
}

/// Whether `earlier` matches every request that `later` matches. Networks, and names covered by other names, are not
/// compared.
fn covers(
    earlier: &AccessRuleSettings,
    later: &AccessRuleSettings,
    own: &[(String, String)],
) -> bool {
    // If the proxy cannot read an extension with certainty, a rule that refuses matches and a rule that allows does
    // not.
    let is_certain = earlier.extension.is_empty()
        || earlier.action == RuleAction::Refuse
        || later.action == RuleAction::Allow;
    within(&later.class, &earlier.class)
        && within(&later.route, &earlier.route)
        && within(&later.source, &earlier.source)
        && names_within(&later.certname, &earlier.certname)
        && within(&later.issuer, &earlier.issuer)
        && extensions_within(&later.extension, &earlier.extension, own)
        && is_certain
}

fn rule(section: &Section<'_>) -> Option<AccessRuleSettings> {
    let mut rule = AccessRuleSettings::base();
    Access::read(section, &mut rule);
    let is_complete =
        section.text(Access::name).is_some() && section.text(Access::action).is_some();
    is_complete.then_some(rule)
}

/// Whether `earlier` matches every value that `later` matches. An empty list has no condition and matches everything.
pub(crate) fn within<T: PartialEq>(later: &[T], earlier: &[T]) -> bool {
    earlier.is_empty() || (!later.is_empty() && later.iter().all(|one| earlier.contains(one)))
}

/// The same for certnames, where `*` matches every client that has a certname.
pub(crate) fn names_within(later: &[String], earlier: &[String]) -> bool {
    let any_name = earlier.iter().any(|name| name == "*") && !later.is_empty();
    any_name || within(later, earlier)
}

/// Whether the extensions of `earlier` match every client that those of `later` match.
pub(crate) fn extensions_within(
    later: &[(String, String)],
    earlier: &[(String, String)],
    own: &[(String, String)],
) -> bool {
    earlier.iter().all(|(name, value)| {
        let mut later = later.iter();
        later.any(|(other, wanted)| {
            oid_of(other, own) == oid_of(name, own) && (value == wanted || value == "*")
        })
    })
}

/// An empty list or table would match every client.
fn empty_conditions(section: &Section<'_>, problems: &mut Vec<Problem>) {
    for key in [
        Access::certname,
        Access::issuer,
        Access::source,
        Access::route,
        Access::class,
    ] {
        if section.is_empty_list(key) {
            let problem = section.error(key, "an empty list, which would match every client");
            problems.push(problem.expected("at least one element, or leave the key out"));
        }
    }
    if section.is_empty_table(Access::extension) {
        let problem = section.error(
            Access::extension,
            "an empty table, which would match every client",
        );
        problems.push(problem.expected("at least one name with its value, or leave the key out"));
    }
}

pub(crate) fn known_extensions(
    section: &Section<'_>,
    key: &Key,
    own: &[(String, String)],
    problems: &mut Vec<Problem>,
) {
    for (name, _) in section.pairs(key) {
        if oid_of(&name, own).is_some() {
            continue;
        }
        let mut known: Vec<&str> = extension_names().collect();
        known.extend(own.iter().map(|(name, _)| name.as_str()));
        let problem = section.error(key, format!("unknown extension \"{name}\""));
        problems.push(match closest(&name, known.into_iter()) {
            Some(close) => problem.help(format!("did you mean \"{close}\"?")),
            None => problem.help("define names other than Puppet's in [identity.extensions]"),
        });
    }
}
