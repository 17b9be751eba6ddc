//! Lists that are fetched from the CA: how often they are asked for, where they are kept, and a front without a CA.

use std::{ops::Deref, path::Path};

use testkit::{Ca, Client, Credential, Proxy, StandIn};

use super::proxy;

/// Nothing is fetched but at the start and when somebody asks.
pub(crate) const WHEN_ASKED: &str = "interval = \"24h\"\njitter = \"0s\"";

/// The table that has what outlasts a restart in this directory.
pub(crate) fn state_in(directory: &Path) -> String {
    format!("[state]\ndirectory = {directory:?}")
}

/// A front whose CA server nobody reaches, with this list in the agent's files.
pub(crate) fn without_ca(ca: &Ca, file: &str, state: &Path) -> Front {
    let compiler = StandIn::start("c1");
    let pools = format!(
        "[pools.ca]\nscheme = \"http\"\nmembers = [\"127.0.0.1:1\"]\n\
         [pools.compilers]\nscheme = \"http\"\nmembers = [{:?}]",
        compiler.address()
    );
    let proxy = proxy(ca)
        .fetch(WHEN_ASKED)
        .file("ssl/crl.pem", file, 0o644)
        .with(&state_in(state))
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
    pub(crate) fn client(&self, agent: &Credential) -> Client {
        self.proxy.client(Some(agent))
    }
}

impl Deref for Front {
    type Target = Proxy;

    fn deref(&self) -> &Proxy {
        &self.proxy
    }
}
