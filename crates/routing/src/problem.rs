//! Problems in the settings of routes and access rules.

/// A problem in the settings that prevents a table from being built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {message}")]
pub struct RouteProblem {
    /// Index of the route among the configured routes. `None` if the problem is not in a route.
    pub route: Option<usize>,
    /// Index of the access rule. `None` if the problem is not in a rule.
    pub rule: Option<usize>,
    /// The key in the table of the route or the rule. If the problem is in neither, the key in the whole file.
    pub key: &'static str,
    /// What is wrong with it.
    pub message: String,
}

impl RouteProblem {
    pub(crate) fn of_route(index: usize, key: &'static str, message: String) -> Self {
        Self {
            route: Some(index),
            rule: None,
            key,
            message,
        }
    }

    pub(crate) fn of_rule(index: usize, key: &'static str, message: String) -> Self {
        Self {
            route: None,
            rule: Some(index),
            key,
            message,
        }
    }
}

pub(crate) fn or_report<T, E: ToString>(
    result: Result<T, E>,
    key: &'static str,
    report: &mut impl FnMut(&'static str, String),
) -> Option<T> {
    result.map_err(|error| report(key, error.to_string())).ok()
}

/// Returns the valid ones of `results`, and reports the others.
pub(crate) fn valid<T, E: ToString>(
    results: impl Iterator<Item = Result<T, E>>,
    key: &'static str,
    report: &mut impl FnMut(&'static str, String),
) -> Vec<T> {
    results
        .filter_map(|result| or_report(result, key, report))
        .collect()
}
