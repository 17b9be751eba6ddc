//! What is generated from the declarations of alarms: docs/operating/alarms.md, a group of alert rules, and its tests.

use std::fmt::Write as _;

use telemetry::{Alarm, CauseCondition, CauseLink, Urgency};

use crate::dist::INSTALLED;

/// The page.
pub(super) fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    page.push_str("\n| alarm | severity | meaning |\n| --- | --- | --- |\n");
    for alarm in Alarm::ALL {
        let (word, meaning) = (alarm.as_str(), alarm.meaning());
        let severity: Vec<_> = severities(*alarm).map(Urgency::as_str).collect();
        let severity = severity.join(" or ");
        let _ = writeln!(page, "| [`{word}`](#{word}) | {severity} | {meaning} |");
    }
    Alarm::ALL
        .iter()
        .for_each(|alarm| page.push_str(&section(*alarm)));
    page
}

fn section(alarm: Alarm) -> String {
    let word = alarm.as_str();
    let mut section = format!("\n## {word}\n\n{}\n\n", alarm.meaning());
    let mut item = |name: &str, text: &str| {
        let _ = writeln!(section, "- **{name}**: {text}");
    };
    let mut severity = alarm.urgency().as_str().to_owned();
    if let Some((other, when)) = alarm.other_urgency() {
        let _ = write!(severity, "; {} {when}", other.as_str());
    }
    item("Severity", &severity);
    item("What agents notice", alarm.effect());
    item("First step", alarm.first_step());
    let links = |links: Vec<(Alarm, String)>| {
        let links = links.into_iter().map(|(alarm, when)| {
            let word = alarm.as_str();
            format!("[`{word}`](#{word}){when}")
        });
        links.collect::<Vec<_>>().join(", ")
    };
    let of = |is_of: &dyn Fn(&CauseLink) -> Option<Alarm>| -> Vec<_> {
        let all = CauseLink::ALL.iter();
        all.filter_map(|link| Some((is_of(link)?, condition(link))))
            .collect()
    };
    let follows = of(&|link| (link.cause == alarm).then_some(link.alarm));
    if !follows.is_empty() {
        item("Possible consequences", &links(follows));
    }
    let causes = of(&|link| (link.alarm == alarm).then_some(link.cause));
    if !causes.is_empty() {
        item("Possible causes", &links(causes));
    }
    let own = format!("{PAGE}#{word}");
    if alarm.runbook() != own {
        let runbook = alarm.runbook();
        let link = match runbook.strip_prefix("operating/") {
            Some(neighbour) => neighbour.to_owned(),
            None => format!("../{runbook}"),
        };
        item("Read", &format!("[{runbook}]({link})"));
    }
    section
}

/// Which of two linked alarms are linked, as words after the name of one of them.
fn condition(link: &CauseLink) -> String {
    match link.condition {
        CauseCondition::CauseIsAbout("") | CauseCondition::Noted => String::new(),
        CauseCondition::CauseIsAbout(about) => format!(" (`{}:{about}`)", link.cause.as_str()),
        CauseCondition::SameObject => " (of the same pool)".to_owned(),
    }
}

/// The severities that alarms of this kind can be raised with.
fn severities(alarm: Alarm) -> impl Iterator<Item = Urgency> {
    let other = alarm.other_urgency().map(|(other, _)| other);
    [alarm.urgency()].into_iter().chain(other)
}

/// The alert rules with the generated group at their end.
pub(super) fn with_rules(rules: &str) -> String {
    let (by_hand, _) = rules.split_once(GROUP).unwrap_or((rules, ""));
    let mut rules = format!("{by_hand}{GROUP}");
    for alarm in Alarm::ALL {
        let (name, hold) = (alert_name(*alarm), hold(*alarm));
        let labels = labels(*alarm);
        let expression = expression(*alarm);
        let _ = write!(
            rules,
            "      - alert: {name}\n        expr: {expression}\n        for: {hold}\n{labels}        annotations:\n"
        );
        for (name, text) in annotations(*alarm) {
            let _ = writeln!(rules, "          {name}: '{}'", text.replace('\'', "''"));
        }
    }
    rules
}

