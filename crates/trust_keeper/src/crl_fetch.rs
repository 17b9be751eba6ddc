//! Fetching CRLs from the CA at intervals: a response is compared with the active CRLs, and CRLs that are newer or revoke
//! more become active and are stored.
//!
//! A failure at any step leaves the active CRLs in use and raises an alarm.

use std::{
    pin::pin,
    sync::Arc,
    time::{Instant, SystemTime},
};

use admin::{CrlFetchOutcome, CrlFetchResult, ShrunkCrlStatus};
use bytes::Bytes;
use config::Fetch;
use fleet::CrlHints;
use pki::{CrlComparison, ExaminedCrls, FetchedCrl, Named, PkiProblem, TrustStore};
use routing::Document;
use state::{random_part_of, supervise::blocking};
use tokio::time::sleep;

use crate::{
    TrustKeeper,
    ca_requests::{CaMembers, CaRequest, CaResponse, FetchScope},
    conditional_request::ConditionalRequest,
    crl_fetch_state::{ComparedCrls, ShrunkCrl},
};

/// The path of a CA's CRL. The response also contains the CRLs of the CAs above it.
const PATH: &str = "/puppet-ca/v1/certificate_revocation_list/ca";

async fn wait(fetch: Option<Fetch>) {
    match fetch {
        // The jitter only shortens the wait: the interval is the maximum time that a revoked agent is still accepted.
        Some(fetch) => {
            let jitter = random_part_of(fetch.jitter.min(fetch.interval / 2));
            sleep(fetch.interval - jitter).await;
        }
        None => std::future::pending().await,
    }
}

impl TrustKeeper {
    /// Fetches CRLs and the CA's certificates at the start, at each interval and after each reload, until this future is
    /// dropped. It also fetches CRLs when another proxy of the fleet has a newer CRL, and after a failure as soon as the CA is
    /// available again.
    pub async fn fetch_at_intervals(&self) {
        let mut scope = FetchScope::Whole;
        let mut hints = CrlHints::default();
        loop {
            let fetch = self.fetch_settings();
            self.verify_copies().await;
            self.crl_fetch.forget_removed_cas(&self.active.trust());
            self.store_unstored_crls().await;
            self.update_crl_alarms();
            if fetch.is_some() {
                self.note_regular_fetch(&mut hints);
                self.fetch_crls(scope).await;
            }
            // Called without fetch settings too, because it clears its alarm then.
            self.fetch_ca_certificates(scope).await;
            let mut waited = pin!(wait(fetch));
            scope = loop {
                tokio::select! {
                    () = &mut waited => break FetchScope::Changes,
                    () = self.crl_fetch.due.notified() => break FetchScope::Whole,
                    () = self.active.shared().ca_recovered.notified() => {
                        if self.crl_fetch.is_failing() {
                            break FetchScope::Changes;
                        }
                    }
                    // The CRL that the other proxy has may have the same date as the one fetched before, so the request must
                    // not be conditional.
                    () = self.hinted(&mut hints), if fetch.is_some() => {
                        self.fetch_crls(FetchScope::Whole).await;
                    }
                }
            };
        }
    }

    /// Fetches the CRLs of the CA and activates newer ones.
    pub(crate) async fn fetch_crls(&self, scope: FetchScope) -> CrlFetchOutcome {
        let mut condition = self.crl_fetch.running.lock().await;
        let Some(fetch) = self.fetch_settings().filter(|_| self.active.owns_state()) else {
            return CrlFetchOutcome {
                result: CrlFetchResult::Off,
                report: "CRLs are not fetched: [trust.fetch] is off, or the process is stopping"
                    .to_owned(),
            };
        };
        let is_copied = self.active.shared().edge.copy(Document::Crl).is_some();
        if scope == FetchScope::Whole || self.answers_from_copies() && !is_copied {
            condition.forget();
        }
        self.crl_fetch.note_attempt(SystemTime::now());
        let outcome = self.fetch_from_members(fetch, &mut condition).await;
        let outcome = outcome.unwrap_or_else(|why| {
            // The fault may be in that response alone, so the next request is for the whole document.
            condition.forget();
            self.crl_fetch.note_failure(&why);
            CrlFetchOutcome {
                result: CrlFetchResult::Failed,
                report: why,
            }
        });
        self.update_crl_alarms();
        self.active
            .shared()
            .metrics
            .crls_fetched(outcome.result.as_str());
        outcome
    }

    /// Fetches the CRLs because an operator requests it.
    pub async fn fetch_crls_on_request(self: Arc<Self>) -> CrlFetchOutcome {
        let Ok(_slot) = self.crl_fetch.requested.try_acquire() else {
            return CrlFetchOutcome {
                result: CrlFetchResult::Failed,
                report: "a fetch is in progress and another is waiting: see \"proscenium crl show\", or try again later"
                    .to_owned(),
            };
        };
        self.fetch_crls(FetchScope::Whole).await
    }

