//! Lists that were fetched, in the state directory: what a start finds when no CA answers.
//!
//! Each issuer's list is a file of its own, as its CA signed it. Nothing here is believed for where it lies: a list
//! counts by its signature, and one with a lower number than a file of the configuration has does not count, unless that
//! file is the agent's copy and lacks some of it.

use std::collections::BTreeMap;

use admin::Timestamp;
use pki::{FetchedCrl, Fingerprint, Named, SetAsideRule, TrustStore};
use serde::{Deserialize, Serialize};

use crate::state_directory::{StateDirectory, StateError};

/// Name of what operators have accepted.
pub(crate) const ACCEPTED_FILE: &str = "crl-accepted.json";
/// Most bytes of it: an entry for each issuer, with its reason.
const ACCEPTED_BYTES_MAX: u64 = 1 << 20;
/// Digits of an issuer's digest in a file's name: enough that no two are alike.
const DIGITS: usize = 32;

/// A list that takes something back, accepted by an operator.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Accepted {
    /// What no longer counts since.
    pub(crate) rule: String,
    pub(crate) issuer: String,
    pub(crate) number: String,
    pub(crate) why: String,
    pub(crate) by: String,
    pub(crate) at: Timestamp,
}

/// What a start has found.
#[derive(Debug, Default)]
pub(crate) struct Restored {
    /// The trust store with what was kept; none: nothing was.
    pub(crate) trust: Option<TrustStore>,
    pub(crate) accepted: Vec<Accepted>,
    /// The list of each issuer that there is.
    pub(crate) kept: BTreeMap<Fingerprint, Fingerprint>,
    /// What cannot be used, and why: sentences.
    pub(crate) unusable: Vec<String>,
    /// What of the files does not count beside what was kept, and why: sentences.
    pub(crate) overruled: Vec<String>,
}

/// Puts what was kept into the store that the files make.
pub(crate) fn restore(
    store: &TrustStore,
    directory: &StateDirectory,
    list_bytes_max: u64,
) -> Restored {
    let mut restored = Restored::default();
    match accepted(directory) {
        Ok((accepted, rules)) if !rules.is_empty() => {
            restored.accepted = accepted;
            restored.trust = Some(store.with_set_aside_rules(rules));
        }
        Ok(_) => {}
        Err(why) => restored.unusable.push(format!(
            "cannot read which CRLs operators have accepted: {why}"
        )),
    }
    let mut kept = Vec::new();
    for (key, issuer) in store.issuers() {
        let base = restored.trust.as_ref().unwrap_or(store);
        match list(base, directory, key, list_bytes_max) {
            Ok(Some(list)) => {
                restored.kept.insert(key, list.fingerprint());
                kept.push(list);
            }
            Ok(None) => {}
            Err(why) => restored
                .unusable
                .push(format!("the saved CRL of {issuer} is not used: {why}")),
        }
    }
    let base = restored.trust.as_ref().unwrap_or(store);
    if let Some(trust) = base.with_restored_crls(&kept) {
        let told = trust.warnings().iter();
        let new = told.filter(|warning| !store.warnings().contains(warning));
        restored.overruled = new.cloned().collect();
        restored.trust = Some(trust);
    }
    restored
}

/// Keeps a list for the next start.
pub(crate) fn keep(directory: &StateDirectory, list: &FetchedCrl) -> Result<(), StateError> {
    directory.write(&file_of(list.key()), &list.der())
}

/// What was kept of the CAs of this name.
pub(crate) fn kept_of(
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

/// Keeps what operators have accepted.
pub(crate) fn keep_accepted(
    directory: &StateDirectory,
    accepted: &[Accepted],
) -> Result<(), StateError> {
    // A handful of strings: there is nothing in them that JSON cannot say.
    let text = serde_json::to_vec_pretty(accepted).unwrap_or_default();
    directory.write(ACCEPTED_FILE, &text)
}

fn accepted(directory: &StateDirectory) -> Result<(Vec<Accepted>, Vec<SetAsideRule>), String> {
    let read = directory.read(ACCEPTED_FILE, ACCEPTED_BYTES_MAX);
    let Some(bytes) = read.map_err(|error| error.to_string())? else {
        return Ok((Vec::new(), Vec::new()));
    };
    let accepted: Vec<Accepted> =
        serde_json::from_slice(&bytes).map_err(|error| format!("{ACCEPTED_FILE}: {error}"))?;
    let rules: Result<Vec<SetAsideRule>, _> = accepted.iter().map(|one| one.rule.parse()).collect();
    let rules = rules.map_err(|error: pki::SetAsideError| format!("{ACCEPTED_FILE}: {error}"))?;
    Ok((accepted, rules))
}

/// The list of one issuer, if one was kept.
fn list(
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
    let mut lists = examined.crls.into_iter();
    match lists.find(|(list, _)| list.key() == key) {
        Some((list, _)) => Ok(Some(list)),
        None => Err(match examined.unusable.is_empty() {
            true => format!("{name} contains the CRL of another CA"),
            false => examined.unusable.join("; "),
        }),
    }
}

fn file_of(key: Fingerprint) -> String {
    let key = key.to_string();
    format!("crl-{}.der", &key[..DIGITS])
}
