//! etcd 3.4 and later over gRPC. Its JSON gateway refuses certificates with a CN.

// Generated from rpc.proto, the part of etcd's API that the proxy uses (docs/decisions/fleet.md shows how).
#[allow(
    missing_docs,
    unused_qualifications,
    unreachable_pub,
    clippy::all,
    reason = "generated code"
)]
#[rustfmt::skip]
mod rpc;

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use hyper_util::rt::TokioIo;
use rustls_pki_types::CertificateDer;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::timeout,
};
use tonic::{
    Code, Request, Status, Streaming,
    metadata::MetadataValue,
    transport::{Channel, Endpoint},
};
use upstream::{Connector, MemberIo, cause};

use crate::{
    Call, Change, ChangeStream, EndpointStatus, KEYS_MAX, KeyChange, LeaseId, Listing, PROBES, Put,
    Revision, Session, Store, StoreError, Stored,
};
use rpc::{
    kv_client::KvClient, lease_client::LeaseClient, maintenance_client::MaintenanceClient,
    watch_client::WatchClient,
};

/// Keys per page of a list. A page of the longest records is shorter than 4 MiB, gRPC's limit for a message.
const PAGE_KEYS: i64 = 200;
/// Maximum length of a key below the prefix. A longer one is ignored. The keys of records consist of two names.
const KEY_BYTES_MAX: usize = 2048;
/// Maximum length of all values of a list. Records are shorter than 2 KiB, and there are at most 25,000.
const LIST_BYTES_MAX: usize = 64 << 20;
/// Maximum time to wait for the answer to an HTTP/2 ping.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(3);

/// How the proxy connects to an etcd cluster.
#[derive(Clone, Debug)]
pub struct EtcdSettings {
    /// The prefix of all keys, with a slash at its end.
    pub prefix: String,
    /// Maximum time of a call, the connection not included.
    pub request_timeout: Duration,
    /// Time between two HTTP/2 pings. etcd refuses less than 5 s.
    pub keepalive: Duration,
}

/// An etcd cluster.
#[derive(Debug)]
pub struct Etcd {
    settings: EtcdSettings,
    connectors: Vec<Arc<Connector>>,
    names: Vec<String>,
}

impl Etcd {
    /// The cluster with these members.
    #[must_use]
    pub fn new(settings: EtcdSettings, connectors: Vec<Arc<Connector>>) -> Self {
        let names = connectors
            .iter()
            .map(|connector| connector.address.to_string())
            .collect();
        Self {
            settings,
            connectors,
            names,
        }
    }
}

impl Store for Etcd {
    fn endpoints(&self) -> &[String] {
        &self.names
    }

    fn connect(&self, endpoint: usize) -> Call<'_, Box<dyn Session>> {
        Box::pin(async move {
            let connector = &self.connectors[endpoint];
            let io = connector.open().await?;
            let certificate = io.presented();
            let broken = Broken::default();
            let io = Watched {
                io,
                broken: Arc::clone(&broken),
                has_answered: false,
            };
            let failed = |text: String| StoreError::Failed {
                endpoint: connector.address.to_string(),
                text,
            };
            // The address is not used, because the connection already exists. The connection is used once.
            let channel = Endpoint::from_static("http://etcd")
                .http2_keep_alive_interval(self.settings.keepalive)
                .keep_alive_timeout(KEEPALIVE_TIMEOUT)
                .keep_alive_while_idle(true);
            let mut once = Some(TokioIo::new(io));
            let connected = channel.connect_with_connector(tower::service_fn(move |_| {
                let io = once
                    .take()
                    .ok_or_else(|| io::ErrorKind::NotConnected.into());
                async move { io as io::Result<_> }
            }));
            let connected = timeout(self.settings.request_timeout, connected).await;
            let channel = match connected {
                Ok(Ok(channel)) => channel,
                Ok(Err(error)) => {
                    let broken = why_broken(&broken, &connector.address);
                    return Err(broken.unwrap_or_else(|| failed(cause(&error))));
                }
                Err(_) => {
                    return Err(StoreError::Late {
                        endpoint: connector.address.to_string(),
                        limit: self.settings.request_timeout,
                    });
                }
            };
            Ok(Box::new(EtcdSession {
                channel,
                broken,
                certificate,
                endpoint: connector.address.to_string(),
                settings: self.settings.clone(),
            }) as Box<dyn Session>)
        })
    }
}