    /// Returns the outcome of the first response that is usable and drops no revocation.
    ///
    /// # Errors
    /// No response is usable: what is wrong with each.
    async fn fetch_from_members(
        &self,
        fetch: Fetch,
        condition: &mut ConditionalRequest,
    ) -> Result<CrlFetchOutcome, String> {
        let request = CaRequest {
            path: PATH,
            bytes_max: fetch.body_bytes_max,
            fetch,
        };
        let mut members = CaMembers::of(self.active.generation())?;
        let (mut failures, mut earlier) = (Vec::new(), EarlierResponses::default());
        while let Some(response) = members.request_next(request, condition).await {
            let response = match response {
                Ok(response) => response,
                Err(why) => {
                    failures.push(why);
                    continue;
                }
            };
            let member = Arc::clone(&response.member);
            match self.use_response(response, condition, &mut earlier).await {
                // The next member may have the revocations that this member has lost.
                Ok(outcome) if earlier.tries_next => earlier.note(outcome),
                Ok(outcome) => return Ok(earlier.combined_with(outcome)),
                Err(why) => {
                    let failure = format!("the response of {member} cannot be used: {why}");
                    earlier.unusable.push(failure);
                }
            }
        }
        if let Some(outcome) = earlier.outcome {
            return Ok(outcome);
        }
        failures.append(&mut earlier.unusable);
        Err(failures.join("; "))
    }

    /// Compares a response with the active CRLs, and activates and stores newer ones.
    async fn use_response(
        &self,
        response: CaResponse,
        condition: &mut ConditionalRequest,
        earlier: &mut EarlierResponses,
    ) -> Result<CrlFetchOutcome, String> {
        let CaResponse {
            member,
            requested,
            requested_at,
            mut document,
        } = response;
        let state = &self.crl_fetch;
        let Some(body) = document.body.take() else {
            condition.not_modified(&document, requested);
            self.active
                .shared()
                .edge
                .confirm(Document::Crl, requested_at);
            state.note_success(&member, requested);
            let outcome = self.unchanged();
            earlier.tries_next = outcome.result == CrlFetchResult::Shrunk;
            return Ok(outcome);
        };
        let (copy, mut examined) = self.examine(&member, body).await?;
        if examined.crls.is_empty() {
            return Err(examined.unusable.join("; "));
        }
        let crls: Vec<_> = examined.crls.into_iter().map(|(crl, _)| crl).collect();
        let given: Vec<_> = crls.iter().map(FetchedCrl::key).collect();
        let (compared, trust) = self.activate_newer(crls).await?;
        condition.fetched_whole(&member, &document, requested, Instant::now());
        examined
            .unusable
            .extend(compared.replaced.iter().map(|crl| replaced(&member, crl)));
        // Clients may get this response as a copy only if every CRL in it is active.
        match copy.filter(|_| compared.refused.is_empty() && examined.unusable.is_empty()) {
            Some(copy) => {
                self.keep_copy(Document::Crl, copy, (&document, requested_at), &trust);
            }
            // Agents get the response of the CA itself, as they would without the proxy.
            None if !compared.refused.is_empty() => {
                self.active.shared().edge.put(Document::Crl, None)
            }
            None => self.active.shared().edge.outdate(Document::Crl),
        }
        state.note_success(&member, requested);
        earlier.tries_next = !(compared.refused.is_empty() && compared.replaced.is_empty());
        if !compared.replaced.is_empty() {
            // The date of a CRL that is not used says nothing about the member's next CRL.
            condition.forget();
        }
        earlier.unusable.append(&mut examined.unusable);
        let lacking = trust.fetched_crls_not_among(&given).into_iter();
        earlier
            .unusable
            .extend(lacking.map(|issuer| not_provided(&member, issuer)));
        state.note_compared(&compared, &earlier.unusable, earlier.is_refused());
        for crl in &compared.newer {
            tracing::info!(
                %member,
                issuer = crl.issuer(),
                number = crl.number(),
                entries = crl.entries(),
                "activated a fetched CRL"
            );
        }
        let crls = compared.newer.iter().chain(&compared.active);
        let not_persisted = self.store_crls(crls.cloned().collect()).await;
        Ok(outcome_of(&compared, not_persisted))
    }

    /// Parses a response. Returns the bytes too if the proxy answers clients from copies.
    async fn examine(
        &self,
        member: &str,
        body: Vec<u8>,
    ) -> Result<(Option<Bytes>, ExaminedCrls), String> {
        let name = format!("fetched from {member}");
        let is_copied = self.answers_from_copies();
        let trust = Arc::clone(&self.active.generation().trust);
        // Parsing a million entries takes a second, so it runs on a thread of its own and before any lock is taken.
        let examined = blocking("examine-crl", move || {
            let copy = is_copied.then(|| Bytes::copy_from_slice(&body));
            let is_alone = !is_copied || pki::holds_only_crls(&body);
            let mut examined = trust.examine(Named::new(name, body))?;
            if !is_alone {
                examined.unusable.push(
                    "the CA's response contains something other than CRLs that agents could take for a CRL, so the proxy does not serve it from a copy"
                        .to_owned(),
                );
            }
            Ok((copy, examined))
        });
        let examined = examined
            .await
            .ok_or_else(|| "reading the CRL failed".to_owned())?;
        examined.map_err(|problem: PkiProblem| problem.to_string())
    }

