//! A member whose connections the test accepts, refuses or leaves waiting.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU32, Ordering},
    },
};

use balancing::Registry;
use tokio::{
    io::{DuplexStream, duplex},
    sync::mpsc,
};
use upstream::{Connector, ConnectorSpec, MemberStream, Slots, settings::UpstreamSettings};

use super::wire::Wire;

const ACCEPTS: u8 = 0;
const REFUSES: u8 = 1;
const HANGS: u8 = 2;
/// Maximum number of connections that the test has not accepted yet.
const UNSEEN_MAX: usize = 256;

/// A member from the point of view of the test.
pub struct TestMember {
    manner: Arc<AtomicU8>,
    dials: Arc<AtomicU32>,
    arrivals: mpsc::Receiver<DuplexStream>,
    slots: Arc<Slots>,
    counts: Arc<balancing::Member>,
}

impl TestMember {
    /// A member that accepts connections, and the connector with which the proxy reaches it.
    pub fn new(
        (pool, address): (&str, &str),
        (settings, buffer): (UpstreamSettings, usize),
        registry: &Registry,
    ) -> (Self, Arc<Connector>) {
        let (manner, dials) = (Arc::new(AtomicU8::new(ACCEPTS)), Arc::default());
        let (arrive, arrivals) = mpsc::channel(UNSEEN_MAX);
        let slots = Arc::<Slots>::default();
        let spec = ConnectorSpec {
            address,
            addresses: &[],
            server_name: None,
            tls: None,
            check: None,
            settings,
            slots: Arc::clone(&slots),
        };
        let (how, dialled) = (Arc::clone(&manner), Arc::<AtomicU32>::clone(&dials));
        let connector = Connector::in_memory(spec, move || {
            let (how, arrive) = (how.load(Ordering::Relaxed), arrive.clone());
            dialled.fetch_add(1, Ordering::Relaxed);
            async move {
                match how {
                    REFUSES => return Err(io::ErrorKind::ConnectionRefused.into()),
                    HANGS => std::future::pending().await,
                    _ => {}
                }
                let (near, far) = duplex(buffer);
                let _ = arrive.send(far).await;
                Ok(Box::new(near) as Box<dyn MemberStream>)
            }
        });
        let member = Self {
            manner,
            dials,
            arrivals,
            slots,
            counts: registry.member(pool, address),
        };
        (member, Arc::new(connector.expect("an address")))
    }

    /// Accepts the next connection of the proxy to this member.
    pub async fn accept(&mut self) -> Wire {
        let arrived = self.arrivals.recv().await;
        Wire::new(arrived.expect("the proxy dials"))
    }

    /// A connection that the proxy has opened and the test has not accepted yet, if there is one.
    pub fn try_accept(&mut self) -> Option<DuplexStream> {
        self.arrivals.try_recv().ok()
    }

    /// Refuses connections from now on.
    pub fn refuse(&self) {
        self.manner.store(REFUSES, Ordering::Relaxed);
    }

    /// Accepts connections again from now on.
    pub fn accept_again(&self) {
        self.manner.store(ACCEPTS, Ordering::Relaxed);
    }

    /// From now on, leaves each dial without an answer.
    pub fn hang(&self) {
        self.manner.store(HANGS, Ordering::Relaxed);
    }

    /// How often the proxy has dialled.
    pub fn dials(&self) -> u32 {
        self.dials.load(Ordering::Relaxed)
    }

    /// Number of open connections by the proxy's own count.
    pub fn open(&self) -> u32 {
        self.slots.open()
    }

    /// Number of requests in flight by the balancer's count.
    pub fn in_flight(&self) -> u32 {
        self.counts.in_flight()
    }

    /// Sets the member's administrative state, as an operator does.
    pub fn administer(&self, state: balancing::Administrative) {
        self.counts.administer(state);
    }
}
