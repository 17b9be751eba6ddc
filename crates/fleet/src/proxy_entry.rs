//! The entry of each proxy of a fleet in the store, and the differences between proxies.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ActiveCrls;

/// A proxy of the fleet. Its key in the store has a lease, so that a proxy that has failed disappears soon.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProxyEntry {
    /// Its certname.
    pub name: String,
    /// Its version and the commit of its sources.
    pub version: String,
    /// When it started, in milliseconds since the epoch.
    pub started: u64,
    /// Its clock when it wrote this, in milliseconds since the epoch.
    pub clock: u64,
    /// `starting`, `serving` or `draining`.
    pub phase: String,
    /// Why a load balancer should send agents to another proxy. `None` if the proxy is ready.
    pub unready: Option<String>,
    /// Digest of each section of its configuration, without certificates, names and addresses of the host.
    pub sections: BTreeMap<String, String>,
    /// Its active CRLs.
    pub crls: ActiveCrls,
    /// Its active alarms.
    pub alarms: BTreeSet<String>,
    /// Members that get no new requests from it, with the requests that they still have, including those of a former
    /// process.
    pub withdrawn: Vec<WithdrawnMember>,
    /// Members whose drain by another proxy this proxy does not apply, as `pool/address`.
    pub withheld: BTreeSet<String>,
    /// Digest of the records that it has.
    pub records: String,
    /// The highest revision of the store whose records it has applied.
    pub applied: i64,
}

/// A proxy of the fleet, as this proxy knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeardProxy {
    /// Its last entry in the store.
    pub entry: ProxyEntry,
    /// When this proxy received the entry, by its own clock in milliseconds since the epoch. For an entry that this proxy found
    /// in its first list, the time by the clock of the other proxy.
    pub heard_at: u64,
}

/// The prefix of proxies' names in the keys of the store.
const PROXIES: &str = "proxies/";
/// Maximum length of an entry. A longer one is ignored.
pub const ENTRY_BYTES_MAX: usize = 256 << 10;

/// Why the entry of a proxy is ignored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EntryFault {
    /// It is too long.
    #[error("it is longer than {ENTRY_BYTES_MAX} bytes")]
    TooLong,
    /// It cannot be read.
    #[error("it is not the entry of a proxy: {0}")]
    Form(String),
    /// It is stored at the key of another proxy.
    #[error("it is the entry of {0:?}")]
    Name(String),
}

impl ProxyEntry {
    /// The key in the store of the entry of the proxy with this name.
    #[must_use]
    pub fn key_of(name: &str) -> String {
        format!("{PROXIES}{name}")
    }

    /// The proxy whose entry is at this key. `None` if it is not the key of an entry.
    #[must_use]
    pub fn name_in(key: &str) -> Option<&str> {
        key.strip_prefix(PROXIES).filter(|name| !name.is_empty())
    }

    /// Reads the entry of the proxy with this name.
    ///
    /// # Errors
    /// Why it is ignored.
    pub fn parse(name: &str, bytes: &[u8]) -> Result<Self, EntryFault> {
        if bytes.len() > ENTRY_BYTES_MAX {
            return Err(EntryFault::TooLong);
        }
        let entry: Self =
            serde_json::from_slice(bytes).map_err(|error| EntryFault::Form(error.to_string()))?;
        if entry.name == name {
            Ok(entry)
        } else {
            Err(EntryFault::Name(entry.name))
        }
    }

    /// The bytes for the store.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Whether two entries differ only in the time of writing.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let at = |clock| Self {
            clock,
            ..other.clone()
        };
        *self == at(self.clock)
    }
}

/// A member that gets no new requests from a proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WithdrawnMember {
    /// The pool.
    pub pool: String,
    /// The address.
    pub member: String,
    /// Requests and tunnels that it still has.
    pub in_flight: u64,
}

/// A property in which proxies differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The property: `version`, `configuration SECTION`, `CRL of ISSUER`, `clock` or `records`.
    pub what: String,
    /// The values, each with the proxies that have it.
    pub values: BTreeMap<String, Vec<String>>,
}

/// Maximum difference of clocks that is not reported, in milliseconds.
const CLOCK_BEARABLE: i64 = 5_000;

