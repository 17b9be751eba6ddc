//! The servers behind the proxy, in demonstration and soak: a CA, a CA server and two compilers, over mutual TLS.

use testkit::{Ca, StandIn};

/// Stand-ins that let in whoever this CA has signed.
pub(crate) struct Servers {
    pub(crate) ca: Ca,
    pub(crate) ca_server: StandIn,
    pub(crate) compilers: [StandIn; 2],
}

impl Servers {
    /// Starts them, with a CA of this name.
    pub(crate) fn start(name: &str) -> Self {
        let ca = Ca::named(name);
        let [ca_server, first, second] = ["ca", "c1", "c2"].map(|name| {
            let credential = ca.server(name);
            StandIn::builder(name).ca(&ca).tls(&ca, &credential).start()
        });
        Self {
            ca,
            ca_server,
            compilers: [first, second],
        }
    }
}
