//! Checks the pool names in listeners and routes. An unknown pool is an error with a suggestion.

use crate::{closest::closest, report::Problem, schema::Key, section::Section};

/// Reports a pool that is not in the file.
pub(crate) fn check(
    section: &Section<'_>,
    key: &Key,
    pools: &[String],
    problems: &mut Vec<Problem>,
) {
    let Some(pool) = section.text(key).filter(|pool| !pools.contains(pool)) else {
        return;
    };
    let known = || pools.iter().map(String::as_str);
    let problem = section
        .error(key, format!("no pool `{pool}`"))
        .expected("the name of a pool");
    problems.push(match closest(&pool, known()) {
        Some(close) => problem.help(format!("did you mean \"{close}\"?")),
        None if pools.is_empty() => {
            problem.help(format!("write [pools.{pool}] with its `members`"))
        }
        None => problem.help(format!(
            "known pools: {}",
            known().collect::<Vec<_>>().join(", ")
        )),
    });
}
