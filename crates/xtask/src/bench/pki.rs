//! What proxies and load have in common: CA, list, the server's certificate and the agents'.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use testkit::{Ca, Credential};

/// One PKI for all: written as files for the proxies, kept as values for the load.
pub(super) struct Pki {
    /// CA certificates, PEM.
    pub(super) bundle: String,
    pub(super) agents: Vec<Credential>,
}

impl Pki {
    /// One made anew, by ECDSA keys.
    pub(super) fn make(folder: &Path) -> Result<Self> {
        let ca = Ca::new();
        let server = ca.server("puppet.example.com");
        let agents = (0..4)
            .map(|n| ca.agent(&format!("agent{n}.example.com")))
            .collect();
        ca.revoke(&ca.agent("revoked.example.com"));
        Self::of(folder, ca.bundle_pem(), &ca.crl_pem(), &server, agents)
    }

    /// One that is there already, written to where the proxies look for it.
    pub(super) fn of(
        folder: &Path,
        bundle: String,
        crl: &str,
        server: &Credential,
        agents: Vec<Credential>,
    ) -> Result<Self> {
        write_private(&folder.join("ca.pem"), &bundle)?;
        write_private(&folder.join("crl.pem"), crl)?;
        write_private(&folder.join("puppet.pem"), &server.chain_pem())?;
        write_private(&folder.join("key.pem"), &server.key_pem)?;
        Ok(Self { bundle, agents })
    }
}

/// A file for the owner only: a key that others may read is refused.
fn write_private(path: &Path, text: &str) -> Result<()> {
    use std::{io::Write, os::unix::fs::OpenOptionsExt};
    fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| path.display().to_string())
}
