//! Revocations in the state directory. They stay active, whatever CRLs the configured files contain at a start.
//!
//! Each issuer has two files. One is the CRL that was fetched last, as the CA signed it; the proxy trusts it only because of
//! the signature. The other has the serials that other CRLs revoke and that this CRL does not list; it has no signature.

use std::collections::BTreeMap;

use admin::Timestamp;
use config::Fetch;
use pki::{
    FetchedCrl, Fingerprint, Named, RetainedSerials, SetAsideRule, StoredRevocations, TrustStore,
};
use serde::{Deserialize, Serialize};
use state::{StateDirectory, state_directory::StateError};

/// Name of the file with the CRLs that operators have accepted.
pub(crate) const ACCEPTED_FILE: &str = "crl-accepted.json";
/// What a restart loses if this file cannot be written.
const ACCEPTED_LOST: &str =
    "after a restart, CRLs that an operator has accepted do not count as accepted";
const CRL_LOST: &str = "after a restart, revocations that only this CRL has do not apply until the proxy has fetched a CRL";
const RETAINED_LOST: &str =
    "after a restart, certificates whose revocation a CRL dropped are accepted";
/// Name to which the file is moved if it is damaged.
pub(crate) const ACCEPTED_ASIDE: &str = "crl-accepted.json.damaged";
/// How the names of the files of this module begin.
pub const FILE_PREFIX: &str = "crl-";
/// Maximum size of the file with accepted CRLs, which has an entry with a reason for each issuer.
const ACCEPTED_BYTES_MAX: u64 = 1 << 20;
/// Maximum size of a file with serials. Six million serials of the maximum length fit.
const RETAINED_BYTES_MAX: u64 = 256 << 20;
/// Suffix of the name of a damaged file, which is not used.
const DAMAGED: &str = ".damaged";
/// Digits of an issuer's digest in a file name, enough to be unique.
const DIGITS: usize = 32;

/// A CRL that drops revocations and that an operator has accepted.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcceptedCrl {
    /// The rule for the CRLs that are no longer used because of the accepted one.
    pub(crate) rule: String,
    pub(crate) issuer: String,
    pub(crate) number: String,
    pub(crate) why: String,
    pub(crate) by: String,
    pub(crate) at: Timestamp,
}

/// The CRLs of the state directory, applied to a trust store.
#[derive(Debug, Default)]
pub struct RestoredCrls {
    /// The trust store with the stored CRLs, until it is applied. `None` if they change nothing.
    pub trust: Option<TrustStore>,
    /// Whether that trust store was applied to a generation.
    pub is_applied: bool,
    pub(crate) accepted: Vec<AcceptedCrl>,
    /// The digest of the stored CRL of each issuer.
    pub(crate) stored: BTreeMap<Fingerprint, Fingerprint>,
    /// The digest of the stored serials of each issuer. These are the revoked serials that its stored CRL does not list.
    pub(crate) retained: BTreeMap<Fingerprint, Fingerprint>,
    /// Messages about stored files that cannot be used.
    pub unusable: Vec<String>,
    /// The messages among these that are about serials and accepted CRLs, which no fetch restores.
    pub damaged: Vec<String>,
    /// Messages about configured CRLs that are not used because of stored ones.
    pub overruled: Vec<String>,
}

/// Applies the stored revocations to the trust store that was built from the configured files.
pub fn restore(
    store: &TrustStore,
    directory: &StateDirectory,
    fetch: Option<Fetch>,
) -> RestoredCrls {
    // The size limit for responses may have been lowered since the CRL was stored.
    let fetched = fetch.map_or(0, |fetch| fetch.body_bytes_max);
    let crl_bytes_max = RETAINED_BYTES_MAX.max(fetched);
    let mut restored = RestoredCrls::default();
    match read_accepted(directory) {
        Ok((accepted, rules)) if !rules.is_empty() => {
            restored.accepted = accepted;
            restored.trust = Some(store.with_set_aside_rules(rules));
        }
        Ok(_) | Err(_) => {}
    }
    restored.damaged.extend(damage_of_accepted(directory));
    let mut crls = Vec::new();
    for (key, issuer) in store.issuers() {
        let base = restored.trust.as_ref().unwrap_or(store);
        let mut of_issuer = StoredRevocations {
            key,
            crl: None,
            retained: RetainedSerials::default(),
        };
        match read_crl(base, directory, key, crl_bytes_max) {
            Ok(Some(crl)) => {
                restored.stored.insert(key, crl.fingerprint());
                of_issuer.crl = Some(crl);
            }
            Ok(None) => {}
            Err(why) => restored
                .unusable
                .push(format!("the saved CRL of {issuer} is not used: {why}")),
        }
        match read_retained(directory, key) {
            Ok(Some(retained)) => {
                restored.retained.insert(key, retained.fingerprint());
                of_issuer.retained = retained;
            }
            Ok(None) => {}
            Err(_) => {}
        }
        restored.damaged.extend(damage(directory, key, issuer));
        crls.push(of_issuer);
    }
    restored.unusable.extend(restored.damaged.iter().cloned());
    let base = restored.trust.as_ref().unwrap_or(store);
    if let Some(trust) = base.with_restored(&crls, fetch.is_some()) {
        let warnings = trust.warnings().iter();
        let new = warnings.filter(|warning| !store.warnings().contains(warning));
        restored.overruled = new.cloned().collect();
        restored.trust = Some(trust);
    }
    restored
}

