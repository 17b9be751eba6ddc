//! Agent checks: a program on a member's host reports the state of the member, in one line of plain text.

use std::time::SystemTime;

use balancing::settings::AgentCheckSettings;
use proxy::{Generation, Shared};
use tokio::time::sleep;

use crate::probed_member::ProbedMember;

/// Queries the agent of one member at each interval.
pub(crate) async fn query_at_intervals(probed: ProbedMember, settings: AgentCheckSettings) {
    let ProbedMember {
        member: state,
        connector,
        shared,
        ..
    } = probed;
    let (pool, address) = (state.pool(), state.address());
    for turn in 0u64.. {
        let answer = upstream::agent_check(&connector, settings.port).await;
        let before = state.agent_state();
        let read = answer
            .map_err(|error| error.to_string())
            .and_then(|answer| {
                let shown = printable(&answer);
                let after = before.after(&answer);
                after
                    .map(|after| (after, shown.clone()))
                    .ok_or_else(|| format!("`{shown}` is not an answer"))
            });
        let now = SystemTime::now();
        match read {
            Ok((after, shown)) => {
                shared
                    .members
                    .agent_answered(pool, address, Ok(shown.clone()), now);
                if after != before {
                    state.set_agent_state(after, shared.now());
                    tracing::warn!(%pool, member = %address, answer = shown, "agent check changed the member");
                    shared.assess_pool(pool);
                }
            }
            Err(why) => {
                if shared
                    .members
                    .agent_answered(pool, address, Err(why.clone()), now)
                {
                    tracing::warn!(%pool, member = %address, cause = why, "agent check failed; the state of the member does not change");
                }
            }
        }
        sleep(settings.wait(state.id(), turn)).await;
    }
}

/// Undoes the changes of earlier agent checks at members whose pool has no agent check now.
pub(crate) fn forget(generation: &Generation, shared: &Shared) {
    for runtime in generation.pools.iter() {
        if runtime.rules.guards.agent_check.is_some() {
            continue;
        }
        for entry in runtime.pool.entries() {
            if entry.member.agent_state() != balancing::AgentState::default() {
                entry
                    .member
                    .set_agent_state(balancing::AgentState::default(), shared.now());
                shared.assess_pool(runtime.pool.name());
            }
        }
    }
}

fn printable(answer: &[u8]) -> String {
    let text = String::from_utf8_lossy(answer);
    let line = text.lines().next().unwrap_or_default();
    upstream::printable(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_with_control_characters_is_printable_in_a_log() {
        let hostile = "\u{1b}[2Jdrain\u{202e}up\nup".as_bytes();
        assert_eq!(printable(hostile), "[2Jdrain?up");
        assert_eq!(printable(b"up\xff"), "up?");
        assert_eq!(printable(&[b'a'; 300]).len(), 64);
    }
}
