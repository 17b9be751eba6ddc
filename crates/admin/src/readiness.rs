//! Whether a load balancer should send agents to this proxy.

use crate::ProcessPhase;

/// Why a load balancer should send agents to another proxy. `available` has the pools, with the number of their available
/// members. `is_starting` says whether the proxy still waits for the records of the fleet.
pub fn unready<'a>(
    phase: ProcessPhase,
    available: impl IntoIterator<Item = (&'a str, u64)>,
    is_starting: bool,
) -> Option<&'static str> {
    match phase {
        ProcessPhase::Starting => Some("starting"),
        ProcessPhase::Draining => Some("draining"),
        // Without compilers an agent's run fails. Without a CA server, only enrolment fails, also at another proxy.
        ProcessPhase::Serving
            if available
                .into_iter()
                .any(|(pool, count)| pool == "compilers" && count == 0) =>
        {
            Some("no compiler is available")
        }
        ProcessPhase::Serving => is_starting.then_some("waiting for the records of the fleet"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_ready_while_it_serves_and_a_compiler_is_available() {
        let serving = ProcessPhase::Serving;
        for (phase, pool, is_starting, expected) in [
            (serving, ("compilers", 1), false, None),
            (
                serving,
                ("compilers", 0),
                false,
                Some("no compiler is available"),
            ),
            (serving, ("files", 0), false, None),
            (
                serving,
                ("compilers", 1),
                true,
                Some("waiting for the records of the fleet"),
            ),
            (
                ProcessPhase::Draining,
                ("compilers", 1),
                false,
                Some("draining"),
            ),
            (
                ProcessPhase::Starting,
                ("compilers", 1),
                false,
                Some("starting"),
            ),
        ] {
            assert_eq!(unready(phase, [pool], is_starting), expected);
        }
    }
}
