//! The last valid DNS answers in the state directory, which a start uses until DNS answers again.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use config::PoolConfig;
use discovery::{DnsAnswer, DnsQuestion, ServiceTarget};
use serde::{Deserialize, Serialize};
use state::StateDirectory;

use super::answers::{Accepted, Answers, CaWriter, configured};

/// Name of the file in the state directory.
pub(crate) const FILE: &str = "dns.json";
/// What a restart loses if it cannot be written.
const LOST: &str =
    "after a restart without DNS, members of SRV records and names are those of an older answer";
/// Maximum size of the file: thousands of targets with some addresses each. Larger answers are not stored.
const FILE_BYTES_MAX: usize = 16 << 20;

/// The file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    version: u32,
    answers: Vec<StoredAnswer>,
    writer: Option<CaWriter>,
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

/// Answers of an earlier process.
#[derive(Debug, Default)]
pub(crate) struct StoredAnswers {
    accepted: BTreeMap<(String, DnsQuestion), Accepted>,
    ca_writer: Option<CaWriter>,
}

impl StoredAnswers {
    /// Reads what an earlier process stored. There are no answers if there is no file.
    ///
    /// # Errors
    /// Why the file cannot be read.
    pub(crate) fn read(directory: &StateDirectory) -> Result<Self, String> {
        let bytes = match directory.read(FILE, FILE_BYTES_MAX as u64) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Ok(Self::default()),
            Err(_) if directory.is_absent(FILE) => return Ok(Self::default()),
            Err(error) => return Err(error.to_string()),
        };
        let stored: Stored = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
        if stored.version != 1 {
            return Err(format!("its format is version {}", stored.version));
        }
        let accepted = stored.answers.into_iter().map(|stored| {
            let accepted = Accepted {
                answer: stored.records.into(),
                doubtful: stored.doubtful,
                is_stored: true,
            };
            ((stored.pool, DnsQuestion::parse(&stored.name)), accepted)
        });
        // The records of a host name are addresses, and those of a service are targets.
        let accepted = accepted.filter(|((_, question), accepted)| {
            matches!(
                (question, &accepted.answer),
                (DnsQuestion::Host(_), DnsAnswer::Host(_))
                    | (DnsQuestion::Service(_), DnsAnswer::Service(_))
            )
        });
        Ok(Self {
            accepted: accepted.collect(),
            ca_writer: stored.writer,
        })
    }
}

impl Answers {
    /// Starts with the answers of an earlier process. Each pool checks them by its own rules before it uses them.
    pub(crate) fn restore(&self, stored: StoredAnswers) {
        let mut known = self.known();
        known.accepted = stored.accepted;
        known.ca_writer = stored.ca_writer;
    }

    /// Stores the answers if they have changed since they were stored. It blocks. A failure is an alarm of the state
    /// directory.
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
                writer: known.ca_writer.clone(),
            };
            serde_json::to_vec(&stored).unwrap_or_default()
        };
        match text.len() {
            ..=FILE_BYTES_MAX => {
                let _ = directory.write(FILE, &text, LOST);
            }
            bytes => tracing::warn!(bytes, "too many answers of DNS to store them for a restart"),
        }
    }

    /// Notes the member that gets the writes to the CA.
    pub(crate) fn note_ca_writer(&self, writer: CaWriter) {
        let mut known = self.known();
        if known.ca_writer.as_ref() != Some(&writer) {
            known.ca_writer = Some(writer);
            known.is_unstored = true;
        }
    }

    /// The member that got the writes to the CA before a restart, if its pool is configured as it was then.
    pub(crate) fn ca_writer(&self, pool: &PoolConfig) -> Option<CaWriter> {
        let known = self.known();
        let writer = known.ca_writer.as_ref()?;
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
