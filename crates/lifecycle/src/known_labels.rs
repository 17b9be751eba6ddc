//! Metric labels that are known before the first event, so that their series start at zero.

use admin::CrlFetchResult;
use identity::Reason;
use pki::CsrRule;
use routing::Document;
use telemetry::{KnownLabels, Metrics};

/// Creates the series of these labels.
pub fn start_at_zero(metrics: &Metrics) {
    let csr: Vec<_> = [CsrRule::Unreadable, CsrRule::Name]
        .into_iter()
        .chain(CsrRule::LIFTABLE)
        .map(CsrRule::reason)
        .collect();
    metrics.start_at_zero(&KnownLabels {
        verdict_reasons: &Reason::ALL.map(Reason::as_str),
        csr_reasons: &csr,
        refusal_reasons: &proxy::refusal_reasons(),
        crl_fetch_results: &FETCHES.map(CrlFetchResult::as_str),
        documents: &Document::ALL.map(Document::as_str),
    });
}

/// The results of a fetch that are counted.
const FETCHES: [CrlFetchResult; 4] = [
    CrlFetchResult::Applied,
    CrlFetchResult::Unchanged,
    CrlFetchResult::Shrunk,
    CrlFetchResult::Failed,
];
