//! The revocation lists in force: one for each issuer, and in time.

use std::{sync::Arc, time::Duration};

use pki::{CrlComparison, CrlStatus, Named};
use rustls_pki_types::UnixTime;

use super::{
    Check, Grade, Proof,
    dates::{instant, span},
    members::Member,
};
use crate::{
    certificates::soon,
    members::{administrative, persistence_key},
    prepare::Prepared,
    state_directory::StateDirectory,
    trust::{blocks, stored_crls},
};

/// A list that promises the next one within this time is told of.
const NOTICE: Duration = Duration::from_secs(3 * 86_400);
/// A list may be so many seconds from the future: its CA's clock is nobody's else.
const FUTURE_BEARABLE: u64 = 300;

/// Puts in force what a start would: the lists that were fetched before, and the operator's blocks. Of what else a start
/// reads, it tests that it can be read.
pub(super) fn restore(prepared: &mut Prepared, proof: &mut Proof) {
    let directory = StateDirectory::unopened(&prepared.config.state_directory);
    let about = directory.path().display().to_string();
    if directory.is_closed() {
        return proof.found(
            Check::Files,
            Grade::Note,
            &about,
            "this account may not read it, so doctor does not use the fetched CRLs and the blocks in it",
            "run as the account of the service, which owns that directory, or as root",
        );
    }
    let trust = &mut prepared.generation.trust;
    if let Some(fetch) = prepared.config.trust.fetch {
        let restored = stored_crls::restore(trust, &directory, fetch.body_bytes_max);
        for why in restored.unusable {
            let remedy =
                "fix or remove that file; the proxy then fetches the CRL from the CA again";
            proof.found(Check::Files, Grade::Warning, &about, why, remedy);
        }
        if let Some(restored) = restored.trust {
            *trust = Arc::new(restored);
        }
    }
    match blocks::kept(&directory) {
        Ok(deny) => *trust = Arc::new(trust.with_deny_list(deny)),
        // Without it, whom it blocks would come in.
        Err(error) => proof.found(
            Check::Files,
            Grade::Failure,
            &about,
            format!("the proxy would not start: {error}"),
            "restore that file from a backup; if there is none, remove the file and set its blocks again",
        ),
    }
    if let Err(why) = administrative::stored(&directory) {
        proof.found(
            Check::Files,
            Grade::Warning,
            &about,
            format!("members in drain and maintenance would be ready after a start, because members.json cannot be read: {why}"),
            "restore that file from a backup; if there is none, drain those members again while the proxy runs, which replaces the file",
        );
    }
    if let Err(why) = persistence_key::stored(&directory)
        && !directory.is_absent(persistence_key::FILE)
    {
        proof.found(
            Check::Files,
            Grade::Warning,
            &about,
            format!("clients with a persistence cookie would move after a start, because persistence-key cannot be read: {why}"),
            "restore that file from a backup, or remove it: the proxy then makes a new key",
        );
    }
}

pub(super) fn examine(prepared: &Prepared, now: UnixTime, proof: &mut Proof) {
    let status = prepared.generation.trust.status(now);
    let fetches = prepared.config.trust.fetch.is_some();
    for crl in &status.crls {
        list(crl, fetches, now, proof);
    }
    // To name another file in `[trust] crl` would end the fetching.
    let missing = match prepared.config.agents_copy() {
        Some(copy) => format!(
            "replace {} with ca_crl.pem of the CA server, which contains the CRL of each of its CAs",
            copy.display()
        ),
        None => "add its CRL to `[trust] crl`; ca_crl.pem of the CA server contains the CRL of each of its CAs"
            .to_owned(),
    };
    for issuer in &status.crl_missing {
        proof.found(
            Check::Crl,
            Grade::Failure,
            issuer,
            "there is no CRL of this CA, so the proxy refuses every certificate below it",
            missing.clone(),
        );
    }
    for issuer in &status.unchecked {
        proof.found(
            Check::Crl,
            Grade::Warning,
            issuer,
            "the proxy does not check certificates of this CA for revocation, so it serves revoked agents",
            "provide its CRL, and remove it from `unchecked`",
        );
    }
    for stray in &status.strays {
        proof.found(
            Check::Crl,
            Grade::Warning,
            stray,
            "the CA that issued this CRL is not in the bundle, so the CRL has no effect",
            "add that CA's certificate to `[trust] ca`, or remove the CRL",
        );
    }
}

fn list(crl: &CrlStatus, fetches: bool, now: UnixTime, proof: &mut Proof) {
    let (issuer, number, source) = (&crl.issuer, &crl.number, &crl.source);
    let fetch = match fetches {
        true => {
            "run `proscenium crl fetch` to fetch a newer CRL; `proscenium crl show` shows why a fetch fails; if the proxy is not running, start it"
        }
        false => "copy the CRL from the CA server, and fix the job that should have copied it",
    };
    if crl.this_update.as_secs() > now.as_secs() + FUTURE_BEARABLE {
        let made = instant(crl.this_update);
        return proof.found(
            Check::Crl,
            Grade::Failure,
            issuer,
            format!("CRL number {number} in {source} was issued on {made}, which is in the future: a clock is wrong"),
            "synchronize the clocks of this host and of the CA server with NTP",
        );
    }
    let Some(next) = crl.next_update else {
        return proof.passed(Check::Crl, issuer);
    };
    let left = next.as_secs().saturating_sub(now.as_secs());
    let life = next.as_secs().saturating_sub(crl.this_update.as_secs());
    if crl.expired {
        let found = format!(
            "CRL number {number} in {source} expired on {}",
            instant(next)
        );
        proof.found(Check::Crl, Grade::Failure, issuer, found, fetch);
    } else if left < soon(life, NOTICE) {
        let found = format!(
            "CRL number {number} in {source} expires on {}, in {}",
            instant(next),
            span(left)
        );
        proof.found(Check::Crl, Grade::Warning, issuer, found, fetch);
    } else {
        proof.passed(Check::Crl, issuer);
    }
}