pub(crate) fn write(directory: &StateDirectory, crl: &FetchedCrl) -> Result<(), StateError> {
    directory.write(&file_of(crl.key()), &crl.der(), CRL_LOST)
}

/// Whether a CRL of this issuer is stored.
pub(crate) fn is_present(directory: &StateDirectory, crl: &FetchedCrl) -> bool {
    !directory.is_absent(&file_of(crl.key()))
}

/// Stores the revoked serials of an issuer that its stored CRL does not list.
pub(crate) fn write_retained(
    directory: &StateDirectory,
    key: Fingerprint,
    retained: &RetainedSerials,
) -> Result<(), StateError> {
    let text = retained.text();
    directory.write(&retained_file_of(key), text.as_bytes(), RETAINED_LOST)
}

pub(crate) fn read_retained(
    directory: &StateDirectory,
    key: Fingerprint,
) -> Result<Option<RetainedSerials>, String> {
    read_serials(directory, &retained_file_of(key))
}

fn read_serials(directory: &StateDirectory, name: &str) -> Result<Option<RetainedSerials>, String> {
    let read = directory.read(name, RETAINED_BYTES_MAX);
    let Some(bytes) = read.map_err(|error| error.to_string())? else {
        return Ok(None);
    };
    let retained = RetainedSerials::read(&bytes);
    retained.map(Some).map_err(|error| error.to_string())
}

/// Moves damaged files aside, so that no later write replaces them, except the files of `intact` CAs. Returns messages about
/// all damaged files, also those from earlier starts. `known` are the messages so far.
///
/// It runs at each fetch, so it reads no file twice.
pub(crate) fn set_damaged_aside(
    directory: &StateDirectory,
    store: &TrustStore,
    intact: &BTreeMap<Fingerprint, Fingerprint>,
    known: &[String],
) -> Vec<String> {
    let mut damaged = Vec::new();
    for (key, issuer) in store.issuers() {
        let name = retained_file_of(key);
        let aside = format!("{name}{DAMAGED}");
        // The first damaged file has the earliest revocations; a later one has fewer.
        if directory.is_absent(&aside) {
            let is_intact = intact.contains_key(&key) || directory.is_absent(&name);
            if is_intact || read_serials(directory, &name).is_ok() {
                continue;
            }
            // If the rename fails, the alarm about the directory gives the reason.
            let _ = directory.rename(&name, &aside);
        }
        let known = known.iter().find(|known| known.contains(&aside)).cloned();
        damaged.extend(known.or_else(|| damage(directory, key, issuer)));
    }
    if !directory.is_absent(ACCEPTED_ASIDE) {
        let known = known.iter().find(|known| known.contains(ACCEPTED_ASIDE));
        damaged.extend(known.cloned().or_else(|| damage_of_accepted(directory)));
    }
    damaged
}

/// What is lost with the file of accepted CRLs, if it is damaged now or was damaged when the proxy moved it aside.
fn damage_of_accepted(directory: &StateDirectory) -> Option<String> {
    let why = match read_accepted(directory) {
        Err(why) => why,
        Ok(_) if directory.is_absent(ACCEPTED_ASIDE) => return None,
        Ok(_) => format!("{ACCEPTED_FILE} was damaged when the proxy read it"),
    };
    Some(format!(
        "cannot read which CRLs operators have accepted, so CRLs that they replaced count again: {why}. Stop the proxy and restore this file from a backup, or accept the CRLs again; then remove {ACCEPTED_ASIDE}, which ends this alarm at the next start or reload"
    ))
}

