//! The estate: a CA, a CA server that signs by itself, two compilers with their faults, and the built program in front of
//! them.

use std::{
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use testkit::{Ca, Proxy, Recorded, Reply, StandIn};

use super::{
    Plant, answer,
    faults::{FaultPlan, MemberFault},
    ledger::FaultLedger,
};
use crate::servers::Servers;

/// Everything that runs; the proxy first, so that it ends before its members.
pub(super) struct Estate {
    pub(super) proxy: Proxy,
    pub(super) ca: Ca,
    pub(super) ca_server: StandIn,
    pub(super) compilers: [StandIn; 2],
    pub(super) ledger: Arc<FaultLedger>,
    pub(super) seed: u64,
    pub(super) plant: Option<Plant>,
}

impl Estate {
    /// Starts everything and waits until the members are up. A compiler spoils one of `fault_every` requests; none if that
    /// is 0.
    pub(super) fn start(
        binary: &Path,
        plant: Option<Plant>,
        (seed, fault_every): (u64, usize),
    ) -> Self {
        let Servers {
            ca,
            ca_server,
            compilers,
        } = Servers::start("soak");
        ca_server.autosign();
        let ledger = Arc::new(FaultLedger::default());
        for (number, compiler) in compilers.iter().enumerate() {
            let plan = FaultPlan::new(seed.wrapping_add(number as u64), fault_every);
            let script = Script {
                address: compiler.address(),
                plan: Mutex::new(plan),
                ledger: Arc::clone(&ledger),
                requests: AtomicU64::new(0),
                plant: plant.filter(|_| number == 0),
            };
            compiler.answer(move |request| script.reply(request));
        }
        let proxy = start_proxy(binary, &ca, &ca_server, &compilers);
        Self {
            proxy,
            ca,
            ca_server,
            compilers,
            ledger,
            seed,
            plant,
        }
    }

    /// Discards what members recorded; their answers do not need it any more.
    pub(super) fn forget(&self) {
        self.ca_server.forget();
        self.compilers.iter().for_each(StandIn::forget);
    }
}

fn start_proxy(binary: &Path, ca: &Ca, ca_server: &StandIn, compilers: &[StandIn; 2]) -> Proxy {
    let [first, second] = compilers.each_ref().map(StandIn::address);
    let proxy = Proxy::new(ca, binary)
        // As installed: the proxy loads what changes on disk by itself.
        .materials("")
        .with(&format!(
            "[pools.ca]\nmembers = [{ca:?}]\n\
             [pools.compilers]\nmembers = [{first:?}, {second:?}]\nretry_budget = \"100%\"\n\
             [pools.compilers.check]\ntimeout = \"20s\"\nfast_interval = \"200ms\"\nrise = 1\n\
             [pools.compilers.ejection]\neject_time = \"500ms\"\neject_time_max = \"1s\"\n\
             [upstream]\nkeepalive = \"1s\"\nconnect_timeout = \"30s\"\nagent_max_except = [\"*\"]\n\
             body_buffer_max = \"{buffer}B\"\n\
             [[routes]]\nname = \"chat\"\npath = {{ prefix = {CHAT:?} }}\npool = \"compilers\"\n\
             upgrade = [\"websocket\"]\n",
            ca = ca_server.address(),
            buffer = BODY_BUFFER_BYTES[0],
        ))
        .start();
    proxy.wait_for_members(&["ca", "compilers"]);
    proxy
}

/// What a compiler answers, and which of its answers it spoils.
struct Script {
    address: String,
    plan: Mutex<FaultPlan>,
    ledger: Arc<FaultLedger>,
    requests: AtomicU64,
    /// What it does wrong once.
    plant: Option<Plant>,
}

impl Script {
    fn reply(&self, request: &Recorded) -> Option<Reply> {
        let is_counted = answer::is_counted(request);
        let number = self
            .requests
            .fetch_add(u64::from(is_counted), Ordering::Relaxed);
        if is_counted && number == MISTAKEN {
            match self.plant {
                Some(Plant::Identity) => return Some(Reply::ok("SUCCESS CN=another-agent\n")),
                Some(Plant::Failure) => return Some(MemberFault::BadHead.spoil(b"spoilt", 0)),
                _ => {}
            }
        }
        let fault = is_counted.then(|| self.next_fault()).flatten();
        if is_counted {
            let (certname, number) = answer::sender(request);
            let kind = fault.map(|(kind, _)| kind);
            self.ledger.arrived(&certname, number, &self.address, kind);
        }
        answer::reply(request, &self.address, fault)
    }

    fn next_fault(&self) -> Option<(MemberFault, u64)> {
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        plan.next()
    }
}

/// Where a compiler switches to a websocket, and sends back what comes.
pub(super) const CHAT: &str = "/chat";
/// Field in which a compiler names itself.
pub(super) const SERVED_BY: &str = "X-Served-By";
/// Values of `body_buffer_max` in turn: reports of agents are smaller and larger.
pub(super) const BODY_BUFFER_BYTES: [usize; 2] = [32 << 10, 64 << 10];
/// Number of the request that is answered wrongly where that is planted.
const MISTAKEN: u64 = 5;
