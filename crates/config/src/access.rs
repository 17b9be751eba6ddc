//! `[[access]]`.

use ::identity::extension_names;
use routing::{AccessRuleSettings, RuleAction, oid_of};

use crate::{
    examination::closest,
    report::{Problem, Severity},
    routes::repeated_names,
    section::Section,
};

/// The rules with their tables; what only a look at the file can tell has been reported.
pub(crate) fn build<'d>(
    root: &Section<'d>,
    problems: &mut Vec<Problem>,
) -> (Vec<Section<'d>>, Vec<AccessRuleSettings>) {
    let sections = root.tables("access");
    let own = root.table("identity").pairs("extensions");
    for section in &sections {
        empty_conditions(section, problems);
        known_extensions(section, &own, problems);
    }
    repeated_names("access", &sections, problems);
    if root.switch("access_observe") && !sections.is_empty() {
        let problem = root.warning("access_observe", "no rule of [[access]] refuses anybody");
        problems.push(problem.help("records and metrics tell what each would refuse"));
    }
    let (sections, rules): (Vec<_>, Vec<_>) = sections
        .into_iter()
        .filter_map(|section| {
            let rule = rule(&section)?;
            Some((section, rule))
        })
        .unzip();
    // What is no condition yet, for a slip in it, is not one that holds for everybody.
    if !has_errors(problems) {
        never_asked(root, &sections, &rules, problems);
    }
    (sections, rules)
}

pub(crate) fn has_errors(problems: &[Problem]) -> bool {
    let mut problems = problems.iter();
    problems.any(|problem| problem.severity == Severity::Error)
}

/// The first rule that holds decides: one behind another that holds whenever it would is a slip, and a rule that refuses
/// and never does is taken for a guard.
fn never_asked(
    root: &Section<'_>,
    sections: &[Section<'_>],
    rules: &[AccessRuleSettings],
    problems: &mut Vec<Problem>,
) {
    let own = root.table("identity").pairs("extensions");
    let observes = |rule: &AccessRuleSettings| {
        rule.observe || (rule.action == RuleAction::Refuse && root.switch("access_observe"))
    };
    for (index, (section, rule)) in sections.iter().zip(rules).enumerate() {
        let mut earlier = rules[..index].iter().filter(|earlier| !observes(earlier));
        let Some(earlier) = earlier.find(|earlier| holds_wherever(earlier, rule, &own)) else {
            continue;
        };
        let message = format!(
            "this rule is never asked: \"{}\" before it holds wherever it would, and the first that holds decides",
            earlier.name
        );
        let problem = section.warning("name", message);
        problems.push(problem.help("put it before that one, or take it out"));
    }
}

/// Whether `earlier` holds for every request for which `later` does. Networks and names within others are not looked for.
fn holds_wherever(
    earlier: &AccessRuleSettings,
    later: &AccessRuleSettings,
    own: &[(String, String)],
) -> bool {
    let has_extension = |(name, value): &(String, String)| {
        let mut extensions = later.extension.iter();
        extensions.any(|(other, wanted)| {
            oid_of(other, own) == oid_of(name, own) && (value == wanted || value == "*")
        })
    };
    // What cannot be read for certain meets a rule that refuses, and none that allows.
    let reads_alike = earlier.extension.is_empty()
        || earlier.action == RuleAction::Refuse
        || later.action == RuleAction::Allow;
    within(&later.class, &earlier.class)
        && within(&later.route, &earlier.route)
        && within(&later.source, &earlier.source)
        && names_within(&later.certname, &earlier.certname)
        && within(&later.issuer, &earlier.issuer)
        && earlier.extension.iter().all(has_extension)
        && reads_alike
}

fn rule(section: &Section<'_>) -> Option<AccessRuleSettings> {
    Some(AccessRuleSettings {
        name: section.text("name")?,
        action: match section.text("action")?.as_str() {
            "allow" => RuleAction::Allow,
            _ => RuleAction::Refuse,
        },
        class: section
            .texts("class")
            .iter()
            .filter_map(|word| word.parse().ok())
            .collect(),
        route: section.texts("route"),
        source: section.texts("source"),
        certname: section.texts("certname"),
        issuer: section.texts("issuer"),
        extension: section.pairs("extension"),
        observe: section.switch("observe"),
    })
}

/// Whether one of the alternatives of `earlier` holds wherever one of `later` does; none at all is no condition.
pub(crate) fn within<T: PartialEq>(later: &[T], earlier: &[T]) -> bool {
    earlier.is_empty() || (!later.is_empty() && later.iter().all(|one| earlier.contains(one)))
}

/// The same of certnames, where `*` is everybody who has one.
pub(crate) fn names_within(later: &[String], earlier: &[String]) -> bool {
    let any_name = earlier.iter().any(|name| name == "*") && !later.is_empty();
    any_name || within(later, earlier)
}

/// A list or a table without an element would hold for every client.
fn empty_conditions(section: &Section<'_>, problems: &mut Vec<Problem>) {
    for key in ["certname", "issuer", "source", "route", "class"] {
        if section.is_empty_list(key) {
            let problem = section.error(
                key,
                "an empty list, which reads as nobody and means anybody",
            );
            problems.push(problem.expected("at least one element, or no such key"));
        }
    }
    if section.is_empty_table("extension") {
        let problem = section.error("extension", "an empty table, which is no condition");
        problems.push(problem.expected("at least one name with its value, or no such key"));
    }
}

fn known_extensions(section: &Section<'_>, own: &[(String, String)], problems: &mut Vec<Problem>) {
    for (name, _) in section.pairs("extension") {
        if oid_of(&name, own).is_some() {
            continue;
        }
        let mut known: Vec<&str> = extension_names().collect();
        known.extend(own.iter().map(|(name, _)| name.as_str()));
        let problem = section.error("extension", format!("no extension is called \"{name}\""));
        problems.push(match closest(&name, known.into_iter()) {
            Some(close) => problem.help(format!("did you mean \"{close}\"?")),
            None => problem.help("names beside Puppet's own stand in [identity.extensions]"),
        });
    }
}
