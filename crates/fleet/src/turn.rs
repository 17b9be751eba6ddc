//! The turn of a fleet: the proxy that may be restarted or upgraded now, and the required state of the others.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ProxyEntry;

/// The turn in the store. Its key has a lease, so that the turn of a proxy that has failed ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TurnRecord {
    /// The certname of the proxy that has it.
    pub proxy: String,
    /// The operator's request for which it was taken. A new process of the proxy recognises the turn by it.
    pub request: String,
    /// The account that requested it, as `root`.
    pub by: String,
    /// The command that runs meanwhile.
    pub command: String,
    /// When it was taken, in milliseconds since the epoch.
    pub since: u64,
    /// How long the turn is reserved while the proxy is stopped, in seconds.
    pub timeout: u64,
    /// The lease of its key.
    pub lease: i64,
}

/// The key of the turn in the store.
pub const TURN_KEY: &str = "turn";
/// Maximum length of a turn. A longer one is not read.
pub const TURN_BYTES_MAX: usize = 16 << 10;

/// Why a turn cannot be read. It counts as taken nevertheless.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TurnFault {
    /// It is too long.
    #[error("it is longer than {TURN_BYTES_MAX} bytes")]
    TooLong,
    /// It cannot be read.
    #[error("it is not a turn: {0}")]
    Form(String),
}

impl TurnRecord {
    /// Reads a turn.
    ///
    /// # Errors
    /// Why it cannot be read.
    pub fn parse(bytes: &[u8]) -> Result<Self, TurnFault> {
        if bytes.len() > TURN_BYTES_MAX {
            return Err(TurnFault::TooLong);
        }
        let turn: Self =
            serde_json::from_slice(bytes).map_err(|error| TurnFault::Form(error.to_string()))?;
        if turn.proxy.is_empty() {
            Err(TurnFault::Form("it names no proxy".to_owned()))
        } else {
            Ok(turn)
        }
    }

    /// The bytes for the store.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// How long the turn is reserved while the proxy is stopped.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        Duration::from_secs(self.timeout)
    }
}

/// The other registered proxies that are not ready, with the reason. A proxy may take the turn only if there are none.
#[must_use]
pub fn not_ready<'a>(
    entries: impl IntoIterator<Item = &'a ProxyEntry>,
    proxy: &str,
) -> Vec<(String, String)> {
    let others = entries.into_iter().filter(|entry| entry.name != proxy);
    let waited_for = others.filter_map(|entry| {
        let why = match (&entry.unready, entry.phase.as_str()) {
            (Some(why), _) => why.clone(),
            (None, "serving") => return None,
            (None, phase) => format!("its phase is {phase:?}"),
        };
        Some((entry.name.clone(), why))
    });
    waited_for.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn() -> TurnRecord {
        TurnRecord {
            proxy: "p1".to_owned(),
            request: "4f".to_owned(),
            by: "uid 0".to_owned(),
            command: "systemctl restart proscenium".to_owned(),
            since: 7,
            timeout: 1800,
            lease: 3,
        }
    }

    #[test]
    fn a_turn_is_written_and_read_and_a_newer_version_may_add_fields() {
        assert_eq!(TurnRecord::parse(&turn().to_bytes()), Ok(turn()));
        let newer = br#"{"proxy": "p1", "colour": "red"}"#;
        let expected = TurnRecord {
            proxy: "p1".to_owned(),
            ..TurnRecord::default()
        };
        assert_eq!(TurnRecord::parse(newer), Ok(expected));
        assert_eq!(turn().timeout(), Duration::from_secs(1800));
    }

    #[test]
    fn a_turn_that_cannot_be_read_says_why() {
        for bytes in [&b"{"[..], b"[]", b"{}", br#"{"proxy": 7}"#] {
            let fault = TurnRecord::parse(bytes).expect_err("a fault");
            assert!(matches!(fault, TurnFault::Form(_)), "{fault}");
        }
        let long = vec![b' '; TURN_BYTES_MAX + 1];
        assert_eq!(TurnRecord::parse(&long), Err(TurnFault::TooLong));
    }

    #[test]
    fn each_other_proxy_that_is_not_ready_is_named() {
        let entry = |name: &str, phase: &str, unready: Option<&str>| ProxyEntry {
            name: name.to_owned(),
            phase: phase.to_owned(),
            unready: unready.map(str::to_owned),
            ..ProxyEntry::default()
        };
        for (entries, expected) in [
            (vec![], vec![]),
            // The state of this proxy itself does not matter, because the command may repair it.
            (vec![entry("p1", "draining", Some("draining"))], vec![]),
            (vec![entry("p2", "serving", None)], vec![]),
            (
                vec![
                    entry("p2", "serving", Some("no compiler is available")),
                    entry("p3", "draining", Some("draining")),
                    entry("p4", "serving", None),
                ],
                vec![("p2", "no compiler is available"), ("p3", "draining")],
            ),
            // A phase of another version that this version does not know.
            (
                vec![entry("p2", "starting", None), entry("p3", "", None)],
                vec![
                    ("p2", "its phase is \"starting\""),
                    ("p3", "its phase is \"\""),
                ],
            ),
        ] {
            let found = not_ready(&entries, "p1");
            let found: Vec<_> = found
                .iter()
                .map(|(name, why)| (name.as_str(), why.as_str()))
                .collect();
            assert_eq!(found, expected);
        }
    }
}
