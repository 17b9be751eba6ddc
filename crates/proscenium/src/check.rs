//! The command `check`: tests what a start would do, prints the result as text or JSON, and sets the exit code.

use anyhow::Context;
use config::{ConfigReport, ProblemSeverity};
use lifecycle::{CheckOutcome, CheckResult};
use serde::Serialize;

use crate::{
    account,
    arguments::{Arguments, Check},
    exit_codes::{CONFIGURATION, UNAVAILABLE},
    failure::Failure,
    output,
    verbs::options,
};

/// Runs the steps of a start without listening, and prints the result.
pub(crate) fn check(arguments: &Arguments, check: &Check) -> Result<(), Failure> {
    if let Some(user) = &check.user {
        account::become_user(user)?;
    }
    let checked = lifecycle::check(&options(arguments, &check.agent), check.files_only);
    let result = Answer::of(&checked, check.strict);
    if arguments.json {
        let json = Json::new(&checked, result);
        output::print(&serde_json::to_string_pretty(&json).context("an answer is JSON")?)?;
    } else {
        if !checked.report.problems.is_empty() {
            output::print_error(checked.report.render(output::colour()).trim_end());
        }
        for fact in &checked.facts {
            output::print(fact)?;
        }
        if result == Answer::Good {
            output::print(&format!("{}: good", arguments.config.display()))?;
        }
    }
    match result {
        Answer::Good => Ok(()),
        Answer::Unavailable => Err(Failure::Found(UNAVAILABLE)),
        Answer::Refused => Err(Failure::Found(CONFIGURATION)),
    }
}

/// The result in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Answer {
    Good,
    Unavailable,
    Refused,
}

impl Answer {
    fn of(checked: &CheckResult, strict: bool) -> Self {
        match checked.outcome {
            CheckOutcome::Refused => Self::Refused,
            _ if strict && checked.report.count(ProblemSeverity::Warning) > 0 => Self::Refused,
            CheckOutcome::Unavailable => Self::Unavailable,
            CheckOutcome::Good => Self::Good,
        }
    }
}

#[derive(Serialize)]
struct Json<'a> {
    result: Answer,
    file: &'a str,
    problems: Vec<ProblemJson<'a>>,
    facts: &'a [String],
}

#[derive(Serialize)]
struct ProblemJson<'a> {
    severity: ProblemSeverity,
    /// Empty if the problem is not about a key.
    key: &'a str,
    file: &'a str,
    /// Counted from 1; null if the file does not mention the key.
    line: Option<usize>,
    column: Option<usize>,
    message: &'a str,
    expected: Option<&'a str>,
    help: &'a [String],
}

impl<'a> Json<'a> {
    fn new(checked: &'a CheckResult, result: Answer) -> Self {
        let ConfigReport { file, problems, .. } = &checked.report;
        let problems = problems.iter().map(|problem| ProblemJson {
            severity: problem.severity,
            key: &problem.key,
            file,
            line: problem.place.as_ref().map(|place| place.line),
            column: problem.place.as_ref().map(|place| place.column),
            message: &problem.message,
            expected: problem.expected.as_deref(),
            help: &problem.help,
        });
        Self {
            result,
            file,
            problems: problems.collect(),
            facts: &checked.facts,
        }
    }
}