/// A connection to one member of the cluster.
#[derive(Clone, Debug)]
struct EtcdSession {
    channel: Channel,
    broken: Broken,
    certificate: Option<CertificateDer<'static>>,
    endpoint: String,
    settings: EtcdSettings,
}

impl EtcdSession {
    /// Waits for an answer, and converts its error.
    async fn answer<T>(
        &self,
        call: impl Future<Output = Result<tonic::Response<T>, Status>> + Send,
    ) -> Result<T, StoreError> {
        match timeout(self.settings.request_timeout, call).await {
            Ok(Ok(answer)) => Ok(answer.into_inner()),
            Ok(Err(status)) => Err(self.fault(&status)),
            Err(_) => Err(StoreError::Late {
                endpoint: self.endpoint.clone(),
                limit: self.settings.request_timeout,
            }),
        }
    }

    fn fault(&self, status: &Status) -> StoreError {
        let endpoint = self.endpoint.clone();
        if let Some(broken) = why_broken(&self.broken, &endpoint) {
            return broken;
        }
        // The message is printed in terminals, and etcd may be operated by another party.
        let text = status.message().replace(char::is_control, " ");
        match status.code() {
            Code::PermissionDenied | Code::Unauthenticated => StoreError::Denied { endpoint, text },
            // etcd's answer to a certificate whose CN is not a user.
            Code::InvalidArgument if text.contains("user name is empty") => {
                StoreError::Denied { endpoint, text }
            }
            Code::ResourceExhausted if text.contains("space exceeded") => {
                StoreError::NoSpace { endpoint }
            }
            Code::OutOfRange if text.contains("message length too large") => {
                StoreError::TooLong { endpoint, text }
            }
            _ if text.is_empty() => StoreError::Failed {
                endpoint,
                text: status.code().description().to_owned(),
            },
            _ => StoreError::Failed { endpoint, text },
        }
    }

    fn failed(&self, text: &str) -> StoreError {
        StoreError::Failed {
            endpoint: self.endpoint.clone(),
            text: text.to_owned(),
        }
    }

    fn whole(&self, key: &str) -> Vec<u8> {
        format!("{}{key}", self.settings.prefix).into_bytes()
    }

    /// The condition of a change.
    fn unchanged(&self, change: &KeyChange<'_>) -> rpc::Compare {
        use rpc::compare::{CompareResult, CompareTarget, TargetUnion};
        rpc::Compare {
            result: CompareResult::Equal.into(),
            target: CompareTarget::Mod.into(),
            key: self.whole(change.key),
            target_union: Some(TargetUnion::ModRevision(change.expected)),
        }
    }

    fn operation(&self, change: &KeyChange<'_>) -> rpc::RequestOp {
        use rpc::request_op::Request as Op;
        let key = self.whole(change.key);
        let put = |value: &[u8], lease| rpc::PutRequest {
            key: key.clone(),
            value: value.to_vec(),
            lease,
        };
        let request = match change.put {
            Put::Value(bytes) => Op::RequestPut(put(bytes, 0)),
            Put::Leased(bytes, lease) => Op::RequestPut(put(bytes, lease)),
            Put::Delete => Op::RequestDeleteRange(rpc::DeleteRangeRequest {
                key,
                range_end: Vec::new(),
            }),
        };
        rpc::RequestOp {
            request: Some(request),
        }
    }

    fn prefix_end(&self) -> Vec<u8> {
        let mut end = self.settings.prefix.clone().into_bytes();
        // The prefix ends with a slash, which is not the highest byte.
        if let Some(last) = end.last_mut() {
            *last += 1;
        }
        end
    }
}

