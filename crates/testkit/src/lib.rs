//! The foundation of the tests: a CA created by each test, stand-in Puppet servers that record raw bytes, a raw client,
//! and the proxy under test. All of it blocks, so that a test reads from top to bottom, and it uses no other crate of
//! the workspace.
//!
//! ```no_run
//! # use testkit::{Ca, Client, Proxy, StandIn};
//! let ca = Ca::new();
//! let compiler = StandIn::start("c1");
//! let proxy = Proxy::new(&ca, "target/debug/proscenium")
//!     .with("[pools.ca]\nscheme = \"http\"\nmembers = [\"127.0.0.1:1\"]")
//!     .with(&format!("[pools.compilers]\nscheme = \"http\"\nmembers = [\"{}\"]", compiler.address()))
//!     .start();
//! let agent = ca.agent("web01");
//! let response = proxy.client(Some(&agent)).get("/puppet/v3/catalog/web01?environment=production");
//! assert_eq!(response.status, 200);
//! ```

#![expect(
    clippy::disallowed_methods,
    reason = "files, environment and clocks are what tests work with"
)]

mod abuse;
mod ca;
mod client;
mod client_error;
mod connection;
mod crypto;
mod enrolment;
mod estate;
mod etcd;
mod hello;
mod hpack;
pub mod http2;
mod log;
mod message;
mod metrics;
mod name_server;
mod namespaces;
mod offering;
mod operator_page;
mod port;
mod prometheus;
mod proxy;
pub mod readers;
mod relay;
mod reply;
mod seed;
mod sessions;
mod small_rsa;
mod socket;
mod stand_in;
mod subject;
mod tools;
mod transport;
mod wait;

pub use abuse::Attacker;
pub use ca::{Ca, LeafBuilder, TestCredential};
pub use client::{Client, Protocol};
pub use client_error::ClientError;
pub use connection::TestConnection;
pub use enrolment::{Enrolment, RequestError};
pub use estate::{Estate, EstateBuilder, Program, Servers, plain_pools};
pub use etcd::EtcdCluster;
pub use message::{Body, BodyFraming, Headers, Interim, Response};
pub use metrics::ScrapedMetrics;
pub use name_server::{NameServer, srv_records};
pub use namespaces::{cut_off, has_own_namespaces, mount_over, reconnect, small_disk};
pub use operator_page::OperatorPage;
pub use port::HeldPort;
pub use prometheus::Prometheus;
pub use proxy::{CommandOutcome, FormerProxy, Proxy, ProxyBuilder, command_line};
pub use relay::DelayingRelay;
pub use reply::{Reply, ReplyGate};
pub use seed::Seed;
pub use stand_in::{Manner, Recorded, Renewing, StandIn, StandInBuilder, Tunnel};
pub use subject::{Attribute, name_der};
pub use tools::{Tool, find_program};
pub use wait::wait_until;
