//! One watch of the store: it lists all keys, then follows the changes, on one endpoint after the other.

use std::sync::Arc;

use fleet_store::{Change, Listing, Store, StoreError};
use tokio::{sync::mpsc, time::sleep};

use super::sending::back_off;

/// What a watch has received.
pub(crate) enum News {
    /// All keys.
    Listed(Listing),
    /// Later changes.
    Changed(Vec<Change>),
    /// The endpoint cannot be reached, or the watch has ended.
    Failed(StoreError),
}

/// Watches an endpoint, and after a failure the next one. A watch is never resumed, because a restored store has other changes
/// with the same revisions.
///
/// `number` is the index of this watch.
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
        sleep(back_off(failures)).await;
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

#[cfg(test)]
mod tests {
    use fleet_store::{Put, Session as _, memory::Memory};
    use tokio::{task::JoinSet, time::timeout};

    use super::*;

    async fn next(news: &mut mpsc::Receiver<(usize, News)>) -> News {
        // The time is virtual, and many times as long as the longest wait between two attempts.
        let received = timeout(std::time::Duration::from_secs(600), news.recv()).await;
        received.expect("news").expect("the watch runs").1
    }

    fn keys(listing: Listing) -> Vec<(String, Vec<u8>)> {
        let keys = listing.keys.into_iter();
        keys.map(|stored| (stored.key, stored.value)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_was_restored_to_lower_revisions_is_listed_and_its_next_change_is_seen() {
        let store = Memory::default();
        for value in [b"1", b"2", b"3"] {
            let at = store.list().await.unwrap().revision;
            store.put_if("a", at, Put::Value(value)).await.unwrap();
        }
        let (sender, mut news) = mpsc::channel(4);
        let mut watch = JoinSet::new();
        watch.spawn(watch_endpoint(Arc::new(store.clone()), (0, 0), sender));
        let News::Listed(listing) = next(&mut news).await else {
            panic!("a list comes first")
        };
        assert_eq!(listing.revision, 3);
        store.cut(true);
        for _ in 0..3 {
            assert!(matches!(next(&mut news).await, News::Failed(_)));
        }
        store.restore([("b".to_owned(), b"old".to_vec())].into());
        store.cut(false);
        let listing = loop {
            match next(&mut news).await {
                News::Listed(listing) => break listing,
                News::Failed(_) => {}
                News::Changed(changes) => panic!("{changes:?} before a list"),
            }
        };
        assert_eq!(listing.revision, 1, "lower than what was watched before");
        assert_eq!(keys(listing), [("b".to_owned(), b"old".to_vec())]);
        store.put_if("b", 1, Put::Value(b"new")).await.unwrap();
        let News::Changed(changes) = next(&mut news).await else {
            panic!("a change follows")
        };
        assert!(
            matches!(&changes[..], [Change::Put(stored)] if stored.value == b"new"),
            "{changes:?}"
        );
    }
}
