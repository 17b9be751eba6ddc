//! The store through which several proxies share records: its interface, etcd, and a store in memory for tests.
//!
//! The caller opens a [`Session`] on an endpoint, lists all keys, and watches from the revision of that list. The
//! caller discards a session that fails; nothing here reconnects by itself.

mod error;
pub mod etcd;
pub mod memory;

use std::{pin::Pin, time::Duration};

pub use error::StoreError;
use rustls_pki_types::CertificateDer;

/// The result of a call to a store.
pub type Call<'a, T> = Pin<Box<dyn Future<Output = Result<T, StoreError>> + Send + 'a>>;

/// A number that the store increases with each change of any key.
pub type Revision = i64;

/// A lease: the keys that were put with it are deleted when it ends.
pub type LeaseId = i64;

/// The prefix of keys that a test of the proxy's permissions writes for a moment. Lists and watches omit them.
pub const PROBES: &str = "probes/";

/// A store with one or more endpoints.
pub trait Store: Send + Sync {
    /// Its endpoints, for messages.
    fn endpoints(&self) -> &[String];

    /// Opens a connection to one of the endpoints.
    ///
    /// # Errors
    /// Why it cannot be reached.
    fn connect(&self, endpoint: usize) -> Call<'_, Box<dyn Session>>;
}

/// A connection to one endpoint. All keys are below the prefix of the store.
pub trait Session: Send + Sync {
    /// All keys at one revision.
    fn list(&self) -> Call<'_, Listing>;

    /// The changes after a revision. It ends with an error if the endpoint loses its leader.
    fn watch(&self, after: Revision) -> Call<'_, Box<dyn ChangeStream>>;

    /// Changes a key, if its last change was at `expected` (0: it does not exist). Returns the revision of the change, or
    /// none if the key has changed meanwhile.
    fn put_if<'a>(
        &'a self,
        key: &'a str,
        expected: Revision,
        put: Put<'a>,
    ) -> Call<'a, Option<Revision>> {
        Box::pin(async move { self.put_all_if(&[KeyChange { key, expected, put }]).await })
    }

    /// Changes several keys if the last change of each key was at its `expected` revision, else none of them. Returns the
    /// revision of the changes, or none if one of the keys has changed meanwhile. There are at most [`CHANGES_MAX`], and no key
    /// twice.
    fn put_all_if<'a>(&'a self, changes: &'a [KeyChange<'a>]) -> Call<'a, Option<Revision>>;

    /// Makes a lease of this length, in whole seconds.
    fn grant(&self, length: Duration) -> Call<'_, LeaseId>;

    /// Extends a lease. Returns whether it still exists.
    fn keep_alive(&self, lease: LeaseId) -> Call<'_, bool>;

    /// Ends a lease.
    fn revoke(&self, lease: LeaseId) -> Call<'_, ()>;

    /// The certificate that the endpoint has presented. `None` without TLS.
    fn certificate(&self) -> Option<CertificateDer<'static>> {
        None
    }

    /// The state of the endpoint.
    fn status(&self) -> Call<'_, EndpointStatus>;
}

/// The changes of a store, in order.
pub trait ChangeStream: Send {
    /// The next changes, which have one revision or follow each other.
    fn next(&mut self) -> Call<'_, Vec<Change>>;
}

/// Maximum number of keys that are changed at once. etcd's default (`--max-txn-ops`) is 128.
pub const CHANGES_MAX: usize = 100;

/// A requested change of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyChange<'a> {
    /// The key, without the prefix.
    pub key: &'a str,
    /// The revision of its last change; 0 if it does not exist.
    pub expected: Revision,
    /// What is written.
    pub put: Put<'a>,
}

/// What is written to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put<'a> {
    /// This value, until it is changed.
    Value(&'a [u8]),
    /// This value, until it is changed or the lease ends.
    Leased(&'a [u8], LeaseId),
    /// The key is deleted.
    Delete,
}

/// All keys at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// The revision.
    pub revision: Revision,
    /// The keys, in order.
    pub keys: Vec<Stored>,
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The key, without the prefix.
    pub key: String,
    /// The value.
    pub value: Vec<u8>,
    /// The revision of its last change.
    pub revision: Revision,
}

/// A change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It has another value.
    Put(Stored),
    /// It was deleted, or its lease has ended.
    Deleted {
        /// The key, without the prefix.
        key: String,
        /// The revision of the deletion.
        revision: Revision,
    },
}

/// The state of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndpointStatus {
    /// Its version.
    pub version: String,
    /// Bytes of its database on disk.
    pub database_bytes: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Whether it knows a leader.
    pub has_leader: bool,
    /// Its own alarms, such as `NOSPACE`.
    pub errors: Vec<String>,
}

/// Maximum number of keys that are listed. More are refused: a fleet has far fewer, and memory must have a limit.
pub const KEYS_MAX: usize = 25_000;
