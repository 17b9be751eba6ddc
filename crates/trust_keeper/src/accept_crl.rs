//! `crl accept`: an operator accepts that the CRLs of a CA drop revocations.

use std::{sync::Arc, time::SystemTime};

use admin::{CrlAcceptError, CrlAcceptRequest, CrlAccepted, OperatorAccount, ShrunkCrlStatus};
use pki::Fingerprint;
use state::supervise::blocking;

use crate::{TrustKeeper, crl_fetch_state::ShrunkCrl, stored_crls::AcceptedCrl};

/// Maximum length of a reason, in bytes.
const WHY_BYTES_MAX: usize = 500;

impl TrustKeeper {
    /// Drops the revocations that the CRLs of an issuer no longer list.
    ///
    /// # Errors
    /// Why nothing was accepted.
    pub async fn accept_crl(
        self: Arc<Self>,
        request: CrlAcceptRequest,
        by: OperatorAccount,
    ) -> Result<CrlAccepted, CrlAcceptError> {
        let why = request.why.trim().to_owned();
        if why.is_empty() || why.len() > WHY_BYTES_MAX || why.chars().any(char::is_control) {
            return Err(CrlAcceptError::Invalid(format!(
                "the reason must be one line of 1 to {WHY_BYTES_MAX} bytes"
            )));
        }
        // No fetch can run meanwhile, so the accepted CRL is the one that was reported last.
        let _no_fetch = self.crl_fetch.running.lock().await;
        let shrunk = self.shrunk_crls_of(&request)?;
        let trust = Arc::clone(&self.active.generation().trust);
        if shrunk
            .iter()
            .any(|shrunk| trust.further_crls(shrunk.key) > 0)
        {
            return Err(CrlAcceptError::Invalid(format!(
                "there are too many CRLs of {}, so nothing was accepted: remove the old ones that the alarm about them names",
                request.issuer
            )));
        }
        {
            let writer = self.active.writer_of_owner().await;
            let writer = writer.ok_or(CrlAcceptError::Stopping)?;
            let compared = self.compare_again(&shrunk).await;
            self.update_crl_alarms();
            compared?;
            for ShrunkCrl {
                key, crl, status, ..
            } in &shrunk
            {
                let next = self.active.generation().trust.accepting(*key, crl.as_ref());
                let rules = next.set_aside_rules().to_vec();
                // The accepted CRL may still lack revocations that CRLs in files list.
                let left = crl.as_ref();
                let left = left.and_then(|crl| ShrunkCrl::of(crl, next.compare(crl)));
                writer.replace_trust(next);
                self.note_accepted(&rules, (*key, status), &why, &by);
                if let Some(mut left) = left {
                    left.status.since = status.since.clone();
                    self.crl_fetch.record().refused.insert(*key, left);
                }
            }
        }
        // The copy that the proxy serves to clients must follow the new CRL.
        self.crl_fetch.due.notify_one();
        let crls = shrunk.iter().filter_map(|shrunk| shrunk.crl.clone());
        let crls = crls.collect();
        let acceptance = self.store_accepted_crls().await;
        let not_persisted = acceptance.or(self.store_crls(crls).await);
        Ok(CrlAccepted {
            accepted: shrunk.into_iter().map(|shrunk| shrunk.status).collect(),
            not_persisted,
        })
    }

    /// The CRLs of the issuer, if they are as the operator saw them. There are several if CAs have the same name.
    fn shrunk_crls_of(&self, request: &CrlAcceptRequest) -> Result<Vec<ShrunkCrl>, CrlAcceptError> {
        let issuer = &request.issuer;
        let shrunk = self.crl_fetch.shrunk(&self.active.generation().trust);
        let (found, others): (Vec<_>, Vec<_>) = shrunk
            .into_iter()
            .partition(|shrunk| shrunk.status.issuer == *issuer);
        let is_seen = |shrunk: &ShrunkCrl| {
            let ShrunkCrlStatus {
                number, missing, ..
            } = &shrunk.status;
            request.number.as_ref().is_none_or(|seen| seen == number)
                && request.missing.is_none_or(|seen| seen == *missing)
        };
        let (seen, changed): (Vec<_>, Vec<_>) = found.into_iter().partition(is_seen);
        match (seen.is_empty(), changed.first()) {
            (false, _) => Ok(seen),
            (true, Some(changed)) => Err(changed_to(&changed.status)),
            (true, None) => Err(CrlAcceptError::NotShrunk {
                issuer: issuer.to_owned(),
                shrunk: others.into_iter().map(|r| r.status.issuer).collect(),
            }),
        }
    }

    fn note_accepted(
        &self,
        rules: &[pki::SetAsideRule],
        (key, status): (Fingerprint, &ShrunkCrlStatus),
        why: &str,
        by: &OperatorAccount,
    ) {
        tracing::warn!(
            issuer = status.issuer,
            number = status.number,
            missing = status.missing,
            replaces = status.active_number,
            %by,
            why,
            "an operator accepted a CRL that drops revocations"
        );
        let mut record = self.crl_fetch.record();
        record.refused.remove(&key);
        let accepted = rules.iter().map(|rule| {
            let mut known = record.accepted.iter();
            let known = known.find(|known| rule.continues(&known.rule)).cloned();
            let new = || AcceptedCrl {
                rule: String::new(),
                issuer: status.issuer.clone(),
                number: status.number.clone(),
                why: why.to_owned(),
                by: by.name.clone(),
                at: SystemTime::now().into(),
            };
            AcceptedCrl {
                rule: rule.to_string(),
                ..known.unwrap_or_else(new)
            }
        });
        record.accepted = accepted.collect();
    }
}

/// The error for a CRL that has changed since the operator saw it.
fn changed_to(status: &ShrunkCrlStatus) -> CrlAcceptError {
    CrlAcceptError::Changed(format!(
        "{status}. To accept that, run {}: {}",
        status.command(),
        status.consequence()
    ))
}

impl TrustKeeper {
    /// Compares the CRLs with the active ones again, because the active ones may have changed since the report.
    async fn compare_again(&self, shrunk: &[ShrunkCrl]) -> Result<(), CrlAcceptError> {
        let trust = Arc::clone(&self.active.generation().trust);
        let reported = shrunk.to_vec();
        let compared = blocking("compare-crl", move || {
            let compare = |reported: ShrunkCrl| match &reported.crl {
                Some(crl) => ShrunkCrl::of(crl, trust.compare(crl)),
                None => ShrunkCrl::provided(&trust).find(|one| one.key == reported.key),
            };
            reported.into_iter().map(compare).collect::<Vec<_>>()
        });
        let compared = compared.await.ok_or_else(|| {
            CrlAcceptError::Invalid("the comparison of the CRLs failed".to_owned())
        })?;
        let mut record = self.crl_fetch.record();
        for (reported, now) in shrunk.iter().zip(compared) {
            match now {
                Some(now) if now.is_same(reported) => continue,
                Some(now) => {
                    let error = changed_to(&now.status);
                    if now.crl.is_some() {
                        record.refused.insert(now.key, now);
                    }
                    return Err(error);
                }
                None => {
                    record.refused.remove(&reported.key);
                    let why = "no revocation is missing any more".to_owned();
                    return Err(CrlAcceptError::Changed(why));
                }
            }
        }
        Ok(())
    }
}
