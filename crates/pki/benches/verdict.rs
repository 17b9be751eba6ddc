//! The cost of a verdict with up to a million revoked certificates: the memory of the index, and the time of a verdict on a new
//! and on a remembered chain. The times are compared with plain RSA-4096 verifications in the same rounds.
//! Run it with `cargo xtask bench verdict`.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a program for the terminal; one that cannot go on should stop"
)]

#[expect(
    dead_code,
    reason = "the benchmark needs a part of what the tests share"
)]
#[path = "../tests/support/mod.rs"]
mod support;

use std::fs;
use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use aws_lc_rs::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use pki::{TrustSettings, TrustStore};
use rcgen::{KeyPair, PKCS_RSA_SHA256, RsaKeySize};
use rustls_pki_types::CertificateDer;
use support::crls::List;
use support::*;
use x509_parser::prelude::{FromDer, X509Certificate};

fn main() -> ExitCode {
    let estate = Estate::new();
    println!("entries   index MB   resident MB   never seen us   bare    seen us   bare");
    let mut outcome = ExitCode::SUCCESS;
    let mut first = None;
    for entries in [0, 1_000, 10_000, 100_000, 1_000_000] {
        let row = estate.measure(entries);
        let flat = first.get_or_insert(row.unseen);
        println!(
            "{entries:>7} {:>10.2} {:>13.2} {:>15.1} {:>6.2} {:>10.1} {:>6.3}",
            row.index_bytes as f64 / 1e6,
            row.resident_bytes as f64 / 1e6,
            micros(row.unseen),
            ratio(row.unseen, row.bare),
            micros(row.seen),
            ratio(row.seen, row.bare),
        );
        for (what, is_over) in [
            (
                "index",
                row.index_bytes.max(row.resident_bytes) > INDEX_BYTES_MAX,
            ),
            ("chain never seen", ratio(row.unseen, row.bare) > UNSEEN_MAX),
            ("chain seen", ratio(row.seen, row.bare) > SEEN_MAX),
            ("curve", ratio(row.unseen, *flat) > CURVE_MAX),
        ] {
            if is_over {
                println!("        over the bound: {what}");
                outcome = ExitCode::FAILURE;
            }
        }
    }
    println!(
        "bounds: {} MB; never seen {UNSEEN_MAX} bare checks, seen {SEEN_MAX}; {CURVE_MAX} times an empty list's",
        INDEX_BYTES_MAX / 1_000_000
    );
    outcome
}

/// The two levels of Puppet's CA with keys of 4096 bits, and agents of it.
struct Estate {
    root: TestCa,
    issuing: TestCa,
    agents: Vec<CertificateDer<'static>>,
    bare: Bare,
}

/// One signature by the issuing CA, which is verified alone.
struct Bare {
    key: Vec<u8>,
    message: Vec<u8>,
    signature: Vec<u8>,
}

struct Row {
    index_bytes: usize,
    resident_bytes: usize,
    unseen: Duration,
    seen: Duration,
    bare: Duration,
}

impl Estate {
    fn new() -> Self {
        let key = || KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_4096).unwrap();
        let root = TestCa::root_with(ca_params("Puppet Root CA: bench"), key());
        let issuing = root.intermediate_with(ca_params("Puppet CA: bench"), key(), 2);
        // All agents have the same key, because this benchmark does not verify possession, as a handshake would.
        let agents_key = key();
        let agent = |serial| {
            let params = leaf_params(&format!("web{serial}.example.com"), serial);
            let signed = params.signed_by(&agents_key, &issuing.issuer).unwrap();
            signed.der().clone()
        };
        let agents: Vec<_> = (10..10 + ROUNDS).map(agent).collect();
        let bare = Bare::of(&agents[0], &issuing);
        Self {
            root,
            issuing,
            agents,
            bare,
        }
    }

    fn measure(&self, entries: u32) -> Row {
        let resident = resident_bytes();
        let store = self.store(entries);
        let resident_bytes = resident_bytes().saturating_sub(resident);
        let mut times = [const { Vec::new() }; 3];
        // The three are measured in turns, so that other load affects all of them alike.
        for agent in &self.agents {
            let chain = std::slice::from_ref(agent);
            let verdict = || assert_eq!(reason(&store.verify(chain, now())), None);
            times[0].push(timed(verdict));
            times[1].push(timed(verdict));
            times[2].push(timed(|| self.bare.check()));
        }
        let memory = store.chain_memory();
        assert_eq!((memory.hits, memory.misses), (ROUNDS, ROUNDS));
        let [unseen, seen, bare] = times.map(median);
        Row {
            index_bytes: store.index_bytes(),
            resident_bytes,
            unseen,
            seen,
            bare,
        }
    }

    fn store(&self, entries: u32) -> TrustStore {
        let crls = [
            List::new(1)
                .revoking_strangers(entries)
                .signed_by(&self.issuing),
            List::new(1).signed_by(&self.root),
        ];
        let bundle = [self.issuing.der.clone(), self.root.der.clone()];
        let store = store_with(&bundle, &crls, &TrustSettings::default(), None).unwrap();
        assert_eq!(store.status(now()).crls[0].entries, entries as usize);
        store
    }
}

impl Bare {
    fn of(agent: &CertificateDer<'_>, issuing: &TestCa) -> Self {
        let (_, agent) = X509Certificate::from_der(agent).unwrap();
        let (_, issuing) = X509Certificate::from_der(&issuing.der).unwrap();
        let key = &issuing.tbs_certificate.subject_pki.subject_public_key;
        Self {
            key: key.data.to_vec(),
            message: agent.tbs_certificate.as_ref().to_vec(),
            signature: agent.signature_value.data.to_vec(),
        }
    }

    fn check(&self) {
        let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &self.key);
        key.verify(black_box(&self.message), &self.signature)
            .unwrap();
    }
}

fn timed(work: impl FnOnce()) -> Duration {
    let began = Instant::now();
    work();
    began.elapsed()
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

fn ratio(time: Duration, unit: Duration) -> f64 {
    time.as_secs_f64() / unit.as_secs_f64()
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

/// Resident memory of this process.
fn resident_bytes() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<usize>().ok());
    kib.unwrap_or_default() * 1024
}

const ROUNDS: u64 = 500;

const INDEX_BYTES_MAX: usize = 80_000_000;
const UNSEEN_MAX: f64 = 4.0;
const SEEN_MAX: f64 = 0.3;
const CURVE_MAX: f64 = 1.25;