/// Holds what a CA server gives away as its lists against those in force.
pub(super) fn held_against(member: &Member, served: Vec<u8>, proof: &mut Proof) {
    let (about, trust) = (&*member.about, &member.trust);
    let wrong = |found: String, remedy: &str, proof: &mut Proof| {
        proof.found(Check::CrlFresh, Grade::Warning, about, found, remedy);
    };
    let examined = match trust.examine(Named::new(about.to_owned(), served)) {
        Ok(examined) => examined,
        Err(problem) => {
            return wrong(
                format!("the CRLs that it serves are invalid: {problem}"),
                "check with curl whether it is the CA server",
                proof,
            );
        }
    };
    if examined.crls.is_empty() {
        return wrong(
            format!(
                "no CRL that it serves belongs to a CA of the bundle: {}",
                examined.unusable.join("; ")
            ),
            "check whether `[trust] ca` contains the certificates of this CA server",
            proof,
        );
    }
    let in_force = trust.status(UnixTime::now()).crls;
    // A list that was signed anew, with nobody new on it, says nothing new.
    let says_same = |list: &pki::FetchedCrl| {
        in_force.iter().any(|crl| {
            crl.issuer == list.issuer()
                && crl.number == list.number()
                && crl.entries == list.entries()
        })
    };
    let mut good = true;
    for (list, finding) in &examined.crls {
        let (issuer, number) = (list.issuer(), list.number());
        let (found, remedy) = match finding {
            CrlComparison::Active => continue,
            CrlComparison::Newer if member.fetches || says_same(list) => continue,
            CrlComparison::Newer => (
                format!(
                    "it serves CRL number {number} of {issuer}, but the proxy uses an older one, so it serves agents that were revoked since then"
                ),
                "check the job that copies CRLs to this host, and how often it runs",
            ),
            CrlComparison::Replaced => (
                format!(
                    "it serves CRL number {number} of {issuer}, which an operator has replaced (crl accept); the proxy does not use it"
                ),
                "it is an old copy: make sure that the pool `ca` contains the CA server whose CRL was accepted",
            ),
            CrlComparison::DropsRevocations {
                active_number: in_force,
                is_older,
                lacking,
                of,
            } => (
                match is_older {
                    true => format!(
                        "it serves CRL number {number} of {issuer}, but the proxy uses number {in_force}, which is newer: the CA server serves an old copy, or was restored from a backup"
                    ),
                    false => format!(
                        "it serves CRL number {number} of {issuer}, which lacks {lacking} of the {of} certificates that number {in_force} revokes; a CA server that serves the infrastructure CRL in place of the full CRL causes this"
                    ),
                },
                "find the cause first; if it is intended, run `proscenium crl accept`",
            ),
        };
        good = false;
        wrong(found, remedy, proof);
    }
    if good {
        proof.passed(Check::CrlFresh, about);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crl(this_update: u64, next_update: Option<u64>, now: u64) -> CrlStatus {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        CrlStatus {
            issuer: "CN=Puppet CA".to_owned(),
            number: "7".to_owned(),
            entries: 0,
            this_update: at(this_update),
            next_update: next_update.map(at),
            expired: next_update.is_some_and(|next| next < now),
            accepted_until: None,
            source: "crl.pem".to_owned(),
        }
    }

    #[test]
    fn a_list_is_judged_by_when_it_was_made_and_until_when_it_is_the_newest() {
        const NOW: u64 = 1_700_000_000;
        const DAY: u64 = 86_400;
        for (made, next, expected) in [
            (NOW - DAY, Some(NOW + 30 * DAY), None),
            (NOW - DAY, None, None),
            (NOW + 60, Some(NOW + 30 * DAY), None),
            (NOW + 3600, Some(NOW + 30 * DAY), Some(Grade::Failure)),
            (NOW - 30 * DAY, Some(NOW + DAY), Some(Grade::Warning)),
            (NOW - DAY, Some(NOW + DAY), None),
            (NOW - DAY, Some(NOW + DAY / 4), Some(Grade::Warning)),
            (NOW - 2 * DAY, Some(NOW - DAY), Some(Grade::Failure)),
        ] {
            let mut proof = Proof::default();
            let now = UnixTime::since_unix_epoch(Duration::from_secs(NOW));
            list(&crl(made, next, NOW), false, now, &mut proof);
            assert_eq!(proof.worst(), expected, "{made} {next:?}: {proof:?}");
        }
    }
}
