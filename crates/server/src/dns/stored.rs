//! The last valid answers of DNS in the state directory: what a start uses until DNS answers.

use std::{collections::BTreeSet, net::IpAddr};

use config::PoolConfig;
use discovery::{DnsAnswer, DnsQuestion, ServiceTarget};
use serde::{Deserialize, Serialize};

use super::answers::{Accepted, Answers};
use crate::state_directory::StateDirectory;

/// Name of the file in the state directory.
pub(crate) const FILE: &str = "dns.json";
/// Largest file: thousands of targets with some addresses each. More is not stored.
const FILE_BYTES_MAX: usize = 16 << 20;

/// The member that gets the writes to the CA.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Writer {
    pub(crate) member: String,
    pub(crate) addresses: Vec<IpAddr>,
    /// The members of the pool in the configuration. Where an operator names others, these decide.
    pub(crate) configured: Vec<String>,
}

/// The members of a pool as the configuration names them.
pub(crate) fn configured(pool: &PoolConfig) -> Vec<String> {
    let members = pool.pool.members.iter();
    members.map(|member| member.address.clone()).collect()
}

/// The file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    answers: Vec<StoredAnswer>,
    writer: Option<Writer>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredAnswer {
    pool: String,
    name: String,
    doubtful: BTreeSet<String>,
    records: Records,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Records {
    Addresses(BTreeSet<IpAddr>),
    Targets(Vec<StoredTarget>),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredTarget {
    priority: u16,
    weight: u16,
    host: String,
    port: u16,
    addresses: BTreeSet<IpAddr>,
}

impl Answers {
    /// Loads what an earlier process stored. Each pool checks it by its own rules before it is used.
    ///
    /// # Errors
    /// Why it cannot be read. Nothing is loaded then.
    pub(crate) fn restore(&self, directory: &StateDirectory) -> Result<(), String> {
        let bytes = match directory.read(FILE, FILE_BYTES_MAX as u64) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(()),
            Err(_) if directory.is_absent(FILE) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        };
        let stored: Stored = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
        if stored.version != 1 {
            return Err(format!("its format is version {}", stored.version));
        }
        let mut known = self.known();
        known.writer = stored.writer;
        let accepted = stored.answers.into_iter().map(|stored| {
            let answer = stored.records.into();
            let accepted = Accepted {
                answer,
                doubtful: stored.doubtful,
                is_stored: true,
            };
            ((stored.pool, DnsQuestion::parse(&stored.name)), accepted)
        });
        // A name of the other kind has no such records.
        known.accepted = accepted
            .filter(|((_, question), accepted)| {
                matches!(
                    (question, &accepted.answer),
                    (DnsQuestion::Host(_), DnsAnswer::Host(_))
                        | (DnsQuestion::Service(_), DnsAnswer::Service(_))
                )
            })
            .collect();
        Ok(())
    }

    /// Stores what has changed since the last time. It blocks; that it fails is an alarm of the state directory.
    pub(crate) fn store(&self, directory: &StateDirectory) {
        let text = {
            let mut known = self.known();
            if !known.is_unstored && !directory.lacks(FILE) {
                return;
            }
            known.is_unstored = false;
            let answers = known.accepted.iter().map(|((pool, question), accepted)| {
                let (name, doubtful) = (question.to_string(), accepted.doubtful.clone());
                StoredAnswer {
                    pool: pool.clone(),
                    name,
                    doubtful,
                    records: (&accepted.answer).into(),
                }
            });
            let stored = Stored {
                version: 1,
                answers: answers.collect(),
                writer: known.writer.clone(),
            };
            serde_json::to_vec(&stored).unwrap_or_default()
        };
        match text.len() {
            ..=FILE_BYTES_MAX => {
                let _ = directory.write(FILE, &text);
            }
            bytes => tracing::warn!(bytes, "too many answers of DNS to store them for a restart"),
        }
    }

    /// Remembers the member that gets the writes to the CA.
    pub(super) fn note_writer(&self, writer: Writer) {
        let mut known = self.known();
        if known.writer.as_ref() != Some(&writer) {
            known.writer = Some(writer);
            known.is_unstored = true;
        }
    }

    /// The member that got the writes to the CA before a restart, if its pool is configured as it was.
    pub(crate) fn writer(&self, pool: &PoolConfig) -> Option<Writer> {
        let known = self.known();
        let writer = known.writer.as_ref()?;
        (writer.configured == configured(pool)).then(|| writer.clone())
    }
}

impl From<Records> for DnsAnswer {
    fn from(records: Records) -> Self {
        match records {
            Records::Addresses(addresses) => Self::Host(addresses),
            Records::Targets(targets) => {
                let targets = targets.into_iter().map(|stored| {
                    let (priority, weight) = (stored.priority, stored.weight);
                    let mut target =
                        ServiceTarget::new(priority, weight, &stored.host, stored.port);
                    target.addresses = stored.addresses;
                    target
                });
                Self::service(targets.collect())
            }
        }
    }
}

impl From<&DnsAnswer> for Records {
    fn from(answer: &DnsAnswer) -> Self {
        match answer {
            DnsAnswer::Host(addresses) => Self::Addresses(addresses.clone()),
            DnsAnswer::Service(targets) => {
                let targets = targets.iter().map(|target| StoredTarget {
                    priority: target.priority,
                    weight: target.weight(),
                    host: target.host.clone(),
                    port: target.port,
                    addresses: target.addresses.clone(),
                });
                Self::Targets(targets.collect())
            }
        }
    }
}