/// The annotations of the alert about an alarm, as templates of Prometheus.
fn annotations(alarm: Alarm) -> [(&'static str, String); 4] {
    let (mut word, meaning) = (alarm.as_str().to_owned(), alarm.meaning());
    if alarm == Alarm::PoolUnavailable {
        word.push_str(":{{ $labels.pool }}");
    }
    let instance = "{{ $labels.instance }}";
    let [begin, end] = BASE;
    let runbook = format!("{begin}{INSTALLED}{end}/{}", alarm.runbook());
    let cause = if has_causes(alarm) {
        cause_template(alarm)
    } else {
        String::new()
    };
    [
        ("summary", format!("{word} on {instance}: {meaning}{cause}")),
        ("effect", alarm.effect().to_owned()),
        ("first_step", alarm.first_step().to_owned()),
        ("runbook", runbook),
    ]
}

/// The tests of the generated rules: no alert while no alarm is active, and one for each kind and severity, also if the cause of
/// an alarm comes and goes.
pub(super) fn rule_tests() -> String {
    let mut tests = TESTS.to_owned();
    // Values of the series without a cause and of that with one; whether the last ones have a cause.
    for (name, alone, caused, is_caused) in [
        ("quiet", "0x1500", "0x1500", false),
        ("every alarm is active", "1x1500", "0x1500", false),
        (
            "every alarm follows from another one",
            "0x1500",
            "1x1500",
            true,
        ),
        ("its cause comes and goes", "1 0 ", "0 1 ", true),
    ] {
        let repeated = |values: &str| match values.ends_with(' ') {
            true => values.repeat(721).trim_end().to_owned(),
            false => values.to_owned(),
        };
        let (alone, caused) = (repeated(alone), repeated(caused));
        let _ = write!(
            tests,
            "  - interval: 1m\n    name: {name}\n    input_series:\n"
        );
        for (alarm, severity) in all() {
            let (word, severity) = (alarm.as_str(), severity.as_str());
            let mut add = |series: &str, values: &str| {
                let _ = writeln!(
                    tests,
                    "      - {{series: '{series}', values: \"{values}\"}}"
                );
            };
            if alarm == Alarm::PoolUnavailable {
                let value = u8::from(name == "quiet");
                add(
                    "proscenium_pool_members_available{pool=\"compilers\", instance=\"p1\"}",
                    &format!("{value}x1500"),
                );
                continue;
            }
            let series = |cause: &str| {
                format!(
                    "proscenium_alarms{{alarm=\"{word}\", severity=\"{severity}\", caused_by=\"{cause}\", instance=\"p1\"}}"
                )
            };
            if has_causes(alarm) {
                add(&series(""), &alone);
                add(&series(CAUSE), &caused);
            } else {
                add(
                    &series(""),
                    if name == "quiet" { "0x1500" } else { "1x1500" },
                );
            }
        }
        tests.push_str("    alert_rule_test:\n");
        for alarm in Alarm::ALL {
            let alert = alert_name(*alarm);
            if name == "quiet" {
                let _ = writeln!(tests, "      - {{eval_time: 1441m, alertname: {alert}}}");
            } else {
                tests.push_str(&expected_alerts(*alarm, is_caused));
            }
        }
    }
    tests
}

/// The alerts about active alarms of a kind, one for each severity.
fn expected_alerts(alarm: Alarm, is_caused: bool) -> String {
    let name = alert_name(alarm);
    let mut expected =
        format!("      - eval_time: 1441m\n        alertname: {name}\n        exp_alerts:\n");
    for severity in severities(alarm).map(Urgency::as_str) {
        let about = match alarm {
            Alarm::PoolUnavailable => "pool: compilers".to_owned(),
            _ => format!("alarm: {}", alarm.as_str()),
        };
        let _ = write!(
            expected,
            "          - exp_labels: {{{about}, instance: p1, severity: {severity}}}\n            exp_annotations:\n"
        );
        for (name, text) in annotations(alarm) {
            // One series of each severity has a cause.
            let causes = severities(alarm).filter(|_| is_caused).count();
            let text = text.replace(
                &cause_template(alarm),
                &cause_sentence(CAUSE).repeat(causes),
            );
            let text = text.replace("{{ $labels.instance }}", "p1");
            let text = text.replace("{{ $labels.pool }}", "compilers");
            let text = BASE.iter().fold(text, |text, part| text.replace(part, ""));
            let text = text.replace('\'', "''");
            let _ = writeln!(expected, "              {name}: '{text}'");
        }
    }
    expected
}

/// A kind of alarm that others follow from, in the tests of the rules.
const CAUSE: &str = "clock-offset";

/// Every kind with each of its severities.
fn all() -> impl Iterator<Item = (Alarm, Urgency)> {
    let all = Alarm::ALL.iter();
    all.flat_map(|alarm| severities(*alarm).map(|severity| (*alarm, severity)))
}

/// `ProsceniumPoolUnavailable` for `pool-unavailable`.
fn alert_name(alarm: Alarm) -> String {
    let words = alarm.as_str().split('-').map(|word| {
        let (first, rest) = word.split_at(1);
        format!("{}{rest}", first.to_uppercase())
    });
    format!("Proscenium{}", words.collect::<String>())
}

/// Whether alarms of this kind can follow from another one. The alert about a pool has another gauge.
fn has_causes(alarm: Alarm) -> bool {
    alarm != Alarm::PoolUnavailable && CauseLink::ALL.iter().any(|link| link.alarm == alarm)
}

/// What the summary of an alert says if the alarm follows from another one.
fn cause_template(alarm: Alarm) -> String {
    let alarm = alarm.as_str();
    format!(
        "{{{{ range query (printf \"proscenium_alarms{{alarm='{alarm}', caused_by!='', instance='%s'}} > 0\" $labels.instance) }}}}{}{{{{ end }}}}",
        cause_sentence("{{ .Labels.caused_by }}")
    )
}

fn cause_sentence(cause: &str) -> String {
    format!(" It follows from {cause}: act on that alarm first.")
}

/// When an alarm has an alert.
fn expression(alarm: Alarm) -> String {
    let active = format!("proscenium_alarms{{alarm=\"{}\"}}", alarm.as_str());
    // The summary names the cause. As a label of the alert, a cause that comes and goes would begin the time of the alert again.
    let active = match has_causes(alarm) {
        true => format!("sum without (caused_by) ({active})"),
        false => active,
    };
    match alarm {
        // This gauge names the pool.
        Alarm::PoolUnavailable => "proscenium_pool_members_available == 0".to_owned(),
        // The proxy shows it only for a short time. It follows from no other alarm.
        Alarm::FleetStoreOlder => format!("max_over_time({active}[10m]) > 0"),
        _ => format!("{active} > 0"),
    }
}

/// The labels of an alert whose series has no severity.
fn labels(alarm: Alarm) -> String {
    match alarm {
        Alarm::PoolUnavailable => {
            let severity = alarm.urgency().as_str();
            format!("        labels: {{severity: {severity}}}\n")
        }
        _ => String::new(),
    }
}

/// How long an alarm must be active before its alert.
fn hold(alarm: Alarm) -> &'static str {
    match alarm {
        // The proxy clears the first two a minute after the last refusal, and the third after seconds.
        Alarm::QueueFull | Alarm::Descriptors | Alarm::FleetStoreOlder => "0m",
        // The operator who requested the reload or changed the settings gets time to finish the work.
        Alarm::RestartPending => "1d",
        Alarm::ReloadRefused => "10m",
        _ => "1m",
    }
}

