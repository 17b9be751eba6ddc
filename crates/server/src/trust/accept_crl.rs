//! `crl accept`: an operator activates a fetched CRL that was refused because it drops revocations.

use std::{sync::Arc, time::SystemTime};

use admin::{Caller, CrlAcceptError, CrlAcceptRequest, CrlAccepted, RefusedCrl};
use pki::FetchedCrl;
use tokio::task::spawn_blocking;

use crate::{
    shared_state::{App, GenerationWriter},
    trust::{crl_fetch_state::RefusedFetchedCrl, stored_crls::AcceptedCrl},
};

/// Maximum length of a reason, in bytes.
const WHY_BYTES_MAX: usize = 500;

impl App {
    /// Activates the refused CRLs of an issuer.
    pub(crate) async fn accept_crl(
        self: Arc<Self>,
        request: CrlAcceptRequest,
        by: Caller,
    ) -> Result<CrlAccepted, CrlAcceptError> {
        let why = request.why.trim().to_owned();
        if why.is_empty() || why.len() > WHY_BYTES_MAX || why.chars().any(char::is_control) {
            return Err(CrlAcceptError::Senseless(format!(
                "the reason must be one line of 1 to {WHY_BYTES_MAX} bytes"
            )));
        }
        // No fetch runs meanwhile, so the CRL that is accepted is the one that was reported last.
        let _no_fetch = self.trust.crl_fetch.running.lock().await;
        let refused = self.refused_crls_of(&request.issuer)?;
        {
            let writer = self.writer_of_owner().await;
            let writer = writer.ok_or(CrlAcceptError::Stopping)?;
            let compared = writer.compare_again(&refused).await;
            self.update_crl_fetch_alarms();
            compared?;
            for RefusedFetchedCrl { crl, status } in &refused {
                let trust = &self.generation().trust;
                let rules = trust.rules_accepting(crl);
                let next = trust.with_set_aside_rules(rules.clone());
                writer.replace_trust(next.with_crls(std::slice::from_ref(crl)));
                self.note_accepted(&rules, status, &why, by);
            }
        }
        // The copy that the proxy serves to clients must follow the new CRL.
        self.trust.crl_fetch.due.notify_one();
        let crls = refused.iter().map(|refused| refused.crl.clone()).collect();
        let acceptance = self.store_accepted_crls().await;
        let not_persisted = acceptance.or(self.store_crls(crls).await);
        Ok(CrlAccepted {
            accepted: refused.into_iter().map(|refused| refused.status).collect(),
            not_persisted,
        })
    }

    fn refused_crls_of(&self, issuer: &str) -> Result<Vec<RefusedFetchedCrl>, CrlAcceptError> {
        let record = self.trust.crl_fetch.record();
        let refused = record.refused.values();
        let found: Vec<_> = refused
            .clone()
            .filter(|refused| refused.status.issuer == issuer)
            .cloned()
            .collect();
        match found.is_empty() {
            false => Ok(found),
            true => Err(CrlAcceptError::NotRefused {
                issuer: issuer.to_owned(),
                refused: refused.map(|r| r.status.issuer.clone()).collect(),
            }),
        }
    }

    fn note_accepted(
        &self,
        rules: &[pki::SetAsideRule],
        status: &RefusedCrl,
        why: &str,
        by: Caller,
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
        let mut record = self.trust.crl_fetch.record();
        record
            .refused
            .retain(|_, refused| refused.status != *status);
        let rules: Vec<_> = rules.iter().map(ToString::to_string).collect();
        record.accepted.retain(|one| rules.contains(&one.rule));
        let is_new = |rule: &&String| record.accepted.iter().all(|one| one.rule != **rule);
        let new: Vec<_> = rules.iter().filter(is_new).cloned().collect();
        record
            .accepted
            .extend(new.into_iter().map(|rule| AcceptedCrl {
                rule,
                issuer: status.issuer.clone(),
                number: status.number.clone(),
                why: why.to_owned(),
                by: by.to_string(),
                at: SystemTime::now().into(),
            }));
    }
}

impl GenerationWriter<'_> {
    /// Compares the refused CRLs with the active ones again, which may have changed since the refusals were reported.
    async fn compare_again(&self, refused: &[RefusedFetchedCrl]) -> Result<(), CrlAcceptError> {
        let trust = Arc::clone(&self.app.generation().trust);
        let crls: Vec<_> = refused.iter().map(|refused| refused.crl.clone()).collect();
        let compared = spawn_blocking(move || {
            let crls = crls.into_iter();
            let compare = |crl: FetchedCrl| RefusedFetchedCrl::of(&crl, trust.compare(&crl));
            crls.map(compare).collect::<Vec<_>>()
        });
        let compared = compared.await.map_err(|_| {
            CrlAcceptError::Senseless("the comparison of the CRLs failed".to_owned())
        })?;
        let mut record = self.app.trust.crl_fetch.record();
        for (reported, now) in refused.iter().zip(compared) {
            let key = reported.crl.key();
            match now {
                Some(now) if now.is_same(reported) => continue,
                Some(now) => {
                    let why = now.status.to_string();
                    record.refused.insert(key, now);
                    return Err(CrlAcceptError::Changed(why));
                }
                None => {
                    record.refused.remove(&key);
                    let why = "that CRL no longer drops revocations".to_owned();
                    return Err(CrlAcceptError::Changed(why));
                }
            }
        }
        Ok(())
    }
}
