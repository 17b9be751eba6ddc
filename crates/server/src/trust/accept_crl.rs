//! An operator's word on a list that takes something back: it is meant, and in force from then on.

use std::{sync::Arc, time::SystemTime};

use admin::{Caller, CrlAcceptError, CrlAcceptRequest, CrlAccepted, RefusedCrl};
use pki::FetchedCrl;
use tokio::task::spawn_blocking;

use crate::{
    app::App,
    trust::{
        crl_fetch_state::Refused,
        stored_crls::{self, Accepted},
    },
};

/// Most bytes of a reason.
const WHY_BYTES_MAX: usize = 500;

impl App {
    /// Puts a refused list in force, because an operator says that it is meant.
    pub(crate) async fn accept_list(
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
        // Between two fetches: what is accepted is what was told last.
        let _turn = self.fetching.turn.lock().await;
        let refused = self.refused_of(&request.issuer)?;
        {
            let _one_at_a_time = self.reloading.lock().await;
            if !self.is_serving() {
                return Err(CrlAcceptError::Stopping);
            }
            let compared = self.compare_again(&refused).await;
            self.update_fetch_alarms();
            compared?;
            for Refused { list, told } in &refused {
                let trust = &self.generation().trust;
                let rules = trust.rules_accepting(list);
                let next = trust.with_set_aside_rules(rules.clone());
                self.swap_trust(next.with_crls(std::slice::from_ref(list)));
                self.note_accepted(&rules, told, &why, by);
            }
        }
        // What the CA has is answered with from now on.
        self.fetching.reloaded.notify_one();
        let lists = refused.iter().map(|refused| refused.list.clone()).collect();
        let word = self.keep_accepted().await;
        let not_persisted = word.or(self.keep_lists(lists).await);
        Ok(CrlAccepted {
            accepted: refused.into_iter().map(|refused| refused.told).collect(),
            not_persisted,
        })
    }

    /// Sees to it that what is accepted is what was told: what is in force may be another list by now. The caller holds
    /// `reloading`.
    async fn compare_again(&self, refused: &[Refused]) -> Result<(), CrlAcceptError> {
        let trust = Arc::clone(&self.generation().trust);
        let lists: Vec<_> = refused.iter().map(|refused| refused.list.clone()).collect();
        let compared = spawn_blocking(move || {
            let lists = lists.into_iter();
            let of = |list: FetchedCrl| (list.key(), Refused::of(&list, trust.compare(&list)));
            lists.map(of).collect::<Vec<_>>()
        });
        let compared = compared.await.map_err(|_| {
            CrlAcceptError::Senseless("the comparison of the CRLs failed".to_owned())
        })?;
        let mut standing = self.fetching.standing();
        for (told, (key, now)) in refused.iter().zip(compared) {
            match now {
                Some(now) if now.is_same(told) => continue,
                Some(now) => {
                    let why = now.told.to_string();
                    standing.refused.insert(key, now);
                    return Err(CrlAcceptError::Changed(why));
                }
                None => {
                    standing.refused.remove(&key);
                    let why = "that CRL no longer drops revocations".to_owned();
                    return Err(CrlAcceptError::Changed(why));
                }
            }
        }
        Ok(())
    }

    fn refused_of(&self, issuer: &str) -> Result<Vec<Refused>, CrlAcceptError> {
        let standing = self.fetching.standing();
        let refused = standing.refused.values();
        let found: Vec<_> = refused
            .clone()
            .filter(|refused| refused.told.issuer == issuer)
            .cloned()
            .collect();
        match found.is_empty() {
            false => Ok(found),
            true => Err(CrlAcceptError::NotRefused {
                issuer: issuer.to_owned(),
                refused: refused.map(|r| r.told.issuer.clone()).collect(),
            }),
        }
    }

    fn note_accepted(&self, rules: &[pki::SetAsideRule], told: &RefusedCrl, why: &str, by: Caller) {
        tracing::warn!(
            issuer = told.issuer,
            number = told.number,
            missing = told.missing,
            replaces = told.active_number,
            %by,
            why,
            "an operator accepted a CRL that drops revocations"
        );
        let mut standing = self.fetching.standing();
        standing.refused.retain(|_, refused| refused.told != *told);
        let rules: Vec<_> = rules.iter().map(ToString::to_string).collect();
        standing.accepted.retain(|one| rules.contains(&one.rule));
        let is_new = |rule: &&String| standing.accepted.iter().all(|one| one.rule != **rule);
        let new: Vec<_> = rules.iter().filter(is_new).cloned().collect();
        standing
            .accepted
            .extend(new.into_iter().map(|rule| Accepted {
                rule,
                issuer: told.issuer.clone(),
                number: told.number.clone(),
                why: why.to_owned(),
                by: by.to_string(),
                at: SystemTime::now().into(),
            }));
    }

    /// Keeps what operators have accepted; why it is not kept, if so.
    pub(crate) async fn keep_accepted(&self) -> Option<String> {
        let _one_at_a_time = self.fetching.keeping.lock().await;
        let accepted = self.fetching.standing().accepted.clone();
        let directory = Arc::clone(&self.state_directory);
        let kept = spawn_blocking(move || stored_crls::keep_accepted(&directory, &accepted));
        match kept.await {
            Ok(kept) => kept.err().map(|error| error.to_string()),
            Err(error) => Some(error.to_string()),
        }
    }
}
