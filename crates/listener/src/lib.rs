//! From a socket to an authenticated connection: bind, accept, handshake, activity, drain.
//!
//! This crate knows nothing of pools or HTTP. Each worker runs one accept loop per listener. Limits count connections of all
//! workers.

mod accept;
mod activity;
mod address;
mod certificate_rejections;
mod connection;
mod fair_queue;
mod gate;
mod handshake_executor;
mod handshake_failure;
mod handshake_thread;
mod handshakes;
mod hello;
mod offered_session;
mod per_address;
mod plain_http;
mod preface;
mod queue;
mod redirect;
pub mod settings;
mod socket;
#[cfg(test)]
mod test_tls;
mod tls_handshake;
mod tls_records;
mod tls_stream;
mod waiting;

pub use accept::{
    ActiveListener, FailedHandshake, HandshakeEnd, Listener, ListenerContext, ListenerTls,
    ReachedLimit, accept_loop,
};
pub use activity::{Activity, ClientStream, ConnectionStage, TlsIo};
pub use address::{ListenAddress, SocketMode};
pub use certificate_rejections::{CertificateRejection, CertificateRejections};
pub use connection::{
    Accepted, ClientVerdict, Connection, Downstream, NegotiatedTls, Origin, RawConnection,
};
pub use gate::{ClientSlots, Gate, Permit};
pub use handshake_failure::HandshakeFailure;
pub use handshake_thread::HandshakePriority;
pub use handshakes::{HandshakeHelper, Handshakes};
pub use per_address::{AddressGate, AddressPermit};
pub use queue::{AcceptQueue, ListeningSocket};
pub use redirect::Redirected;
pub use settings::{ClientCertPolicy, InvalidCertPolicy, ListenerSettings, SniPassthrough};
pub use socket::{BindError, ListenEndpoint, bind, keep_alive, try_bind};
pub use waiting::WaitingHandshakes;
