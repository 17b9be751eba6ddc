//! Set-up of the tests about CRLs that are fetched from the CA.

use std::{ops::Deref, path::Path};

use serde_json::Value;
use testkit::{Ca, Client, Proxy, Recorded, Reply, StandIn, TestCredential};

use crate::support::{Estate, EstateBuilder, done, proxy};

pub(crate) const CRL_PATH: &str = "/puppet-ca/v1/certificate_revocation_list/ca";
pub(crate) const FAILING: &str = "proscenium_crl_fetch_failing";

/// An estate that fetches its CRL.
pub(crate) fn fetching(ca: &Ca, lines: &str) -> EstateBuilder {
    Estate::builder().ca(ca).fetch(lines)
}

/// The same with this CRL in the agent's files, and with a state directory.
pub(crate) fn persisting(ca: &Ca, lines: &str, file: &str, state: &Path) -> EstateBuilder {
    let builder = fetching(ca, lines).with(&state_table(state));
    builder.file("ssl/crl.pem", file, 0o644)
}

/// Starts the estate, and waits for the fetch at the start.
#[track_caller]
pub(crate) fn start_and_fetch(builder: EstateBuilder) -> Estate {
    let estate = builder.start();
    wait_for_answer(&estate.proxy);
    estate
}

/// Makes a CA server answer requests for its CRL with this reply.
pub(crate) fn answer_crl_requests(ca_server: &StandIn, reply: Reply) {
    ca_server.answer(move |request| (request.path() == CRL_PATH).then(|| reply.clone()));
}

pub(crate) fn crl_requests(server: &StandIn) -> Vec<Recorded> {
    let mut requests = server.requests();
    requests.retain(|request| request.path() == CRL_PATH);
    requests
}

pub(crate) fn compiler_requests(estate: &Estate) -> Vec<Recorded> {
    estate
        .compilers
        .iter()
        .flat_map(StandIn::requests)
        .collect()
}

/// Waits for the fetch at the start.
#[track_caller]
pub(crate) fn wait_for_answer(proxy: &Proxy) -> Value {
    let status = proxy.wait_for_status("a list was fetched", |status| {
        status["trust"]["fetch"]["last_answer"].is_string()
    });
    status["trust"]["fetch"].clone()
}

/// Runs `crl fetch`, which makes a new CRL active; returns the output.
#[track_caller]
pub(crate) fn fetch(proxy: &Proxy) -> String {
    let output = done(proxy, &["crl", "fetch"], &[]);
    assert!(output.contains("is active"), "{output}");
    output
}

/// Runs `crl fetch` for a CRL that is already active. The stand-in signs its CRL again for each request, which is not a
/// change.
#[track_caller]
pub(crate) fn fetch_unchanged(proxy: &Proxy) {
    done(proxy, &["crl", "fetch"], &[]);
}

/// The proxy fetches only at the start and when the operator requests it.
pub(crate) const ON_REQUEST: &str = "interval = \"24h\"\njitter = \"0s\"";

/// The table with this state directory.
pub(crate) fn state_table(directory: &Path) -> String {
    format!("[state]\ndirectory = {directory:?}")
}

/// A proxy whose CA server cannot be reached, with this CRL in the agent's files.
pub(crate) fn without_ca(ca: &Ca, file: &str, state: &Path) -> Front {
    let compiler = StandIn::start("c1");
    let pools = format!(
        "[pools.ca]\nscheme = \"http\"\nmembers = [\"127.0.0.1:1\"]\n\
         [pools.compilers]\nscheme = \"http\"\nmembers = [{:?}]",
        compiler.address()
    );
    let proxy = proxy(ca)
        .fetch(ON_REQUEST)
        .file("ssl/crl.pem", file, 0o644)
        .with(&state_table(state))
        .with(&pools)
        .start();
    proxy.wait_for_members(&["compilers"]);
    Front {
        proxy,
        _compiler: compiler,
    }
}

/// The proxy with one compiler.
pub(crate) struct Front {
    proxy: Proxy,
    _compiler: StandIn,
}

impl Front {
    pub(crate) fn client(&self, agent: &TestCredential) -> Client {
        self.proxy.client(Some(agent))
    }
}

impl Deref for Front {
    type Target = Proxy;

    fn deref(&self) -> &Proxy {
        &self.proxy
    }
}
