//! The revocation lists in force: one for each issuer, and in time.

use std::{sync::Arc, time::Duration};

use pki::{CrlStatus, Finding, Named};
use rustls_pki_types::UnixTime;

use super::{
    Check, Grade, Proof,
    dates::{instant, span},
    members::Member,
};
use crate::{blocks, certificates::soon, lists, prepare::Prepared, state::StateDirectory};

/// A list that promises the next one within this time is told of.
const NOTICE: Duration = Duration::from_secs(3 * 86_400);
/// A list may be so many seconds from the future: its CA's clock is nobody's else.
const FUTURE_BEARABLE: u64 = 300;

/// Puts in force what a start would: the lists that were fetched before, and the operator's blocks.
pub(super) fn restore(prepared: &mut Prepared, proof: &mut Proof) {
    let directory = StateDirectory::unopened(&prepared.config.state_directory);
    let about = directory.path().display().to_string();
    if directory.is_closed() {
        return proof.found(
            Check::Files,
            Grade::Note,
            &about,
            "it is closed to this account: the lists that were fetched, and the operator's blocks, are not among what is judged by here",
            "run as the account of the service, to whom that directory belongs, or as root",
        );
    }
    let trust = &mut prepared.generation.trust;
    if let Some(fetch) = prepared.config.trust.fetch {
        let restored = lists::restore(trust, &directory, fetch.body_bytes_max);
        for why in restored.unusable {
            let remedy = "see to that file, or take it away: the CA is asked again";
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
            format!("a start would be refused: {error}"),
            "put back a copy of that file from a backup; where there is none, take it away and block anew whom it named",
        ),
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
            "put the CA server's ca_crl.pem, which holds a list for each of its CAs, in the place of {}",
            copy.display()
        ),
        None => "put its list beside the others in `[trust] crl`: the CA server's ca_crl.pem holds one for each of its CAs"
            .to_owned(),
    };
    for issuer in &status.crl_missing {
        proof.found(
            Check::Crl,
            Grade::Failure,
            issuer,
            "there is no revocation list of this CA, so every certificate below it is refused",
            missing.clone(),
        );
    }
    for issuer in &status.unchecked {
        proof.found(
            Check::Crl,
            Grade::Warning,
            issuer,
            "revocation is not checked for what this CA has signed: a revoked agent is served",
            "give it a list and take it out of `unchecked`",
        );
    }
    for stray in &status.strays {
        proof.found(
            Check::Crl,
            Grade::Warning,
            stray,
            "the CA that made this list is not in the bundle: the list keeps nobody out",
            "put that CA's certificate into `[trust] ca`, or take the list away",
        );
    }
}

fn list(crl: &CrlStatus, fetches: bool, now: UnixTime, proof: &mut Proof) {
    let (issuer, number, source) = (&crl.issuer, &crl.number, &crl.source);
    let fetch = match fetches {
        true => {
            "`proscenium crl fetch` asks the CA for a newer one, and `proscenium crl show` says why none came; with no proxy running, start it"
        }
        false => "fetch the list from the CA server, and see to whatever should have done so",
    };
    if crl.this_update.as_secs() > now.as_secs() + FUTURE_BEARABLE {
        let made = instant(crl.this_update);
        return proof.found(
            Check::Crl,
            Grade::Failure,
            issuer,
            format!("list number {number} in {source} was made on {made}, which is to come: a clock is wrong"),
            "set this host's and the CA server's clocks by NTP",
        );
    }
    let Some(next) = crl.next_update else {
        return proof.passed(Check::Crl, issuer);
    };
    let left = next.as_secs().saturating_sub(now.as_secs());
    let life = next.as_secs().saturating_sub(crl.this_update.as_secs());
    if crl.expired {
        let found = format!(
            "list number {number} in {source} has expired on {}",
            instant(next)
        );
        proof.found(Check::Crl, Grade::Failure, issuer, found, fetch);
    } else if left < soon(life, NOTICE) {
        let found = format!(
            "list number {number} in {source} expires on {}, in {}",
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
                format!("what it serves as its lists cannot be used: {problem}"),
                "ask it with curl: is that the CA server?",
                proof,
            );
        }
    };
    if examined.lists.is_empty() {
        return wrong(
            format!(
                "none of the lists that it serves is of a CA of the bundle: {}",
                examined.useless.join("; ")
            ),
            "is that the CA whose certificates are in `[trust] ca`?",
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
    for (list, finding) in &examined.lists {
        let (issuer, number) = (list.issuer(), list.number());
        let (found, remedy) = match finding {
            Finding::InForce => continue,
            Finding::Newer if member.fetches || says_same(list) => continue,
            Finding::Newer => (
                format!(
                    "it serves list number {number} of {issuer}, and an older one is in force: whom it has revoked since is served here"
                ),
                "see to whatever brings lists here, and how often it does",
            ),
            Finding::Replaced => (
                format!(
                    "it serves list number {number} of {issuer}, which an operator has replaced: whom it has revoked since is served here"
                ),
                "it is an old copy: see to it that the pool `ca` names the CA server whose list was accepted",
            ),
            Finding::TakesBack {
                in_force,
                is_older,
                lacking,
                of,
            } => (
                match is_older {
                    true => format!(
                        "it serves list number {number} of {issuer}, and the newer number {in_force} is in force: an old copy, or a CA set back"
                    ),
                    false => format!(
                        "list number {number} of {issuer} that it serves lacks {lacking} of the {of} certificates that number {in_force} revokes: an infrastructure list in the place of the full one looks like this"
                    ),
                },
                "find out why before anybody takes it; `proscenium crl accept` says that it is meant",
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
            judged_by_until: None,
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
