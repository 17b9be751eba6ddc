//! The CA's certificate and CRLs, answered from the proxy's copies of what the CA returned.
//!
//! The code that fetches a copy verifies it first. The bytes are the CA's own. The `Age` field shows the client when the CA
//! last confirmed them.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::HeaderValue;
use http1::Fields;
use pki::Fingerprint;
use routing::{Document, ForwardPlan};

use crate::generation::Generation;

/// The copies, for all workers and generations.
#[derive(Debug, Default)]
pub struct Edge {
    ca: ArcSwapOption<EdgeCopy>,
    crl: ArcSwapOption<EdgeCopy>,
}

/// A document as the CA returned it.
#[derive(Clone, Debug)]
pub struct EdgeCopy {
    /// Its bytes.
    pub body: Bytes,
    /// The entity tag, which identifies exactly these bytes.
    pub etag: HeaderValue,
    /// Last-Modified, as the CA sent it.
    pub modified: Option<HeaderValue>,
    /// When the proxy first fetched these bytes. The CA's previous document is older than this.
    pub taken: SystemTime,
    /// When the CA last confirmed the document.
    pub confirmed: Instant,
    /// Generation of the trust store that verified the copy, and the fingerprint of that store's CAs.
    pub verified_by: (u64, Fingerprint),
    /// Whether the CA has no newer document, as far as the proxy knows.
    pub is_current: bool,
}

#[derive(Debug)]
pub(crate) struct EdgeAnswer {
    pub(crate) document: Document,
    pub(crate) copy: Arc<EdgeCopy>,
    /// Whether the client already has these bytes.
    pub(crate) unchanged: bool,
    pub(crate) age: Duration,
}

impl Edge {
    /// The copy of a document.
    pub fn copy(&self, document: Document) -> Option<Arc<EdgeCopy>> {
        self.slot(document).load_full()
    }

    /// Replaces the copy. `None` removes it.
    pub fn put(&self, document: Document, copy: Option<EdgeCopy>) {
        self.slot(document).store(copy.map(Arc::new));
    }

    /// Replaces the copy, unless it differs from `copy` because another one has been stored meanwhile.
    pub fn replace(&self, document: Document, copy: &Arc<EdgeCopy>, by: Option<EdgeCopy>) {
        self.slot(document)
            .compare_and_swap(&Some(Arc::clone(copy)), by.map(Arc::new));
    }

    /// Notes that the CA confirmed at this instant that the document has not changed.
    pub fn confirm(&self, document: Document, confirmed: Instant) {
        if let Some(copy) = self.copy(document).filter(|copy| copy.is_current) {
            self.put(
                document,
                Some(EdgeCopy {
                    confirmed,
                    ..(*copy).clone()
                }),
            );
        }
    }

    /// Notes that the CA has a newer document that cannot be used. The copy remains the last valid one, and its age
    /// grows.
    pub fn outdate(&self, document: Document) {
        if let Some(copy) = self.copy(document) {
            let is_current = false;
            self.put(
                document,
                Some(EdgeCopy {
                    is_current,
                    ..(*copy).clone()
                }),
            );
        }
    }

    fn slot(&self, document: Document) -> &ArcSwapOption<EdgeCopy> {
        match document {
            Document::Ca => &self.ca,
            Document::Crl => &self.crl,
        }
    }
}

/// The response from a copy, if the request is for a document of the CA and the copy is recent enough.
pub(crate) fn answer(
    edge: &Edge,
    generation: &Generation,
    plan: &ForwardPlan<'_>,
    fields: &Fields,
) -> Option<EdgeAnswer> {
    let (document, age_max) = answers(generation, plan)?;
    let copy = edge.copy(document)?;
    // After a CA was removed from the bundle, no copy is used until it has been verified again.
    if copy.verified_by.1 != generation.trust.cas() {
        return None;
    }
    let age = copy.confirmed.elapsed();
    (age <= age_max).then(|| EdgeAnswer {
        document,
        unchanged: copy.is_held_by(fields, age_max),
        copy,
        age,
    })
}

