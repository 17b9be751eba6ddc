//! The active CRLs: one for each issuer, and not expired.

use std::time::Duration;

use pki::{ActiveCrlStatus, CrlComparison, Named};
use rustls_pki_types::UnixTime;

use crate::{
    Check, DoctorReport, FindingSeverity,
    certificates::{instant, span},
    member::Member,
};
use lifecycle::{PreparedStart, StateProblem, expiry_notice_seconds};

/// A CRL whose next update is due within this time is reported.
const NOTICE: Duration = Duration::from_secs(3 * 86_400);
/// A CRL may be dated this many seconds in the future, because its CA has a different clock.
const FUTURE_BEARABLE: u64 = 300;

/// Loads the stored CRLs and blocks that a start would load. Reports the documents in the state directory that a start
/// could not use.
pub(crate) fn restore(prepared: &mut PreparedStart, report: &mut DoctorReport) {
    let problems = prepared.restore_state();
    let about = prepared.config().state_directory.display().to_string();
    for problem in problems {
        let (grade, found, remedy) = state_problem(problem);
        report.found(Check::Files, grade, &about, found, remedy);
    }
}

fn state_problem(problem: StateProblem) -> (FindingSeverity, String, &'static str) {
    match problem {
        StateProblem::Unreadable => (
            FindingSeverity::Note,
            "this account may not read it, so doctor does not use the fetched CRLs and the blocks in it".to_owned(),
            "run as the account of the service, which owns that directory, or as root",
        ),
        StateProblem::Crl(why) => (
            FindingSeverity::Warning,
            why,
            "fix or remove that file; the proxy then fetches the CRL from the CA again",
        ),
        StateProblem::Blocks(why) => (
            FindingSeverity::Failure,
            format!("the proxy would not start: {why}"),
            "restore that file from a backup; if there is none, remove the file and set its blocks again",
        ),
        StateProblem::MemberStates(why) => (
            FindingSeverity::Warning,
            format!("members in drain and maintenance would be ready after a start, because members.json cannot be read: {why}"),
            "restore that file from a backup; if there is none, drain those members again while the proxy runs, which replaces the file",
        ),
        StateProblem::PersistenceKey(why) => (
            FindingSeverity::Warning,
            format!("clients with a persistence cookie would move after a start, because persistence-key cannot be read: {why}"),
            "restore that file from a backup, or remove it: the proxy then makes a new key",
        ),
    }
}

pub(crate) fn examine(prepared: &PreparedStart, now: UnixTime, report: &mut DoctorReport) {
    let status = prepared.trust().status(now);
    let fetches = prepared.config().trust.fetch.is_some();
    let remedy = if fetches {
        "run `proscenium crl fetch` to fetch a newer CRL; `proscenium crl show` shows why a fetch fails; if the proxy is not running, start it"
    } else {
        "copy the CRL from the CA server, and fix the job that should have copied it"
    };
    let check = CrlDates {
        check: Check::Crl,
        notice: NOTICE,
        remedy,
    };
    for crl in status.crls.iter().filter(|crl| crl.is_newest) {
        check.examine(crl, now, report);
    }
    for dropped in prepared.trust().dropped_revocations() {
        report.found(
            Check::Crl,
            FindingSeverity::Warning,
            &dropped.issuer,
            format!(
                "CRL number {} ({}) lacks {} certificates that an earlier CRL revoked; they stay revoked",
                dropped.number, dropped.source, dropped.missing
            ),
            "find the cause first; if the CA no longer needs them, for example because they have expired, run `proscenium crl accept`",
        );
    }
    for empty in prepared.trust().empty_crls() {
        report.found(
            Check::Crl,
            FindingSeverity::Warning,
            &empty.issuer,
            format!(
                "the CRL ({}) has number 0 and no entries, although the CA has issued certificates up to serial number {}; a CA server with enable-infra-crl serves its infrastructure CRL, which contains no agents",
                empty.source, empty.highest_serial
            ),
            "revoke a test agent, and see that the proxy answers it with 403; if it does, run `proscenium crl accept`, and if not, copy ca_crl.pem of the CA server and set `[trust] crl`",
        );
    }
    // With another file in `[trust] crl`, the proxy would not fetch CRLs.
    let missing = match prepared.config().agents_copy() {
        Some(copy) => format!(
            "replace {} with ca_crl.pem of the CA server, which contains the CRL of each of its CAs",
            copy.display()
        ),
        None => "add its CRL to `[trust] crl`; ca_crl.pem of the CA server contains the CRL of each of its CAs"
            .to_owned(),
    };
    for issuer in &status.crl_missing {
        report.found(
            Check::Crl,
            FindingSeverity::Failure,
            issuer,
            "there is no CRL of this CA, so the proxy refuses every certificate below it",
            missing.clone(),
        );
    }
    for issuer in &status.unchecked {
        report.found(
            Check::Crl,
            FindingSeverity::Warning,
            issuer,
            "the proxy does not check certificates of this CA for revocation, so it serves revoked agents",
            "provide its CRL, and remove it from `unchecked`",
        );
    }
    for stray in &status.strays {
        report.found(
            Check::Crl,
            FindingSeverity::Warning,
            stray,
            "the CA that issued this CRL is not in the bundle, so the CRL has no effect",
            "add that CA's certificate to `[trust] ca`, or remove the CRL",
        );
    }
}

/// How the dates of a CRL are checked.
pub(crate) struct CrlDates {
    pub(crate) check: Check,
    /// A CRL whose next update is due within this time is reported.
    pub(crate) notice: Duration,
    /// How to get a newer CRL.
    pub(crate) remedy: &'static str,
}

