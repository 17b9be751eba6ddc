//! Set-up of the tests about reloads.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use testkit::{Client, Proxy};

use crate::support::Estate;

/// Sends requests on one connection, one after another, each of which must succeed.
pub(crate) fn send_until(stop: &AtomicBool, asked: &AtomicUsize, client: &Client, target: &str) {
    let mut connection = client.connect().expect("connects");
    while !stop.load(Ordering::SeqCst) {
        let answer = connection.get(target);
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(!answer.says_close(), "a reload closes no connection");
        asked.fetch_add(1, Ordering::SeqCst);
    }
}

pub(crate) struct Stopping<'a>(pub(crate) &'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Writes a new certificate of the same name; returns its DER.
pub(crate) fn renew_certificate(estate: &Estate) -> Vec<u8> {
    let renewed = estate.ca.server("puppet");
    let proxy = &estate.proxy;
    proxy.write("ssl/certs/puppet.pem", &renewed.cert_pem, 0o644);
    proxy.write("ssl/private_keys/puppet.pem", &renewed.key_pem, 0o640);
    renewed.cert_der
}

pub(crate) fn served_certificate(client: &Client) -> Vec<u8> {
    let connection = client.clone().forgetful().connect().expect("connects");
    connection.peer_certificates().remove(0)
}

pub(crate) fn crl_numbers(proxy: &Proxy) -> Vec<String> {
    let status = proxy.status();
    let crls = status["trust"]["crls"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    crls.iter()
        .filter_map(|crl| crl["number"].as_str().map(str::to_owned))
        .collect()
}
