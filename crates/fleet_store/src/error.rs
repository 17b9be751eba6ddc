//! Why a call to a store failed, in terms for an operator.

use std::time::Duration;

use upstream::DialError;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The endpoint was not reached.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// It did not answer in time.
    #[error("{endpoint} did not answer within {limit:?}")]
    Late {
        /// The endpoint.
        endpoint: String,
        /// The limit.
        limit: Duration,
    },
    /// It refused this proxy's certificate, or the proxy lacks a permission.
    #[error("{endpoint} refuses this proxy: {text}")]
    Denied {
        /// The endpoint.
        endpoint: String,
        /// Its message.
        text: String,
    },
    /// Its database is full. It accepts deletions, but no other change.
    #[error(
        "the database of {endpoint} is full (NOSPACE): compact and defragment it, or raise --quota-backend-bytes, then run `etcdctl alarm disarm`"
    )]
    NoSpace {
        /// The endpoint.
        endpoint: String,
    },
    /// It has more keys below the prefix than the proxy reads.
    #[error("there are more than {max} keys below {prefix}", max = crate::KEYS_MAX)]
    TooManyKeys {
        /// The prefix.
        prefix: String,
    },
    /// Its response is longer than the proxy reads.
    #[error("{endpoint}: {text}")]
    TooLong {
        /// The endpoint.
        endpoint: String,
        /// The lengths.
        text: String,
    },
    /// Anything else: no leader, a watch that ended, a connection that broke.
    #[error("{endpoint}: {text}")]
    Failed {
        /// The endpoint.
        endpoint: String,
        /// The fault.
        text: String,
    },
}
