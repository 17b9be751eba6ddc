//! The CA's certificate and revocation lists, answered here from copies of what the CA itself has said.
//!
//! Who fetches a copy has verified it. The bytes are the CA's own, and how long ago it was asked stands beside them.

use std::{
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue,
    header::{IF_MODIFIED_SINCE, IF_NONE_MATCH},
};
use pki::Fingerprint;
use routing::{Document, ForwardPlan};

use crate::generation::Generation;

/// The copies, over all workers and generations.
#[derive(Debug, Default)]
pub struct Edge {
    ca: ArcSwapOption<EdgeCopy>,
    crl: ArcSwapOption<EdgeCopy>,
}

/// A document as the CA has it.
#[derive(Clone, Debug)]
pub struct EdgeCopy {
    /// Its bytes.
    pub body: Bytes,
    /// Stands for exactly these bytes.
    pub etag: HeaderValue,
    /// Last-Modified as the CA spelled it.
    pub modified: Option<HeaderValue>,
    /// When these bytes first came: what the CA had before is older than this.
    pub taken: SystemTime,
    /// When the CA was last asked and said that this is what it has.
    pub confirmed: Instant,
    /// The trust that it was verified by, and the CAs of that.
    pub verified_by: (u64, Fingerprint),
    /// Whether the CA had nothing else since, as far as is known.
    pub is_current: bool,
}

/// An answer from a copy.
#[derive(Debug)]
pub(crate) struct EdgeAnswer {
    pub(crate) document: Document,
    pub(crate) copy: Arc<EdgeCopy>,
    /// The client has it already.
    pub(crate) unchanged: bool,
    pub(crate) age: Duration,
}

impl Edge {
    /// The copy of a document.
    pub fn copy(&self, document: Document) -> Option<Arc<EdgeCopy>> {
        self.place(document).load_full()
    }

    /// Puts a copy in the place of the one before; none: there is none.
    pub fn put(&self, document: Document, copy: Option<EdgeCopy>) {
        self.place(document).store(copy.map(Arc::new));
    }

    /// Puts a copy, or none, in the place of this one, unless another is there by now.
    pub fn replace(&self, document: Document, copy: &Arc<EdgeCopy>, by: Option<EdgeCopy>) {
        self.place(document)
            .compare_and_swap(&Some(Arc::clone(copy)), by.map(Arc::new));
    }

    /// Notes that the CA, asked at this instant, has said that nothing has changed since it was asked last.
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

    /// Notes that the CA has something else now, which is none to be answered with: the copy is the last good one, and
    /// grows old.
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

    fn place(&self, document: Document) -> &ArcSwapOption<EdgeCopy> {
        match document {
            Document::Ca => &self.ca,
            Document::Crl => &self.crl,
        }
    }
}

/// What is answered here, if it is: a document of the CA that is asked, of which there is a copy young enough.
pub(crate) fn answer(
    edge: &Edge,
    generation: &Generation,
    plan: &ForwardPlan<'_>,
    headers: &HeaderMap,
) -> Option<EdgeAnswer> {
    let (document, age_max) = answers(generation, plan)?;
    let copy = edge.copy(document)?;
    // A CA that has just left the bundle is not handed out until the copy has been looked at again.
    if copy.verified_by.1 != generation.trust.cas() {
        return None;
    }
    let age = copy.confirmed.elapsed();
    (age <= age_max).then(|| EdgeAnswer {
        document,
        unchanged: copy.is_what(headers, age_max),
        copy,
        age,
    })
}

/// The document that is answered here, if there is a copy no older than this.
pub fn answers(generation: &Generation, plan: &ForwardPlan<'_>) -> Option<(Document, Duration)> {
    let document = plan.document().filter(|_| generation.ca.edge_answers)?;
    // Another CA, behind a route of the site's own, has other documents.
    (generation.ca_pool == Some(plan.pool))
        .then_some((document, generation.ca.edge_answers_age_max))
}

impl EdgeCopy {
    /// Whether the client says that it has this (RFC 9110, 13.2.2: a date counts only without a tag).
    fn is_what(&self, headers: &HeaderMap, age_max: Duration) -> bool {
        if headers.contains_key(IF_NONE_MATCH) {
            let lines = headers.get_all(IF_NONE_MATCH).iter();
            let mut tags = lines.flat_map(|line| line.as_bytes().split(|byte| *byte == b','));
            return tags.any(|tag| {
                let tag = tag.trim_ascii();
                let strong = tag.strip_prefix(b"W/").unwrap_or(tag);
                tag == b"*" || strong == self.etag.as_bytes()
            });
        }
        let since = headers.get(IF_MODIFIED_SINCE);
        let since = since.and_then(|since| httpdate::parse_http_date(since.to_str().ok()?).ok());
        since.is_some_and(|since| self.was_told_to_all(since, age_max, SystemTime::now()))
    }

    /// Whether whoever asked at this date has got this. An agent tells the date of its last refresh, by its own clock, and
    /// was answered then from a copy that may have been as old as copies may be: the one before this, though the CA had
    /// made this already.
    fn was_told_to_all(&self, since: SystemTime, age_max: Duration, now: SystemTime) -> bool {
        let by_all = self.taken.checked_add(age_max);
        by_all.is_some_and(|by_all| by_all <= since) && since <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);
    const TAKEN: &str = "Wed, 18 Nov 2020 10:00:00 GMT";

    #[test]
    fn a_tag_counts_before_a_date_and_either_says_what_the_client_has() {
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
        // Within a day of it somebody else may still have been answered with what was before.
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
            let headers: HeaderMap = fields
                .iter()
                .map(|(name, value)| (name.parse().expect("name"), HeaderValue::from_static(value)))
                .collect();
            assert_eq!(copy.is_what(&headers, DAY), expected, "{fields:?}");
        }
    }
}