impl CrlDates {
    pub(crate) fn examine(&self, crl: &ActiveCrlStatus, now: UnixTime, report: &mut DoctorReport) {
        let Some((grade, found)) = self.wrong(crl, now) else {
            return report.passed(self.check, &crl.issuer);
        };
        let remedy = if is_from_the_future(crl, now) {
            "synchronize the clocks of this host and of the CA server with NTP"
        } else {
            self.remedy
        };
        report.found(self.check, grade, &crl.issuer, found, remedy);
    }

    fn wrong(&self, crl: &ActiveCrlStatus, now: UnixTime) -> Option<(FindingSeverity, String)> {
        let (number, source) = (&crl.number, &crl.source);
        if is_from_the_future(crl, now) {
            let made = instant(crl.this_update);
            let found = format!(
                "CRL number {number} in {source} was issued on {made}, which is in the future: a clock is wrong"
            );
            return Some((FindingSeverity::Failure, found));
        }
        let next = crl.next_update?;
        let left = next.as_secs().saturating_sub(now.as_secs());
        let life = next.as_secs().saturating_sub(crl.this_update.as_secs());
        if crl.expired {
            let end = instant(next);
            let found = format!("CRL number {number} in {source} expired on {end}");
            return Some((FindingSeverity::Failure, found));
        }
        (left < expiry_notice_seconds(life, self.notice)).then(|| {
            let (end, left) = (instant(next), span(left));
            let found = format!("CRL number {number} in {source} expires on {end}, in {left}");
            (FindingSeverity::Warning, found)
        })
    }
}

fn is_from_the_future(crl: &ActiveCrlStatus, now: UnixTime) -> bool {
    crl.this_update.as_secs() > now.as_secs() + FUTURE_BEARABLE
}

/// Compares the CRLs that a CA server serves with the active ones.
pub(crate) fn held_against(member: &Member, served: Vec<u8>, report: &mut DoctorReport) {
    let (about, trust) = (&*member.about, &member.trust);
    let report_as = |grade, found: String, remedy: &str, report: &mut DoctorReport| {
        report.found(Check::CrlFresh, grade, about, found, remedy);
    };
    let wrong = |found: String, remedy: &str, report: &mut DoctorReport| {
        report_as(FindingSeverity::Warning, found, remedy, report);
    };
    let examined = match trust.examine(Named::new(about.to_owned(), served)) {
        Ok(examined) => examined,
        Err(problem) => {
            return wrong(
                format!("the CRLs that it serves are invalid: {problem}"),
                "check with curl whether it is the CA server",
                report,
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
            report,
        );
    }
    let active = trust.status(UnixTime::now()).crls;
    // A CRL that was signed again with the same entries is not newer.
    let says_same = |list: &pki::FetchedCrl| {
        active.iter().any(|crl| {
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
                active_number: active,
                is_older,
                lacking,
                accepted_again: _,
                is_news: _,
            } => (
                if *is_older {
                    format!(
                        "it serves CRL number {number} of {issuer}, but the proxy uses number {active}, which is newer: the CA server serves an old copy, was restored from a backup, or serves its infrastructure CRL (enable-infra-crl)"
                    )
                } else {
                    format!(
                        "it serves CRL number {number} of {issuer}, which lacks {lacking} of the certificates that the proxy knows to be revoked; a CA server with enable-infra-crl, which serves its infrastructure CRL in place of the full CRL, causes this"
                    )
                },
                "find the cause first; if it is the infrastructure CRL, copy ca_crl.pem of the CA server and set `[trust] crl`; if it is intended, run `proscenium crl accept`",
            ),
        };
        good = false;
        // If revocations are dropped, the proxy would not receive the next revocation.
        let grade = match finding {
            CrlComparison::DropsRevocations { lacking: 1.., .. } => FindingSeverity::Failure,
            _ => FindingSeverity::Warning,
        };
        report_as(grade, found, remedy, report);
    }
    if good {
        report.passed(Check::CrlFresh, about);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crl(this_update: u64, next_update: Option<u64>, now: u64) -> ActiveCrlStatus {
        let at = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
        ActiveCrlStatus {
            issuer: "CN=Puppet CA".to_owned(),
            number: "7".to_owned(),
            entries: 0,
            this_update: at(this_update),
            next_update: next_update.map(at),
            expired: next_update.is_some_and(|next| next < now),
            accepted_until: None,
            source: "crl.pem".to_owned(),
            is_newest: true,
        }
    }

    #[test]
    fn a_crl_is_checked_by_its_date_and_its_next_update() {
        const NOW: u64 = 1_700_000_000;
        const DAY: u64 = 86_400;
        for (made, next, expected) in [
            (NOW - DAY, Some(NOW + 30 * DAY), None),
            (NOW - DAY, None, None),
            (NOW + 60, Some(NOW + 30 * DAY), None),
            (
                NOW + 3600,
                Some(NOW + 30 * DAY),
                Some(FindingSeverity::Failure),
            ),
            (
                NOW - 30 * DAY,
                Some(NOW + DAY),
                Some(FindingSeverity::Warning),
            ),
            (NOW - DAY, Some(NOW + DAY), None),
            (
                NOW - DAY,
                Some(NOW + DAY / 4),
                Some(FindingSeverity::Warning),
            ),
            (
                NOW - 2 * DAY,
                Some(NOW - DAY),
                Some(FindingSeverity::Failure),
            ),
        ] {
            let mut report = DoctorReport::default();
            let now = UnixTime::since_unix_epoch(Duration::from_secs(NOW));
            let check = CrlDates {
                check: Check::Crl,
                notice: NOTICE,
                remedy: "fetch it",
            };
            check.examine(&crl(made, next, NOW), now, &mut report);
            assert_eq!(report.worst(), expected, "{made} {next:?}: {report:?}");
        }
    }
}