/// The document that may be answered from a copy, and the copy's maximum age.
pub fn answers(generation: &Generation, plan: &ForwardPlan<'_>) -> Option<(Document, Duration)> {
    let document = plan.document().filter(|_| generation.ca.edge_answers)?;
    // A route to another CA serves other documents.
    (generation.ca_pool == Some(plan.pool))
        .then_some((document, generation.ca.edge_answers_age_max))
}

impl EdgeCopy {
    /// Whether the client already has this document. A date counts only if the request has no entity tag (RFC 9110, 13.2.2).
    fn is_held_by(&self, fields: &Fields, age_max: Duration) -> bool {
        let mut lines = fields.all("if-none-match").peekable();
        if lines.peek().is_some() {
            let mut tags = lines.flat_map(|line| line.split(|byte| *byte == b','));
            return tags.any(|tag| {
                let tag = tag.trim_ascii();
                let strong = tag.strip_prefix(b"W/").unwrap_or(tag);
                tag == b"*" || strong == self.etag.as_bytes()
            });
        }
        let since = fields.all("if-modified-since").next();
        let since = since.and_then(|since| std::str::from_utf8(since).ok());
        let since = since.and_then(|since| httpdate::parse_http_date(since).ok());
        since.is_some_and(|since| self.every_client_has_it(since, age_max, SystemTime::now()))
    }

    /// Whether every client that refreshed at this date got this document. An agent sends the date of its last refresh by its
    /// own clock. At that date it may have got an older copy, up to the maximum age, although the CA already had this document.
    fn every_client_has_it(&self, since: SystemTime, age_max: Duration, now: SystemTime) -> bool {
        let by_then = self.taken.checked_add(age_max);
        by_then.is_some_and(|by_then| by_then <= since) && since <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);
    const TAKEN: &str = "Wed, 18 Nov 2020 10:00:00 GMT";

    #[test]
    fn an_entity_tag_takes_precedence_over_a_date() {
        let copy = EdgeCopy {
            body: Bytes::from_static(b"x"),
            etag: HeaderValue::from_static("\"abc\""),
            modified: Some(HeaderValue::from_static(TAKEN)),
            taken: httpdate::parse_http_date(TAKEN).expect("a date"),
            confirmed: Instant::now(),
            verified_by: (1, Fingerprint::of([&b"cas"[..]])),
            is_current: true,
        };
        let later = "Thu, 19 Nov 2020 10:00:00 GMT";
        // Within a day of the fetch, a client may still have got the previous document.
        let earlier = "Thu, 19 Nov 2020 09:59:59 GMT";
        let to_come = "Fri, 18 Nov 2220 10:00:00 GMT";
        for (fields, expected) in [
            (&[][..], false),
            (&[("if-none-match", "\"abc\"")], true),
            (&[("if-none-match", "W/\"abc\"")], true),
            (&[("if-none-match", "\"x\" , \"abc\"")], true),
            (&[("if-none-match", "*")], true),
            (&[("if-none-match", "\"abcd\"")], false),
            (&[("if-none-match", "abc")], false),
            (&[("if-modified-since", TAKEN)], false),
            (&[("if-modified-since", later)], true),
            (&[("if-modified-since", earlier)], false),
            (&[("if-modified-since", to_come)], false),
            (&[("if-modified-since", "yesterday")], false),
            (
                &[("if-none-match", "\"old\""), ("if-modified-since", later)],
                false,
            ),
            (
                &[("if-none-match", "\"abc\""), ("if-modified-since", earlier)],
                true,
            ),
        ] {
            let lines = fields.iter();
            let sent = lines.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
            let sent: Fields = sent.collect();
            assert_eq!(copy.is_held_by(&sent, DAY), expected, "{fields:?}");
        }
    }
}
