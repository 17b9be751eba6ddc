//! The connection for lists and writes. Its calls have a timeout of their own, because a frozen member of etcd does not answer,
//! and nothing is applied during a call.

use std::time::Duration;

use fleet_store::{
    Call, ChangeStream, EndpointStatus, KeyChange, LeaseId, Listing, Revision, Session, Store,
    StoreError,
};
use tokio::time::timeout;

/// A session whose calls take at most `patience`, if the store's own limits are not shorter.
pub(super) struct Writer {
    session: Box<dyn Session>,
    endpoint: String,
    patience: Duration,
}

impl Writer {
    pub(super) async fn connect(
        store: &dyn Store,
        endpoint: usize,
        patience: Duration,
    ) -> Result<Self, StoreError> {
        let name = store.endpoints()[endpoint].clone();
        Ok(Self {
            session: within(patience, &name, store.connect(endpoint)).await?,
            endpoint: name,
            patience,
        })
    }

    fn within<'a, T: 'a>(&'a self, call: Call<'a, T>) -> Call<'a, T> {
        within(self.patience, &self.endpoint, call)
    }
}

fn within<'a, T: 'a>(limit: Duration, endpoint: &'a str, call: Call<'a, T>) -> Call<'a, T> {
    Box::pin(async move {
        let late = |_| StoreError::Late {
            endpoint: endpoint.to_owned(),
            limit,
        };
        timeout(limit, call).await.map_err(late)?
    })
}

impl Session for Writer {
    fn list(&self) -> Call<'_, Listing> {
        // A long list has many pages, each with the limit of the store.
        self.session.list()
    }

    fn watch(&self, after: Revision) -> Call<'_, Box<dyn ChangeStream>> {
        self.within(self.session.watch(after))
    }

    fn put_all_if<'a>(&'a self, changes: &'a [KeyChange<'a>]) -> Call<'a, Option<Revision>> {
        self.within(self.session.put_all_if(changes))
    }

    fn grant(&self, length: Duration) -> Call<'_, LeaseId> {
        self.within(self.session.grant(length))
    }

    fn keep_alive(&self, lease: LeaseId) -> Call<'_, bool> {
        self.within(self.session.keep_alive(lease))
    }

    fn revoke(&self, lease: LeaseId) -> Call<'_, ()> {
        self.within(self.session.revoke(lease))
    }

    fn status(&self) -> Call<'_, EndpointStatus> {
        self.within(self.session.status())
    }
}
