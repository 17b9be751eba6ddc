//! The turn of a fleet, which `proscenium fleet turn` takes for a command.

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};
use thiserror::Error;
use utoipa::ToSchema;

/// Maximum length of the name of a request for the turn, in bytes.
const REQUEST_BYTES_MAX: usize = 64;
/// Maximum length of the command of a turn, in bytes.
pub const TURN_COMMAND_BYTES_MAX: usize = 500;
/// Maximum of `timeout_seconds`: a day.
pub const TURN_TIMEOUT_SECONDS_MAX: u64 = 24 * 60 * 60;

/// Body of `POST /v1/fleet/turn`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TurnRequest {
    /// A name of the client's choice, the same in each repetition: 1 to 64 letters and digits.
    pub request: String,
    /// The command that will run, for the operators of the other proxies. Up to 500 bytes without control
    /// characters.
    pub command: String,
    /// For how many seconds the turn is kept if this proxy stops while it has it: 1 to 86,400.
    #[serde(deserialize_with = "whole")]
    pub timeout_seconds: u64,
    /// Whether an earlier answer to this request had the turn. Then it is taken again without waiting for the other proxies if the
    /// store has lost it.
    #[serde(default)]
    pub had_turn: bool,
}

/// Body of `POST /v1/fleet/turn/end`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TurnEnd {
    /// The name of the request.
    pub request: String,
}

/// Whether this proxy has the turn for a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TurnAnswer {
    /// Whether it has.
    pub has_turn: bool,
    /// What the request waits for, each as a sentence without a full stop.
    pub waits_for: Vec<String>,
    /// Why the store is not reached or accepts no change; none: it does.
    pub unreached: Option<String>,
    /// Why this proxy is not ready, or its entry in the store does not say so yet; none: it is ready, and the other proxies can see
    /// it.
    pub unready: Option<String>,
}

/// Why a request for the turn is refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TurnError {
    /// There is no fleet.
    #[error("this proxy is not part of a fleet: its configuration has no [fleet]")]
    NoFleet,
    /// The request is invalid.
    #[error("{0}")]
    Invalid(String),
}

/// A whole number that is not negative, also as `60.0`, which is an integer of JSON Schema.
fn whole<'de, D: Deserializer<'de>>(value: D) -> Result<u64, D::Error> {
    let number = f64::deserialize(value)?;
    if number >= 0.0 && number.fract() == 0.0 {
        Ok(number as u64)
    } else {
        Err(D::Error::custom(format!("{number} is not a whole number")))
    }
}

impl TurnRequest {
    /// Refuses values outside the limits.
    ///
    /// # Errors
    /// Which value, and what it must be.
    pub fn check(&self) -> Result<(), TurnError> {
        let is_name = self
            .request
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric());
        let invalid = if !is_name || !(1..=REQUEST_BYTES_MAX).contains(&self.request.len()) {
            format!("`request` must have 1 to {REQUEST_BYTES_MAX} letters and digits")
        } else if self.command.len() > TURN_COMMAND_BYTES_MAX
            || self.command.contains(char::is_control)
        {
            format!(
                "`command` must have at most {TURN_COMMAND_BYTES_MAX} bytes and no control characters"
            )
        } else if !(1..=TURN_TIMEOUT_SECONDS_MAX).contains(&self.timeout_seconds) {
            format!("the timeout must be between 1 s and {TURN_TIMEOUT_SECONDS_MAX} s (a day)")
        } else {
            return Ok(());
        };
        Err(TurnError::Invalid(invalid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_outside_the_limits_is_refused_by_name() {
        let request = |request: &str, command: &str, timeout_seconds| TurnRequest {
            request: request.to_owned(),
            command: command.to_owned(),
            timeout_seconds,
            had_turn: false,
        };
        let (long, command) = ("a".repeat(65), "x".repeat(501));
        for (request, expected) in [
            (request("4f", "true", 1), None),
            (request(&long[1..], &command[1..], 86_400), None),
            (request("", "true", 1), Some("`request`")),
            (request(&long, "true", 1), Some("`request`")),
            (request("a/b", "true", 1), Some("`request`")),
            (request("4f", &command, 1), Some("`command`")),
            (request("4f", "\u{1b}[2J", 1), Some("`command`")),
            (request("4f", "true", 0), Some("timeout")),
            (request("4f", "true", 86_401), Some("timeout")),
        ] {
            let refused = request.check().map_err(|error| error.to_string());
            match expected {
                None => assert_eq!(refused, Ok(())),
                Some(word) => assert!(refused.expect_err(word).contains(word)),
            }
        }
    }

    #[test]
    fn seconds_are_a_whole_number_in_any_form_of_json() {
        for (seconds, expected) in [
            ("60", Some(60)),
            ("60.0", Some(60)),
            ("1e300", Some(u64::MAX)),
            ("-1", None),
            ("1.5", None),
            ("\"60\"", None),
        ] {
            let body =
                format!(r#"{{"request": "4f", "command": "true", "timeout_seconds": {seconds}}}"#);
            let request: Option<TurnRequest> = serde_json::from_str(&body).ok();
            let found = request.map(|request| request.timeout_seconds);
            assert_eq!(found, expected, "{seconds}");
        }
    }
}