/// A key below a prefix. `None` for probes, and for a name that is too long or not UTF-8, which no version writes.
fn stored(prefix: &str, found: rpc::KeyValue) -> Option<Stored> {
    let key = String::from_utf8(found.key).ok()?;
    let key = key.strip_prefix(prefix)?;
    if key.len() > KEY_BYTES_MAX || key.starts_with(PROBES) {
        return None;
    }
    Some(Stored {
        key: key.to_owned(),
        value: found.value,
        revision: found.mod_revision,
    })
}

impl Session for EtcdSession {
    fn list(&self) -> Call<'_, Listing> {
        Box::pin(async move {
            let mut client = KvClient::new(self.channel.clone());
            let mut listing = Listing::default();
            let mut from = self.whole("");
            let (mut keys, mut bytes, mut limit) = (0, 0, PAGE_KEYS);
            loop {
                let page = client.range(rpc::RangeRequest {
                    key: from.clone(),
                    range_end: self.prefix_end(),
                    limit,
                    // All pages have the revision of the first.
                    revision: listing.revision,
                    keys_only: false,
                });
                let page = match self.answer(page).await {
                    // Another client's key may have a value of any length, which must not prevent the proxy from reading the
                    // keys of proxies.
                    Err(StoreError::TooLong { .. }) if limit > 1 => {
                        limit /= 2;
                        continue;
                    }
                    page => page?,
                };
                keys += page.kvs.len();
                bytes += page.kvs.iter().map(|key| key.value.len()).sum::<usize>();
                if keys > KEYS_MAX {
                    return Err(StoreError::TooManyKeys {
                        prefix: self.settings.prefix.clone(),
                    });
                }
                if bytes > LIST_BYTES_MAX {
                    return Err(self.failed(&format!(
                        "the values below {} have more than {LIST_BYTES_MAX} bytes",
                        self.settings.prefix
                    )));
                }
                if page.more && page.kvs.is_empty() {
                    return Err(self.failed("it says that there are more keys, and lists none"));
                }
                if listing.revision == 0 {
                    listing.revision = page.header.map_or(0, |header| header.revision);
                }
                if let Some(last) = page.kvs.last() {
                    from = last.key.clone();
                    from.push(0);
                }
                let found = page.kvs.into_iter();
                listing
                    .keys
                    .extend(found.filter_map(|key| stored(&self.settings.prefix, key)));
                if !page.more {
                    return Ok(listing);
                }
            }
        })
    }

    fn watch(&self, after: Revision) -> Call<'_, Box<dyn ChangeStream>> {
        Box::pin(async move {
            let create = rpc::WatchCreateRequest {
                key: self.whole(""),
                range_end: self.prefix_end(),
                start_revision: after + 1,
                progress_notify: false,
                fragment: true,
            };
            let create = rpc::WatchRequest {
                request_union: Some(rpc::watch_request::RequestUnion::CreateRequest(create)),
            };
            // The stream of requests stays open: its end would end the watch.
            let (requests, sent) = tokio::sync::mpsc::channel(1);
            let mut request = Request::new(tokio_stream::wrappers::ReceiverStream::new(sent));
            // Without this, a member that is cut off from the others sends nothing.
            request
                .metadata_mut()
                .insert("hasleader", MetadataValue::from_static("true"));
            let _ = requests.try_send(create);
            let mut client = WatchClient::new(self.channel.clone());
            let mut answers = self.answer(client.watch(request)).await?;
            let created = timeout(self.settings.request_timeout, answers.message()).await;
            match created {
                Ok(Ok(Some(created))) if created.created && !created.canceled => {}
                Ok(Ok(Some(created))) => return Err(self.refused(&created)),
                Ok(Ok(None)) => return Err(self.failed("the watch has ended")),
                Ok(Err(status)) => return Err(self.fault(&status)),
                Err(_) => {
                    return Err(StoreError::Late {
                        endpoint: self.endpoint.clone(),
                        limit: self.settings.request_timeout,
                    });
                }
            }
            Ok(Box::new(EtcdWatch {
                answers,
                _requests: requests,
                session: self.clone(),
            }) as Box<dyn ChangeStream>)
        })
    }

    fn put_all_if<'a>(&'a self, changes: &'a [KeyChange<'a>]) -> Call<'a, Option<Revision>> {
        Box::pin(async move {
            let mut client = KvClient::new(self.channel.clone());
            let transaction = client.txn(rpc::TxnRequest {
                compare: changes
                    .iter()
                    .map(|change| self.unchanged(change))
                    .collect(),
                success: changes
                    .iter()
                    .map(|change| self.operation(change))
                    .collect(),
                failure: Vec::new(),
            });
            let answer = self.answer(transaction).await?;
            let revision = answer.header.map_or(0, |header| header.revision);
            Ok(answer.succeeded.then_some(revision))
        })
    }

    fn grant(&self, length: Duration) -> Call<'_, LeaseId> {
        Box::pin(async move {
            let ttl = i64::try_from(length.as_secs()).unwrap_or(i64::MAX).max(1);
            let mut client = LeaseClient::new(self.channel.clone());
            let granted = client.lease_grant(rpc::LeaseGrantRequest { ttl, id: 0 });
            Ok(self.answer(granted).await?.id)
        })
    }

    fn keep_alive(&self, lease: LeaseId) -> Call<'_, bool> {
        Box::pin(async move {
            let requests = tokio_stream::once(rpc::LeaseKeepAliveRequest { id: lease });
            let mut client = LeaseClient::new(self.channel.clone());
            let mut answers = self.answer(client.lease_keep_alive(requests)).await?;
            match timeout(self.settings.request_timeout, answers.message()).await {
                Ok(Ok(answer)) => Ok(answer.is_some_and(|answer| answer.ttl > 0)),
                Ok(Err(status)) => Err(self.fault(&status)),
                Err(_) => Err(StoreError::Late {
                    endpoint: self.endpoint.clone(),
                    limit: self.settings.request_timeout,
                }),
            }
        })
    }

    fn revoke(&self, lease: LeaseId) -> Call<'_, ()> {
        Box::pin(async move {
            let mut client = LeaseClient::new(self.channel.clone());
            let revoked = client.lease_revoke(rpc::LeaseRevokeRequest { id: lease });
            self.answer(revoked).await.map(|_| ())
        })
    }

    fn certificate(&self) -> Option<CertificateDer<'static>> {
        self.certificate.clone()
    }

    fn status(&self) -> Call<'_, EndpointStatus> {
        Box::pin(async move {
            let mut client = MaintenanceClient::new(self.channel.clone());
            let status = self.answer(client.status(rpc::StatusRequest {})).await?;
            let bytes = |bytes: i64| u64::try_from(bytes).unwrap_or_default();
            Ok(EndpointStatus {
                version: status.version,
                database_bytes: bytes(status.db_size),
                used_bytes: bytes(status.db_size_in_use),
                has_leader: status.leader != 0,
                errors: status.errors,
            })
        })
    }
}

