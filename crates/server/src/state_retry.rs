//! What could not be written into the state directory is written as soon as it can be.
//!
//! Nobody else would try again: a list that has not changed is not fetched again, and a block is told once.

use std::{sync::Arc, time::Duration};

use tokio::{task::spawn_blocking, time::sleep};

use crate::{
    app::App,
    dns,
    members::{administrative, persistence_key},
    trust::{blocks, stored_crls},
};

/// How long a restart may find less than what is in force, once the directory can be used again.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Tries again what has failed, until it is dropped.
pub(crate) async fn keep(app: Arc<App>) {
    loop {
        sleep(RETRY_INTERVAL).await;
        if app.state_directory.trouble().is_some() {
            app.keep_what_is_not_kept().await;
        }
    }
}

impl App {
    async fn keep_what_is_not_kept(self: &Arc<Self>) {
        let lacks = |name| self.state_directory.lacks(name);
        if lacks(blocks::FILE) {
            self.keep_blocks().await;
        }
        if lacks(administrative::FILE) {
            self.store_member_states().await;
        }
        if lacks(stored_crls::ACCEPTED_FILE) {
            self.keep_accepted().await;
        }
        if !self.fetching.standing().unkept.is_empty() {
            self.keep_lists(Vec::new()).await;
        }
        if lacks(dns::FILE) {
            self.store_answers().await;
        }
        if lacks(persistence_key::FILE) {
            let app = Arc::clone(self);
            let _ = spawn_blocking(move || persistence_key::store(&app)).await;
        }
        let directory = Arc::clone(&self.state_directory);
        let _ = spawn_blocking(move || directory.try_again()).await;
    }
}