/// The differences between the proxies. Each entry comes with the time at which this proxy received it, by its own
/// clock, in milliseconds since the epoch.
#[must_use]
pub fn differences(entries: &[(ProxyEntry, u64)]) -> Vec<Difference> {
    let entry = |(entry, _): &(ProxyEntry, u64)| entry.clone();
    let all: Vec<_> = entries.iter().map(entry).collect();
    let mut found = vec![difference("version", &all, |entry| {
        Some(entry.version.clone())
    })];
    let sections: BTreeSet<_> = all.iter().flat_map(|entry| entry.sections.keys()).collect();
    found.extend(sections.into_iter().map(|section| {
        let digest =
            |entry: &ProxyEntry| Some(entry.sections.get(section).cloned().unwrap_or_default());
        difference(&format!("configuration {section}"), &all, digest)
    }));
    let crls = all.iter().flat_map(|entry| &entry.crls);
    let issuers: BTreeMap<_, _> = crls.map(|(key, crl)| (key, &crl.issuer)).collect();
    found.extend(issuers.into_iter().map(|(key, issuer)| {
        let number = |entry: &ProxyEntry| {
            let crl = entry.crls.get(key);
            Some(crl.map_or_else(|| "none".to_owned(), |crl| crl.number.clone()))
        };
        difference(&format!("CRL of {issuer}"), &all, number)
    }));
    found.push(difference("records", &all, |entry| {
        Some(entry.records.clone())
    }));
    let clocks = entries.iter().filter_map(|(entry, heard_at)| {
        let offset = i64::try_from(entry.clock).ok()? - i64::try_from(*heard_at).ok()?;
        (offset.abs() > CLOCK_BEARABLE)
            .then(|| (format!("{:+} s", offset / 1000), vec![entry.name.clone()]))
    });
    let clocks: BTreeMap<_, _> = clocks.collect();
    let what = "clock".to_owned();
    found.extend((!clocks.is_empty()).then_some(Difference {
        what,
        values: clocks,
    }));
    let differs =
        |difference: &Difference| difference.what == "clock" || difference.values.len() > 1;
    found.into_iter().filter(differs).collect()
}

fn difference(
    what: &str,
    all: &[ProxyEntry],
    value: impl Fn(&ProxyEntry) -> Option<String>,
) -> Difference {
    let mut values = BTreeMap::<String, Vec<String>>::new();
    for entry in all {
        if let Some(value) = value(entry) {
            values.entry(value).or_default().push(entry.name.clone());
        }
    }
    Difference {
        what: what.to_owned(),
        values,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ActiveCrlEntry;

    fn entry(name: &str) -> ProxyEntry {
        ProxyEntry {
            name: name.to_owned(),
            version: "1".to_owned(),
            clock: 1_000_000,
            sections: [("pools.compilers".to_owned(), "aa".to_owned())].into(),
            crls: [("ca".to_owned(), crl("7"))].into(),
            records: "r".to_owned(),
            ..ProxyEntry::default()
        }
    }

    fn crl(number: &str) -> ActiveCrlEntry {
        ActiveCrlEntry {
            issuer: "CN=CA".to_owned(),
            number: number.to_owned(),
            digest: "dd".to_owned(),
        }
    }

    #[test]
    fn an_entry_is_read_at_its_own_key_with_fields_of_newer_versions() {
        let own = entry("p1");
        assert_eq!(ProxyEntry::parse("p1", &own.to_bytes()), Ok(own));
        let newer = br#"{"name":"p1","colour":"red"}"#;
        assert!(ProxyEntry::parse("p1", newer).is_ok());
        let other = EntryFault::Name("p1".to_owned());
        assert_eq!(ProxyEntry::parse("p2", newer), Err(other));
        assert!(matches!(
            ProxyEntry::parse("p1", b"{"),
            Err(EntryFault::Form(_))
        ));
        let long = vec![b' '; ENTRY_BYTES_MAX + 1];
        assert_eq!(ProxyEntry::parse("p1", &long), Err(EntryFault::TooLong));
        assert_eq!(ProxyEntry::name_in(&ProxyEntry::key_of("p1")), Some("p1"));
        assert_eq!(ProxyEntry::name_in("proxies/"), None);
        assert_eq!(ProxyEntry::name_in("blocks/p1"), None);
    }

    #[test]
    fn equal_proxies_do_not_differ_and_others_differ_by_what_they_have() {
        type Change = fn(&mut ProxyEntry);
        let changes: [(Change, &str); 8] = [
            (|_| {}, ""),
            (|entry| entry.version = "2".to_owned(), "version"),
            (
                |entry| {
                    drop(
                        entry
                            .sections
                            .insert("pools.compilers".to_owned(), "bb".to_owned()),
                    )
                },
                "configuration pools.compilers",
            ),
            (
                |entry| drop(entry.sections.insert("csr".to_owned(), "cc".to_owned())),
                "configuration csr",
            ),
            (|entry| entry.crls.clear(), "CRL of CN=CA"),
            (
                |entry| drop(entry.crls.insert("ca".to_owned(), crl("8"))),
                "CRL of CN=CA",
            ),
            (|entry| entry.records = "s".to_owned(), "records"),
            (|entry| entry.clock += 5_001, "clock"),
        ];
        for (change, expected) in changes {
            let (first, mut second) = (entry("p1"), entry("p2"));
            change(&mut second);
            let found = differences(&[(first, 1_000_000), (second, 1_000_000)]);
            let names: Vec<_> = found
                .iter()
                .map(|difference| difference.what.as_str())
                .collect();
            let expected: Vec<_> = Some(expected)
                .filter(|name| !name.is_empty())
                .into_iter()
                .collect();
            assert_eq!(names, expected);
        }
    }
}
