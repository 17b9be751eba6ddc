//! From a socket to an authenticated connection: bind, accept, handshake, activity, drain.
//!
//! Knows nothing of pools or HTTP. One accept loop runs per worker and listener; limits count over all workers.

mod accept;
mod activity;
mod address;
mod connection;
mod distrust;
mod gate;
mod handshake_failure;
mod per_address;
mod plain_http;
mod preface;
mod queue;
mod redirect;
pub mod settings;
mod sni;
mod socket;

pub use accept::{
    ActiveListener, FailedHandshake, HandshakeEnd, Listener, ListenerTls, Live, ReachedLimit,
    accept_loop,
};
pub use activity::{Activity, Stage, TlsIo, Transport};
pub use address::{ListenAddress, SocketMode};
pub use connection::{Accepted, Connection, Downstream, Origin, RawConnection, Standing, TlsFacts};
pub use distrust::{Distrust, Distrusted};
pub use gate::{Gate, Permit};
pub use handshake_failure::HandshakeFailure;
pub use per_address::{AddressGate, AddressPermit};
pub use queue::{AcceptQueue, ListeningSocket};
pub use redirect::Redirected;
pub use settings::{ClientCert, OnInvalid, Settings, SniPassthrough};
pub use socket::{BindError, Endpoint, bind, keep_alive, try_bind};