impl EtcdSession {
    fn refused(&self, answer: &rpc::WatchResponse) -> StoreError {
        let text = match answer.compact_revision {
            0 => format!("the watch was canceled: {}", answer.cancel_reason),
            revision => format!("the revision to watch from was compacted (up to {revision})"),
        };
        if answer.cancel_reason.contains("permission denied") {
            StoreError::Denied {
                endpoint: self.endpoint.clone(),
                text,
            }
        } else {
            self.failed(&text)
        }
    }
}

struct EtcdWatch {
    answers: Streaming<rpc::WatchResponse>,
    _requests: tokio::sync::mpsc::Sender<rpc::WatchRequest>,
    session: EtcdSession,
}

impl ChangeStream for EtcdWatch {
    fn next(&mut self) -> Call<'_, Vec<Change>> {
        Box::pin(async move {
            let session = &self.session;
            let answer = match self.answers.message().await {
                Ok(Some(answer)) => answer,
                Ok(None) => return Err(session.failed("the watch has ended")),
                Err(status) => return Err(session.fault(&status)),
            };
            if answer.canceled {
                return Err(session.refused(&answer));
            }
            let prefix = &session.settings.prefix;
            let changes = answer.events.into_iter().filter_map(|event| {
                let is_deletion = event.r#type() == rpc::event::EventType::Delete;
                let found = stored(prefix, event.kv?)?;
                Some(if is_deletion {
                    Change::Deleted {
                        key: found.key,
                        revision: found.revision,
                    }
                } else {
                    Change::Put(found)
                })
            });
            Ok(changes.collect())
        })
    }
}

