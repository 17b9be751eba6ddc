//! `--servers`: a CA server and two compilers for a proxy that a reader of the tutorial starts.

use std::{fs, path::Path, thread};

use anyhow::{Context, Result};
use serde_json::json;
use testkit::{HeldPort, Recorded, Reply, Servers};

/// Serves until the process is killed. The file `addresses` is written last.
pub(crate) fn until_killed(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    let servers = Servers::start("tutorial");
    servers.ca_server.autosign();
    for compiler in &servers.compilers {
        compiler.answer(jrubies);
    }
    let ca = &servers.ca;
    ca.write_ssldir(&directory.join("ssl"), "puppet");
    fs::write(directory.join("ca.pem"), ca.bundle_pem())?;
    for name in AGENTS {
        let agent = ca.agent(name);
        fs::write(directory.join(format!("{name}.pem")), &agent.cert_pem)?;
        fs::write(directory.join(format!("{name}.key")), &agent.key_pem)?;
    }
    let port = HeldPort::take();
    let [c1, c2] = [0, 1].map(|n| servers.compilers[n].address());
    let authority = servers.ca_server.address();
    println!("CA server {authority}, compilers {c1} and {c2}; end with Ctrl-C or kill");
    let addresses = format!("PORT={port}\nCA={authority}\nC1={c1}\nC2={c2}\n");
    // The file is renamed when it is complete, because a shell that waits for it must not read a part of it.
    fs::write(directory.join("addresses.new"), addresses)?;
    fs::rename(directory.join("addresses.new"), directory.join("addresses"))?;
    loop {
        thread::park();
    }
}

/// The agents that have certificates.
const AGENTS: [&str; 2] = ["web01", "web02"];
/// JRubies of each compiler.
const JRUBIES: usize = 4;

/// The response of the status service of a Puppet Server.
fn jrubies(request: &Recorded) -> Option<Reply> {
    let metrics = json!({ "num-jrubies": JRUBIES, "num-free-jrubies": JRUBIES });
    request.is_jruby_reading().then(|| Reply::jrubies(&metrics))
}
