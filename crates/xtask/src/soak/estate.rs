//! The estate: a CA, a CA server that signs by itself, two compilers, and the built program in front of them.

use std::{
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
};

use testkit::{Ca, Proxy, Reply, StandIn};

use super::{Plant, answer};
use crate::servers::Servers;

/// Everything that runs; the proxy first, so that it ends before its members.
pub(super) struct Estate {
    pub(super) proxy: Proxy,
    pub(super) ca: Ca,
    pub(super) ca_server: StandIn,
    pub(super) compilers: [StandIn; 2],
    pub(super) plant: Option<Plant>,
}

impl Estate {
    /// Starts everything and waits until the members are up.
    pub(super) fn start(binary: &Path, plant: Option<Plant>) -> Self {
        let Servers {
            ca,
            ca_server,
            compilers,
        } = Servers::start("soak");
        ca_server.autosign();
        for compiler in &compilers {
            compiler.answer(answer::reply);
        }
        if plant == Some(Plant::Identity) {
            mistake(&compilers[0]);
        }
        let [first, second] = compilers.each_ref().map(StandIn::address);
        let proxy = Proxy::new(&ca, binary)
            // As installed: what changes on disk is taken by itself.
            .materials("")
            .with(&format!(
                "[pools.ca]\nmembers = [{ca:?}]\n\
                 [pools.compilers]\nmembers = [{first:?}, {second:?}]\n\
                 [upstream]\nkeepalive = \"1s\"\nagent_max_except = [\"*\"]\n\
                 [[routes]]\nname = \"chat\"\npath = {{ prefix = {CHAT:?} }}\npool = \"compilers\"\n\
                 upgrade = [\"websocket\"]\n",
                ca = ca_server.address(),
            ))
            .start();
        proxy.wait_for_members(&["ca", "compilers"]);
        Self {
            proxy,
            ca,
            ca_server,
            compilers,
            plant,
        }
    }

    /// Lets go of what members recorded; answers were made of it already.
    pub(super) fn forget(&self) {
        self.ca_server.forget();
        self.compilers.iter().for_each(StandIn::forget);
    }
}

/// Once, the compiler answers as if another agent had asked.
fn mistake(compiler: &StandIn) {
    let requests = AtomicU64::new(0);
    compiler.answer(move |request| {
        let reply = answer::reply(request)?;
        if request.path() == CHAT {
            return Some(reply);
        }
        let number = requests.fetch_add(1, Ordering::Relaxed);
        Some(if number == MISTAKEN {
            Reply::ok("SUCCESS CN=somebody-else\n")
        } else {
            reply
        })
    });
}

/// Where a compiler switches to a websocket, and sends back what comes.
pub(super) const CHAT: &str = "/chat";
/// Number of the request that is answered wrongly where that is planted.
const MISTAKEN: u64 = 5;
