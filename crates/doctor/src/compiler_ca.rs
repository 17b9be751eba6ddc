//! The CA that makes compilers accept the proxy and no other client: its dates, and those of its CRL.
//!
//! The proxy does not use these files. Compilers do, and they refuse the proxy when one of them has expired. doctor
//! reads the copies that `proscenium init --compiler-ca` places beside the proxy's certificate.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, Read},
    path::Path,
    time::Duration,
};

use identity::{ClientIdentity, Reason};
use pki::{Credential, Named, TrustMaterial, TrustStore};
use rustls_pki_types::UnixTime;

use crate::{
    Check, DoctorReport, FindingSeverity,
    certificates::{CA_NOTICE, within},
    crls::CrlDates,
};
use lifecycle::PreparedStart;

/// Name of the CA certificate beside the proxy's certificate for compilers.
pub const CA_FILE: &str = "proxy-ca.pem";
/// Name of the CA's CRL beside the proxy's certificate for compilers.
pub const CRL_FILE: &str = "proxy-ca-crl.pem";

/// A CRL that expires within this time is reported. An operator replaces it by hand on every compiler.
const CRL_NOTICE: Duration = Duration::from_secs(30 * 86_400);
const FILE_BYTES_MAX: u64 = 1 << 20;
const RENEW: &str = "create a new CA with `proscenium init --compiler-ca`, let the compilers accept both CAs, then replace the proxy's certificate";

/// Examines the CA of each certificate for members that has a CA certificate beside it.
pub(crate) fn examine(prepared: &PreparedStart, now: UnixTime, report: &mut DoctorReport) {
    let mut seen = BTreeSet::new();
    for tls in prepared.member_tls() {
        let chain = &tls.settings.credential.chain;
        let ca = chain.with_file_name(CA_FILE);
        if ca.exists() && seen.insert(chain.clone()) {
            beside(chain, &ca, &tls.credential, now, report);
        }
    }
}

fn beside(
    chain: &Path,
    ca: &Path,
    credential: &Credential,
    now: UnixTime,
    report: &mut DoctorReport,
) {
    let about = ca.display().to_string();
    let store = match store(ca, &chain.with_file_name(CRL_FILE)) {
        Ok(store) => store,
        Err(found) => {
            return report.found(
                Check::CompilerCa,
                FindingSeverity::Warning,
                &about,
                found,
                "copy both files again from the directory that `proscenium init --compiler-ca` created",
            );
        }
    };
    let status = store.status(now);
    for ca in &status.cas {
        match within(ca.not_before, ca.not_after, now, CA_NOTICE) {
            None => report.passed(Check::CompilerCa, &about),
            Some((grade, found)) => report.found(Check::CompilerCa, grade, &about, found, RENEW),
        }
    }
    let dates = CrlDates {
        check: Check::CompilerCa,
        notice: CRL_NOTICE,
        remedy: RENEW,
    };
    for crl in &status.crls {
        dates.examine(crl, now, report);
    }
    issued(&store, chain, credential, now, report);
}

/// Reports how a compiler verifies the proxy's certificate. Another check tests its dates.
fn issued(
    store: &TrustStore,
    chain: &Path,
    credential: &Credential,
    now: UnixTime,
    report: &mut DoctorReport,
) {
    let ClientIdentity::Refused(refusal) = store.verify(credential.chain(), now).identity else {
        return;
    };
    let grade = match refusal.reason {
        Reason::Revoked => FindingSeverity::Failure,
        Reason::UnknownIssuer | Reason::BadSignature => FindingSeverity::Warning,
        _ => return,
    };
    report.found(
        Check::CompilerCa,
        grade,
        &chain.display().to_string(),
        format!("compilers that use {CA_FILE} and {CRL_FILE} refuse it: {}", refusal.text()),
        "install the certificate, the CA and the CRL from one run of `proscenium init --compiler-ca`, here and on the compilers",
    );
}

fn store(ca: &Path, crl: &Path) -> Result<TrustStore, String> {
    let named = |path: &Path| match read(path) {
        Ok(bytes) => Ok(vec![Named::new(path.display().to_string(), bytes)]),
        Err(error) => Err(format!("cannot read {}: {error}", path.display())),
    };
    let material = TrustMaterial {
        bundle: named(ca)?,
        crls: named(crl)?,
        ..TrustMaterial::default()
    };
    TrustStore::build(&material, &Default::default(), &Default::default(), None).map_err(
        |problems| {
            let problems: Vec<_> = problems.iter().map(ToString::to_string).collect();
            problems.join("; ")
        },
    )
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(FILE_BYTES_MAX)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}