    /// Compares CRLs with the active ones and activates those that are newer. Returns the trust store that is active then.
    async fn activate_newer(
        &self,
        crls: Vec<FetchedCrl>,
    ) -> Result<(ComparedCrls, Arc<TrustStore>), String> {
        let writer = self.active.writer_of_owner().await;
        let writer = writer.ok_or("the process is stopping")?;
        let trust = Arc::clone(&self.active.generation().trust);
        let compared = blocking("compare-crl", move || {
            let mut compared = ComparedCrls::default();
            for crl in crls {
                match trust.compare(&crl) {
                    CrlComparison::Newer => compared.newer.push(crl),
                    CrlComparison::Active => compared.active.push(crl),
                    CrlComparison::Replaced => compared.replaced.push(crl),
                    comparison => {
                        if let CrlComparison::DropsRevocations { is_news: true, .. } = comparison {
                            compared.newer.push(crl.clone());
                        }
                        compared.refused.extend(ShrunkCrl::of(&crl, comparison));
                    }
                }
            }
            let next = (!compared.newer.is_empty()).then(|| trust.with_crls(&compared.newer));
            (compared, next)
        });
        let (compared, next) = compared
            .await
            .ok_or_else(|| "the comparison of the CRLs failed".to_owned())?;
        if let Some(next) = next {
            writer.replace_trust(next);
            self.crls_changed.notify_one();
        }
        Ok((compared, Arc::clone(&self.active.generation().trust)))
    }

    /// The outcome of a "not modified" response, for which earlier refusals still hold.
    fn unchanged(&self) -> CrlFetchOutcome {
        let refused = self.crl_fetch.record().refused.clone();
        CrlFetchOutcome {
            result: match refused.is_empty() {
                true => CrlFetchResult::Unchanged,
                false => CrlFetchResult::Shrunk,
            },
            report: refused
                .values()
                .map(|shrunk| refusal(&shrunk.status))
                .collect::<Vec<_>>()
                .join("\n"),
        }
    }
}

/// The responses from members that were asked earlier in the same fetch and whose CRLs were refused or unusable.
#[derive(Default)]
struct EarlierResponses {
    /// Messages about their faults.
    unusable: Vec<String>,
    /// The outcome of the first one that drops revocations.
    outcome: Option<CrlFetchOutcome>,
    /// Whether the last response was usable but some of its CRLs were not applied, so that the next member is asked.
    tries_next: bool,
}

impl EarlierResponses {
    /// Whether CRLs of an earlier response were refused. They stay refused, whatever the next member responds.
    fn is_refused(&self) -> bool {
        let outcome = self.outcome.as_ref();
        outcome.is_some_and(|outcome| outcome.result == CrlFetchResult::Shrunk)
    }

    fn note(&mut self, outcome: CrlFetchOutcome) {
        self.outcome.get_or_insert(outcome);
    }

    /// The outcome of the whole fetch, where `outcome` is that of its last response.
    fn combined_with(self, outcome: CrlFetchOutcome) -> CrlFetchOutcome {
        match self.outcome {
            Some(refused) if refused.result == CrlFetchResult::Shrunk => CrlFetchOutcome {
                report: format!("{}\n{}", refused.report, outcome.report)
                    .trim_end()
                    .to_owned(),
                ..refused
            },
            _ => outcome,
        }
    }
}

fn outcome_of(compared: &ComparedCrls, not_persisted: Option<String>) -> CrlFetchOutcome {
    let newer = compared.newer.iter().map(|crl| {
        format!(
            "{}: number {} with {} entries is active",
            crl.issuer(),
            crl.number(),
            crl.entries()
        )
    });
    let refused = compared.refused.iter();
    let refused = refused.map(|refused| refusal(&refused.status));
    let not_persisted =
        not_persisted.map(|why| format!("it could not be saved for the next start: {why}"));
    let report: Vec<_> = newer.chain(refused).chain(not_persisted).collect();
    let result = match (compared.refused.is_empty(), compared.newer.is_empty()) {
        (false, _) => CrlFetchResult::Shrunk,
        (true, false) => CrlFetchResult::Applied,
        (true, true) => CrlFetchResult::Unchanged,
    };
    CrlFetchOutcome {
        result,
        report: report.join("\n"),
    }
}

fn not_provided(member: &str, issuer: &str) -> String {
    format!(
        "{member} provides no CRL of {issuer}, a CA of the bundle, so the active CRL, which was fetched, is no longer refreshed; fix the CA server, or set that CRL in [trust] crl"
    )
}

fn replaced(member: &str, crl: &FetchedCrl) -> String {
    format!(
        "the response of {member} cannot be used: CRL number {} of {} is the one that an operator has replaced (crl accept)",
        crl.number(),
        crl.issuer()
    )
}

fn refusal(refused: &ShrunkCrlStatus) -> String {
    format!("a CRL drops revocations: {refused}")
}
