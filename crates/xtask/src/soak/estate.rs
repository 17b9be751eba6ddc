//! The estate: a CA, a CA server that signs automatically, two compilers with their faults, and the built program in
//! front of them.

use std::{
    ops::Deref,
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use testkit::{Ca, Estate, EstateBuilder, Proxy, Recorded, Reply, Servers};

use super::{
    Plant, answer,
    faults::{FaultPlan, MemberFault},
    ledger::FaultLedger,
};

/// Everything that runs.
pub(super) struct SoakEstate {
    estate: Estate,
    pub(super) ledger: Arc<FaultLedger>,
    pub(super) seed: u64,
    pub(super) plant: Option<Plant>,
}

impl Deref for SoakEstate {
    type Target = Estate;

    fn deref(&self) -> &Estate {
        &self.estate
    }
}

impl SoakEstate {
    /// Starts everything and waits until the members are up. A compiler spoils one of `fault_every` requests, or none
    /// if that is 0.
    pub(super) fn start(
        binary: &Path,
        plant: Option<Plant>,
        seed: u64,
        fault_every: usize,
    ) -> Self {
        let ledger = Arc::new(FaultLedger::default());
        let (binary, met) = (binary.to_owned(), Arc::clone(&ledger));
        let estate = EstateBuilder::new(|ca| Proxy::new(ca, binary))
            .ca(&Ca::named("soak"))
            .tls_members()
            .configuration(move |proxy, servers| {
                servers.ca_server.autosign();
                for (number, compiler) in servers.compilers.iter().enumerate() {
                    let plan = FaultPlan::new(seed.wrapping_add(number as u64), fault_every);
                    let script = Script {
                        address: compiler.address(),
                        plan: Mutex::new(plan),
                        ledger: Arc::clone(&met),
                        requests: AtomicU64::new(0),
                        plant: plant.filter(|_| number == 0),
                    };
                    compiler.answer(move |request| script.reply(request));
                }
                // As in an installation, the proxy detects changed files and loads them.
                proxy.materials("").with(&tables(servers))
            })
            .start();
        Self {
            estate,
            ledger,
            seed,
            plant,
        }
    }
}

fn tables(servers: &Servers) -> String {
    let [first, second] = [0, 1].map(|n| servers.compilers[n].address());
    format!(
        "[pools.ca]\nmembers = [{ca:?}]\n\
         [pools.compilers]\nmembers = [{first:?}, {second:?}]\nretry_budget = \"100%\"\n\
         [pools.compilers.check]\ntimeout = \"20s\"\nfast_interval = \"200ms\"\nrise = 1\n\
         [pools.compilers.ejection]\neject_time = \"500ms\"\neject_time_max = \"1s\"\n\
         [upstream]\nkeepalive = \"1s\"\nconnect_timeout = \"30s\"\nagent_max_except = [\"*\"]\n\
         body_buffer_max = \"{buffer}B\"\n\
         [[routes]]\nname = \"chat\"\npath = {{ prefix = {CHAT:?} }}\npool = \"compilers\"\n\
         upgrade = [\"websocket\"]\n",
        ca = servers.ca_server.address(),
        buffer = BODY_BUFFER_BYTES[0],
    )
}

/// The answers of a compiler, and which of them it spoils.
struct Script {
    address: String,
    plan: Mutex<FaultPlan>,
    ledger: Arc<FaultLedger>,
    requests: AtomicU64,
    /// The planted failure, which the compiler causes once.
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
                // The proxy does not retry the request, because it has received some bytes of an answer.
                Some(Plant::Failure) => return Some(Reply::raw("HTTP/1.1 200 OK\r\nContent-")),
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

/// The path at which a compiler switches to a websocket and echoes every message.
pub(super) const CHAT: &str = "/chat";
/// The header field in which a compiler states its name.
pub(super) const SERVED_BY: &str = "X-Served-By";
/// Values of `body_buffer_max`, which reloads set in turn. Some reports of agents are smaller and some are larger.
pub(super) const BODY_BUFFER_BYTES: [usize; 2] = [32 << 10, 64 << 10];
/// Number of the request that gets the planted wrong answer.
const MISTAKEN: u64 = 5;