/// The error of a connection whose certificate etcd's CRL revokes. etcd checks its CRL after the handshake and sends no
/// alert.
const CLOSED: &str = "it closed the connection after the TLS handshake; its log has the reason, such as a CRL (--client-crl-file) that revokes this proxy's certificate";

/// How a connection broke.
type Broken = Arc<Mutex<Option<Breakage>>>;

#[derive(Clone, Debug)]
enum Breakage {
    /// The server refused this proxy's certificate.
    Refused(String),
    /// Another fault.
    Failed(String),
}

fn why_broken(broken: &Broken, endpoint: &str) -> Option<StoreError> {
    let endpoint = endpoint.to_owned();
    let broken = broken.lock().unwrap_or_else(PoisonError::into_inner);
    Some(match broken.clone()? {
        Breakage::Refused(text) => StoreError::Denied { endpoint, text },
        Breakage::Failed(text) => StoreError::Failed { endpoint, text },
    })
}

/// A connection that stores its error, because the layers above only report that a call was canceled.
struct Watched {
    io: MemberIo,
    broken: Broken,
    /// Whether a byte has arrived.
    has_answered: bool,
}

impl Watched {
    fn note<T>(&self, result: &io::Result<T>) {
        let Err(error) = result else { return };
        let text = cause(error);
        let mut broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        // After a handshake of TLS 1.3, the server's refusal of a certificate arrives as an error of the connection. A failed
        // write may come before it.
        if text.contains("alert") {
            *broken = Some(Breakage::Refused(text));
        } else if is_closed(error) && !self.has_answered {
            broken.get_or_insert_with(|| Breakage::Refused(CLOSED.to_owned()));
        } else {
            broken.get_or_insert(Breakage::Failed(text));
        }
    }
}

/// Whether the server has closed the connection.
fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    [
        BrokenPipe,
        ConnectionAborted,
        ConnectionReset,
        UnexpectedEof,
    ]
    .contains(&error.kind())
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.io).poll_read(cx, buffer);
        match &read {
            Poll::Ready(Ok(())) if buffer.filled().len() > before => self.has_answered = true,
            Poll::Ready(Ok(())) => self.note::<()>(&Err(io::ErrorKind::UnexpectedEof.into())),
            Poll::Ready(error) => self.note(error),
            Poll::Pending => {}
        }
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(cx, bytes);
        if let Poll::Ready(result) = &written {
            self.note(result);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_no_version_writes_are_not_listed() {
        let long = "k".repeat(KEY_BYTES_MAX + 1);
        for (key, expected) in [
            (b"/p/blocks/1".to_vec(), Some("blocks/1")),
            (b"/other/blocks/1".to_vec(), None),
            (b"/p/probes/1".to_vec(), None),
            (b"/p/\xff".to_vec(), None),
            (format!("/p/{long}").into_bytes(), None),
            (format!("/p/{}", &long[1..]).into_bytes(), Some(&long[1..])),
        ] {
            let found = rpc::KeyValue {
                key,
                ..rpc::KeyValue::default()
            };
            let found = stored("/p/", found).map(|stored| stored.key);
            assert_eq!(found.as_deref(), expected);
        }
    }
}
