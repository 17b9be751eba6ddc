//! What operators see and control: the status, `explain`, `who`, the admin API's operations, and which accounts may use them.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "it reads the clock and what the kernel reports about the process"
)]

mod account_names;
mod account_permissions;
mod control;
mod explain;
mod permissions;
mod proc_status;
mod requests;
mod status;
mod traffic;
mod who;

use std::sync::Arc;

use admin::Control;
use lifecycle::App;

pub use explain::{Explainer, prepare_for_explain};

/// The operations of the admin API on the running process.
pub fn control(app: Arc<App>) -> Arc<dyn Control> {
    Arc::new(control::Operator::new(app))
}
