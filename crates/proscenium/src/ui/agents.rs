//! The search for an agent: names that match, what the proxy knows about one, and its last runs from the access log.

use std::sync::Arc;

use admin::WhoRequest;
use axum::{body::Bytes, extract::State, response::Response};
use serde::Deserialize;
use serde_json::json;
use tokio::task::spawn_blocking;

use super::{
    Page,
    endpoints::{answer, document, json_response},
};
use crate::{failure::Failure, trace::recorded_runs};

/// Maximum number of agents that a search shows.
const MATCHES_MAX: usize = 20;
/// How much of the end of the access log a search reads.
const LOG_BYTES_MAX: u64 = 64 << 20;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Search {
    certname: String,
}

/// Agents whose certname contains the words.
pub(super) async fn search(State(page): State<Arc<Page>>, body: Bytes) -> Response {
    let wanted: Search = match document(&body) {
        Ok(wanted) => wanted,
        Err(refused) => return *refused,
    };
    let wanted = wanted.certname.to_lowercase();
    let found = page.client.agents().await.map(|known| {
        let seen = known.seen;
        let name = |agent: &admin::AgentStatus| agent.certificate.certname.clone();
        let agents = known.agents.into_iter();
        let matching =
            agents.filter(|agent| name(agent).is_some_and(|name| name.contains(&wanted)));
        let mut agents: Vec<_> = matching.collect();
        // The shortest name comes first: an exact match, if there is one.
        agents.sort_by_key(|agent| name(agent).map(|name| (name.len(), name)));
        let matches = agents.len();
        agents.truncate(MATCHES_MAX);
        json!({"seen": seen, "matches": matches, "agents": agents})
    });
    answer(found)
}

/// What the proxy knows about an agent.
pub(super) async fn who(State(page): State<Arc<Page>>, body: Bytes) -> Response {
    match document::<Search>(&body) {
        Ok(wanted) => {
            let request = WhoRequest {
                certname: Some(wanted.certname),
                ..WhoRequest::default()
            };
            answer(page.client.who(&request).await)
        }
        Err(refused) => *refused,
    }
}

/// The last runs of an agent, or why they cannot be read.
pub(super) async fn runs(State(page): State<Arc<Page>>, body: Bytes) -> Response {
    let wanted: Search = match document(&body) {
        Ok(wanted) => wanted,
        Err(refused) => return *refused,
    };
    let config = page.config.clone();
    let read =
        spawn_blocking(move || recorded_runs(&config, None, LOG_BYTES_MAX, &wanted.certname));
    let problem = match read.await {
        Ok(Ok((log, runs))) => return json_response(&json!({"log": log, "runs": runs})),
        Ok(Err(Failure::Failed(error))) => format!("{error:#}"),
        Ok(Err(_)) | Err(_) => "the access log cannot be read".to_owned(),
    };
    json_response(&json!({"runs": [], "problem": problem}))
}
