//! The rights of accounts in the admin API, and the audit log of changes.

use std::fmt::Display;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::OperatorAccount;

/// What an account may do over the admin socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Permission {
    /// Nothing.
    None,
    /// Read the status.
    Read,
    /// Read, and change the running proxy.
    Operate,
}

/// One change that an operator made or tried to make: one line of the audit log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Name of the account, with its proxy if that is another proxy of the fleet.
    pub account: String,
    /// User ID of the account; none if the kernel does not report it.
    pub uid: Option<u32>,
    /// Where the change was made, if it was made on another proxy of the fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<AuditOrigin>,
    /// The command: `drain`, `block` or `reload`, for example.
    pub action: String,
    /// The subject of the command.
    pub subject: Value,
    /// The operator's reason; empty without one.
    pub why: String,
    /// The state before the change.
    pub before: Value,
    /// The state after the change.
    pub after: Value,
    /// `done`, or why nothing was changed.
    pub result: String,
}

/// The place of a change that was made on another proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditOrigin {
    /// The certname of that proxy.
    pub proxy: String,
    /// The account on its host, as `root`. A proxy of an earlier version wrote `uid 0`.
    pub account: String,
}

impl AuditEntry {
    /// The entry of a command about a subject, with the result `done`. [`result`](Self::result) replaces that result if the
    /// command has failed.
    pub(crate) fn new(by: &OperatorAccount, action: &str, subject: Value) -> Self {
        Self {
            account: by.name.clone(),
            uid: by.uid,
            origin: None,
            action: action.to_owned(),
            subject,
            why: String::new(),
            before: Value::Null,
            after: Value::Null,
            result: DONE.to_owned(),
        }
    }

    /// Whether the change was made.
    pub fn is_done(&self) -> bool {
        self.result == DONE
    }

    /// Adds the operator's reason.
    pub(crate) fn why(mut self, why: &str) -> Self {
        why.clone_into(&mut self.why);
        self
    }

    /// Adds the states before and after the change.
    pub(crate) fn change(mut self, before: &impl Serialize, after: &impl Serialize) -> Self {
        self.before = json!(before);
        self.after = json!(after);
        self
    }

    /// Adds the error of a change that failed.
    pub(crate) fn result<T, E: Display>(mut self, outcome: &Result<T, E>) -> Self {
        if let Err(error) = outcome {
            self.result = error.to_string();
        }
        self
    }
}

/// The result of a change that was made.
const DONE: &str = "done";