const PAGE: &str = "operating/alarms.md";
/// The base of the links to runbooks: the installed pages, unless an external label of Prometheus names another place.
const BASE: [&str; 2] = [
    "{{ with $externalLabels.proscenium_docs }}{{ . }}{{ else }}",
    "{{ end }}",
];

const GROUP: &str = "  # Generated from crates/telemetry/src/alarms/kinds.rs by `cargo xtask reference`: edit there, not here. The label `severity`
  # is that of the alarm.
  - name: proscenium-alarms
    rules:
";

const TESTS: &str = "\
# Generated by `cargo xtask reference`: tests of the group proscenium-alarms, `promtool test rules proscenium.alarms.test.yml`.
rule_files: [proscenium.rules.yml]
evaluation_interval: 1m
tests:
";

const INTRODUCTION: &str = "\
# Alarms

<!-- Generated from crates/telemetry/src/alarms/kinds.rs by `cargo xtask reference`: edit there, not here. -->

An alarm is a condition that needs an operator.
`proscenium status` shows the active alarms with their times, what agents notice, the first step and the page to read.
Each is an event when it is raised, and one that begins with `cleared:` when it is cleared.
`proscenium_alarms` counts them by kind, severity and the kind of alarm that they follow from, and each kind has an [alert rule](monitoring.md#alerts).

| severity | meaning |
| --- | --- |
| `critical` | agents fail now, or will within days or at the next restart |
| `warning` | anything else that needs an operator |

An alarm that follows from another one is not cleared before its cause is: act on the cause first.
`proscenium status` and the page show it below its cause, and the admin API names the cause in `caused_by`.
A cause is at least as severe as what follows from it: a wrong clock is critical while it makes a pool unavailable.
Otherwise critical alarms come before warnings, and older alarms before newer ones.
";
