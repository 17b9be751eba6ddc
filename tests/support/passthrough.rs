//! Set-up of the tests about passthrough.

use std::net::SocketAddr;

use serde_json::Value;
use testkit::Proxy;

use crate::support::{
    Estate, EstateBuilder,
    layer4::{Broker, listener_address},
};

/// A pool of brokers on this machine, which also has compilers with trusted headers.
pub(crate) fn pool(members: &[String], lines: &str) -> String {
    format!("[pools.brokers]\nmembers = {members:?}\ntrusted_headers_off = true\n{lines}\n")
}

/// A second listener that passes everything through to these brokers.
pub(crate) fn passing(brokers: &[&Broker], lines: &str) -> EstateBuilder {
    let members: Vec<_> = brokers.iter().map(|broker| broker.address()).collect();
    let tables = format!(
        "[listeners.pcp]\naddress = \"127.0.0.1:0\"\npassthrough = \"brokers\"\n{}",
        pool(&members, lines)
    );
    Estate::builder().compilers(1).with(&tables)
}

pub(crate) fn start(builder: EstateBuilder) -> (Estate, SocketAddr) {
    let estate = builder.start();
    estate.wait_for_members(&["brokers"]);
    let address = listener_address(&estate.proxy, "pcp");
    (estate, address)
}

/// The record of a connection that was passed through.
pub(crate) fn record(proxy: &Proxy) -> Value {
    proxy.wait_for_record(|record| record["class"] == "passthrough")
}
