//! Copies of the CA's documents, from which the proxy answers clients. The active trust store verifies them and each fetch
//! confirms them. The proxy discards them when the trust store no longer verifies them.
//!
//! The copy of the CRLs comes from the fetch that activates them. The CA's certificates are fetched separately, at the same
//! interval.

use std::{
    sync::Arc,
    time::{Instant, SystemTime},
};

use bytes::Bytes;
use http::HeaderValue;
use pki::{CrlComparison, Fingerprint, Named, TrustStore};
use proxy::EdgeCopy;
use routing::Document;
use state::supervise::blocking;
use telemetry::Alarm;
use upstream::FetchedDocument;

use crate::{
    TrustKeeper,
    ca_requests::{CaMembers, CaRequest, CaResponse, FetchScope},
    conditional_request::ConditionalRequest,
};

/// The path of a CA's certificates.
const PATH: &str = "/puppet-ca/v1/certificate/ca";
/// Maximum size of the CA's certificates. A hundred CAs need a tenth of it.
const BODY_BYTES_MAX: u64 = 1 << 20;
/// Digits of a document's digest in its `ETag`, enough to be unique.
const DIGITS: usize = 32;

impl TrustKeeper {
    /// Whether the proxy answers requests for CA documents from copies.
    pub(crate) fn answers_from_copies(&self) -> bool {
        self.active.generation().ca.edge_answers
    }

    /// Discards copies that the active trust store does not verify, and all copies if the configuration turns copies off.
    pub(crate) async fn verify_copies(&self) {
        let trust = Arc::clone(&self.active.generation().trust);
        for document in Document::ALL {
            let Some(copy) = self.active.shared().edge.copy(document) else {
                continue;
            };
            if !self.answers_from_copies() {
                self.active.shared().edge.put(document, None);
            } else if copy.verified_by != identity_of(&trust) {
                let (trust, body) = (Arc::clone(&trust), copy.body.clone());
                let verified_by = identity_of(&trust);
                let good = blocking("verify-copy", move || is_good(&trust, document, &body)).await;
                let verified = EdgeCopy {
                    verified_by,
                    ..(*copy).clone()
                };
                let kept = good.unwrap_or(false).then_some(verified);
                if kept.is_none() {
                    tracing::warn!(
                        document = document.as_str(),
                        "discarded the copy of a CA document: the active trust store does not verify it"
                    );
                }
                // If a fetch has replaced the copy meanwhile, the new copy stays.
                self.active.shared().edge.replace(document, &copy, kept);
            }
        }
    }

    /// Fetches the CA's certificates and keeps them as a copy if the proxy trusts the same CAs.
    pub(crate) async fn fetch_ca_certificates(&self, scope: FetchScope) {
        let mut condition = self.ca_fetch.lock().await;
        let Some(fetch) = self
            .fetch_settings()
            .filter(|_| self.active.is_serving() && self.answers_from_copies())
        else {
            condition.forget();
            self.active.alarms().clear(Alarm::CaCopy, "");
            return;
        };
        if scope == FetchScope::Whole || self.active.shared().edge.copy(Document::Ca).is_none() {
            condition.forget();
        }
        let request = CaRequest {
            path: PATH,
            bytes_max: BODY_BYTES_MAX,
            fetch,
        };
        let outcome = self.fetch_cas_from_members(request, &mut condition).await;
        let alarms = self.active.alarms();
        match outcome {
            Ok(()) => alarms.clear(Alarm::CaCopy, ""),
            Err(why) => {
                let message =
                    format!("cannot fetch a current copy of the CA's certificates: {why}");
                alarms.raise(Alarm::CaCopy, "", message, SystemTime::now());
            }
        }
    }

    /// Uses the first usable response.
    ///
    /// # Errors
    /// No response is usable: what is wrong with each.
    async fn fetch_cas_from_members(
        &self,
        request: CaRequest,
        condition: &mut ConditionalRequest,
    ) -> Result<(), String> {
        let mut failures = Vec::new();
        let mut members = CaMembers::of(self.active.generation())?;
        while let Some(response) = members.request_next(request, condition).await {
            match response.and_then(|response| self.use_ca_certificates(response, condition)) {
                Ok(()) => return Ok(()),
                Err(why) => failures.push(why),
            }
        }
        condition.forget();
        Err(failures.join("; "))
    }

    fn use_ca_certificates(
        &self,
        response: CaResponse,
        condition: &mut ConditionalRequest,
    ) -> Result<(), String> {
        let CaResponse {
            member,
            requested,
            requested_at,
            mut document,
        } = response;
        let Some(body) = document.body.take() else {
            condition.not_modified(&document, requested);
            self.active
                .shared()
                .edge
                .confirm(Document::Ca, requested_at);
            return Ok(());
        };
        let trust = Arc::clone(&self.active.generation().trust);
        if let Err(why) = trust.check_cas(&body) {
            self.active.shared().edge.outdate(Document::Ca);
            return Err(format!(
                "the CA certificates from {member} cannot be used: {why}"
            ));
        }
        condition.fetched_whole(&member, &document, requested, Instant::now());
        self.keep_copy(Document::Ca, body.into(), (&document, requested_at), &trust);
        Ok(())
    }

    /// Keeps a copy of a document that this trust store has verified.
    pub(crate) fn keep_copy(
        &self,
        document: Document,
        body: Bytes,
        (fetched, requested_at): (&FetchedDocument, Instant),
        trust: &TrustStore,
    ) {
        let digest = Fingerprint::of([&*body]).to_string();
        let etag = HeaderValue::try_from(format!("\"{}\"", &digest[..DIGITS]));
        let etag = etag.expect("hexadecimal digits");
        let before = self.active.shared().edge.copy(document);
        let same = before.filter(|before| before.etag == etag);
        let copy = EdgeCopy {
            body,
            etag,
            modified: fetched.last_modified.clone(),
            taken: same.map_or_else(SystemTime::now, |same| same.taken),
            confirmed: requested_at,
            verified_by: identity_of(trust),
            is_current: true,
        };
        self.active.shared().edge.put(document, Some(copy));
    }
}

fn identity_of(trust: &TrustStore) -> (u64, Fingerprint) {
    (trust.generation(), trust.cas())
}

/// Whether this trust store verifies a document. It blocks: a long CRL takes a second.
fn is_good(trust: &TrustStore, document: Document, body: &Bytes) -> bool {
    match document {
        Document::Ca => trust.check_cas(body).is_ok(),
        Document::Crl => {
            let examined = trust.examine(Named::new("copy", body.to_vec()));
            examined.is_ok_and(|examined| {
                let is_usable = |comparison: &CrlComparison| {
                    matches!(comparison, CrlComparison::Active | CrlComparison::Newer)
                };
                examined.unusable.is_empty()
                    && !examined.crls.is_empty()
                    && examined
                        .crls
                        .iter()
                        .all(|(_, comparison)| is_usable(comparison))
            })
        }
    }
}