/// What is lost with the stored serials of a CA, if they are damaged now or were damaged when the proxy moved them aside.
fn damage(directory: &StateDirectory, key: Fingerprint, issuer: &str) -> Option<String> {
    let name = retained_file_of(key);
    let aside = format!("{name}{DAMAGED}");
    let why = match read_serials(directory, &name) {
        Err(why) => why,
        Ok(_) if directory.is_absent(&aside) => return None,
        Ok(_) => match read_serials(directory, &aside) {
            Err(why) => why,
            Ok(_) => "it was damaged at an earlier start".to_owned(),
        },
    };
    Some(format!(
        "the saved revocations of {issuer} are not used, so certificates that its CRLs no longer list are accepted: {name}: {why}. Stop the proxy and restore this file from a backup, or revoke the certificates again on the CA; then remove {aside}, which ends this alarm at the next start or reload"
    ))
}

/// The stored CRLs of all CAs with this name, as DER.
pub fn read_of(
    store: &TrustStore,
    directory: &StateDirectory,
    issuer: &str,
    bytes_max: u64,
) -> Vec<Vec<u8>> {
    let issuers = store.issuers().into_iter();
    let named = issuers.filter(|(_, name)| *name == issuer);
    let read = |(key, _)| directory.read(&file_of(key), bytes_max).ok().flatten();
    named.filter_map(read).collect()
}

/// Stores the CRLs that operators have accepted.
pub(crate) fn write_accepted(
    directory: &StateDirectory,
    accepted: &[AcceptedCrl],
) -> Result<(), StateError> {
    // The value contains only strings, so serializing it cannot fail.
    let text = serde_json::to_vec_pretty(accepted).unwrap_or_default();
    if directory.is_absent(ACCEPTED_ASIDE) && read_accepted(directory).is_err() {
        directory.rename(ACCEPTED_FILE, ACCEPTED_ASIDE)?;
    }
    directory.write(ACCEPTED_FILE, &text, ACCEPTED_LOST)
}

fn read_accepted(
    directory: &StateDirectory,
) -> Result<(Vec<AcceptedCrl>, Vec<SetAsideRule>), String> {
    let read = directory.read(ACCEPTED_FILE, ACCEPTED_BYTES_MAX);
    let Some(bytes) = read.map_err(|error| error.to_string())? else {
        return Ok((Vec::new(), Vec::new()));
    };
    let accepted: Vec<AcceptedCrl> =
        serde_json::from_slice(&bytes).map_err(|error| format!("{ACCEPTED_FILE}: {error}"))?;
    let rules: Result<Vec<SetAsideRule>, _> = accepted.iter().map(|one| one.rule.parse()).collect();
    let rules = rules.map_err(|error: pki::SetAsideError| format!("{ACCEPTED_FILE}: {error}"))?;
    Ok((accepted, rules))
}

/// The stored CRL of one issuer. `None` if there is no file.
fn read_crl(
    store: &TrustStore,
    directory: &StateDirectory,
    key: Fingerprint,
    bytes_max: u64,
) -> Result<Option<FetchedCrl>, String> {
    let name = file_of(key);
    let read = directory.read(&name, bytes_max);
    let Some(bytes) = read.map_err(|error| error.to_string())? else {
        return Ok(None);
    };
    let path = directory.path().join(&name).display().to_string();
    let examined = store.examine_der(Named::new(path, bytes));
    let examined = examined.map_err(|error| error.to_string())?;
    let mut crls = examined.crls.into_iter();
    match crls.find(|(crl, _)| crl.key() == key) {
        Some((crl, _)) => Ok(Some(crl)),
        None => Err(match examined.unusable.is_empty() {
            true => format!("{name} contains the CRL of another CA"),
            false => examined.unusable.join("; "),
        }),
    }
}

fn file_of(key: Fingerprint) -> String {
    let key = key.to_string();
    format!("{FILE_PREFIX}{}.der", &key[..DIGITS])
}

pub(crate) fn retained_file_of(key: Fingerprint) -> String {
    let key = key.to_string();
    format!("{FILE_PREFIX}{}.serials", &key[..DIGITS])
}
