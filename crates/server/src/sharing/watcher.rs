//! One watch of the store: it lists all keys, then follows the changes, on one endpoint after the other.

use std::sync::Arc;

use fleet_store::{Change, Listing, Store, StoreError};
use tokio::sync::mpsc;

use super::back_off;

/// What a watch has received.
pub(crate) enum News {
    /// All keys.
    Listed(Listing),
    /// Later changes.
    Changed(Vec<Change>),
    /// The endpoint is not reached, or the watch has ended.
    Failed(StoreError),
}

/// Watches an endpoint, and after a failure the next one. A watch is never resumed: a restored store has other changes with the
/// same revisions.
///
/// `number`: which of the watches it is.
pub(crate) async fn watch_endpoint(
    store: Arc<dyn Store>,
    (number, first): (usize, usize),
    news: mpsc::Sender<(usize, News)>,
) {
    let (mut endpoint, mut failures) = (first, 0);
    loop {
        let failed = follow(&*store, endpoint, (number, &news), &mut failures).await;
        if news.send((number, News::Failed(failed))).await.is_err() {
            return;
        }
        endpoint = (endpoint + 1) % store.endpoints().len();
        back_off(failures).await;
        failures += 1;
    }
}

/// Lists and watches until something fails.
async fn follow(
    store: &dyn Store,
    endpoint: usize,
    (number, news): (usize, &mpsc::Sender<(usize, News)>),
    failures: &mut u32,
) -> StoreError {
    let result = async {
        let session = store.connect(endpoint).await?;
        let listing = session.list().await?;
        let mut watch = session.watch(listing.revision).await?;
        *failures = 0;
        let _ = news.send((number, News::Listed(listing))).await;
        loop {
            let changes = watch.next().await?;
            if news.send((number, News::Changed(changes))).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    };
    match result.await {
        Ok(never) => never,
        Err(error) => error,
    }
}
