//! Problems in the settings of routes and access rules.

/// Something in the settings that no table can be made of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {message}")]
pub struct RouteProblem {
    /// Index of the route among the configured ones; none where another is concerned.
    pub route: Option<usize>,
    /// Index of the rule of access; none where another is concerned.
    pub rule: Option<usize>,
    /// The setting, as it is called in the table of the route or the rule; of the whole file where there is neither.
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

pub(crate) fn or_report<T>(
    result: Result<T, String>,
    key: &'static str,
    report: &mut impl FnMut(&'static str, String),
) -> Option<T> {
    result.map_err(|message| report(key, message)).ok()
}
