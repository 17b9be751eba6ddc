//! Copies of the CA's documents, as requests are answered from: fetched, verified, confirmed, and dropped when the trust
//! that they were verified by is no more.
//!
//! Lists come with the fetch that puts them in force; the CA's certificates are asked for beside it, as often.

use std::{
    sync::Arc,
    time::{Instant, SystemTime},
};

use bytes::Bytes;
use http::HeaderValue;
use pki::{CrlComparison, Fingerprint, Named, TrustStore};
use proxy::EdgeCopy;
use routing::Document;
use telemetry::Alarm;
use tokio::task::spawn_blocking;

use crate::{
    app::App,
    trust::{
        ca_requests::{Answered, Members, Wanted},
        conditional_request::Validator,
        crl_fetch::FetchScope,
    },
};

/// Where a CA has its certificates.
const PATH: &str = "/puppet-ca/v1/certificate/ca";
/// Most bytes of them: a hundred CAs have a tenth of that.
const BODY_BYTES_MAX: u64 = 1 << 20;
/// Digits of a document's digest in its tag: enough that no two are alike.
const DIGITS: usize = 32;

/// How the copies stand.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    /// Held by the fetch that runs.
    turn: tokio::sync::Mutex<Validator>,
}

impl App {
    /// Whether requests are answered from copies.
    pub(crate) fn answers_from_copies(&self) -> bool {
        self.generation().ca.edge_answers
    }

    /// Drops what the trust in force would not let be answered with any more, and all of it where it is not wanted.
    pub(crate) async fn judge_copies(&self) {
        let trust = Arc::clone(&self.generation().trust);
        for document in Document::ALL {
            let Some(copy) = self.shared.edge.copy(document) else {
                continue;
            };
            if !self.answers_from_copies() {
                self.shared.edge.put(document, None);
            } else if copy.verified_by != identity_of(&trust) {
                let (trust, body) = (Arc::clone(&trust), copy.body.clone());
                let verified_by = identity_of(&trust);
                let good = spawn_blocking(move || is_good(&trust, document, &body)).await;
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
                // Unless a fetch has brought another meanwhile.
                self.shared.edge.replace(document, &copy, kept);
            }
        }
    }

    /// Asks the CA for its certificates and keeps them to answer with, if they are those that are trusted here.
    pub(crate) async fn fetch_cas(&self, asked: FetchScope) {
        let mut validator = self.copies.turn.lock().await;
        let Some(fetch) = self
            .fetch_settings()
            .filter(|_| self.is_serving() && self.answers_from_copies())
        else {
            validator.forget();
            self.lasting.metrics.alarms.clear(Alarm::CaCopy, "");
            return;
        };
        if asked == FetchScope::Whole || self.shared.edge.copy(Document::Ca).is_none() {
            validator.forget();
        }
        let wanted = Wanted {
            path: PATH,
            bytes_max: BODY_BYTES_MAX,
            fetch,
        };
        let outcome = self.fetch_cas_from_members(wanted, &mut validator).await;
        let alarms = &self.lasting.metrics.alarms;
        match outcome {
            Ok(()) => alarms.clear(Alarm::CaCopy, ""),
            Err(why) => {
                let message =
                    format!("cannot fetch a current copy of the CA's certificates: {why}");
                alarms.raise(Alarm::CaCopy, "", message, SystemTime::now());
            }
        }
    }

    /// Takes the first answer that is of use; otherwise what is wrong with each.
    async fn fetch_cas_from_members(
        &self,
        wanted: Wanted,
        validator: &mut Validator,
    ) -> Result<(), String> {
        let mut stories = Vec::new();
        let mut members = Members::of(self)?;
        while let Some(answered) = members.ask_next(wanted, validator).await {
            match answered.and_then(|answered| self.judge_cas(answered, validator)) {
                Ok(()) => return Ok(()),
                Err(why) => stories.push(why),
            }
        }
        validator.forget();
        Err(stories.join("; "))
    }

    fn judge_cas(&self, answered: Answered, validator: &mut Validator) -> Result<(), String> {
        let Answered {
            member,
            asked,
            asked_at,
            mut answer,
        } = answered;
        let Some(body) = answer.body.take() else {
            validator.stays(&answer, asked);
            self.shared.edge.confirm(Document::Ca, asked_at);
            return Ok(());
        };
        let trust = Arc::clone(&self.generation().trust);
        if let Err(why) = trust.check_cas(&body) {
            self.shared.edge.outdate(Document::Ca);
            return Err(format!(
                "the CA certificates from {member} cannot be used: {why}"
            ));
        }
        validator.came(&member, &answer, asked, Instant::now());
        self.keep_copy(Document::Ca, body.into(), (&answer, asked_at), &trust);
        Ok(())
    }

    /// Keeps a document that was verified by this trust, to answer with.
    pub(crate) fn keep_copy(
        &self,
        document: Document,
        body: Bytes,
        (answer, asked_at): (&upstream::FetchedDocument, Instant),
        trust: &TrustStore,
    ) {
        let digest = Fingerprint::of([&*body]).to_string();
        let etag = HeaderValue::try_from(format!("\"{}\"", &digest[..DIGITS]));
        let etag = etag.expect("hexadecimal digits");
        let before = self.shared.edge.copy(document);
        let same = before.filter(|before| before.etag == etag);
        let copy = EdgeCopy {
            body,
            etag,
            modified: answer.last_modified.clone(),
            taken: same.map_or_else(SystemTime::now, |same| same.taken),
            confirmed: asked_at,
            verified_by: identity_of(trust),
            is_current: true,
        };
        self.shared.edge.put(document, Some(copy));
    }
}

fn identity_of(trust: &TrustStore) -> (u64, Fingerprint) {
    (trust.generation(), trust.cas())
}

/// Whether a document may be answered with by this trust. Long lists take their time.
fn is_good(trust: &TrustStore, document: Document, body: &Bytes) -> bool {
    match document {
        Document::Ca => trust.check_cas(body).is_ok(),
        Document::Crl => {
            let examined = trust.examine(Named::new("copy", body.to_vec()));
            examined.is_ok_and(|examined| {
                let holds = |finding: &CrlComparison| {
                    matches!(finding, CrlComparison::Active | CrlComparison::Newer)
                };
                examined.unusable.is_empty()
                    && !examined.crls.is_empty()
                    && examined.crls.iter().all(|(_, finding)| holds(finding))
            })
        }
    }
}
