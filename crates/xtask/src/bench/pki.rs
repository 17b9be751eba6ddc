//! The PKI that the proxies and the load share: the CA, its CRL, and the certificates of the server and of the agents.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use testkit::{Ca, TestCredential};

use crate::workspace;

/// The PKI of a benchmark: files for the proxies, and values for the load.
pub(super) struct Pki {
    /// CA certificates, PEM.
    pub(super) bundle: String,
    pub(super) agents: Vec<TestCredential>,
    /// The name with which clients connect.
    pub(super) server_name: String,
}

impl Pki {
    /// A newly created CA with ECDSA keys.
    pub(super) fn make(folder: &Path) -> Result<Self> {
        let ca = Ca::new();
        let server = ca.server("puppet.example.com");
        let agents = (0..4)
            .map(|n| ca.agent(&format!("agent{n}.example.com")))
            .collect();
        ca.revoke(&ca.agent("revoked.example.com"));
        Self::of(
            folder,
            ca.bundle_pem(),
            &ca.crl_pem(),
            "puppet",
            &server,
            agents,
        )
    }

    /// The PKI of the Puppet CA that made `ssl-fixtures/`. Its certificates are as long as those in production. All
    /// keys are RSA 4096, except the key of the server if `server` names another one.
    pub(super) fn of_puppet(folder: &Path, server: &str, server_name: &str) -> Result<Self> {
        let text = |file: &str| {
            let path = workspace::root().join("ssl-fixtures").join(file);
            fs::read_to_string(&path).with_context(|| path.display().to_string())
        };
        let credential = |name: &str| {
            let (cert, key) = (text(&format!("{name}.pem"))?, text(&format!("{name}.key"))?);
            anyhow::Ok(TestCredential::from_pem(name, &cert, &key))
        };
        let agents = ["agent", "altnames", "trusted"].map(credential);
        Self::of(
            folder,
            text("ca-bundle.pem")?,
            &text("crl-after.pem")?,
            server_name,
            &credential(server)?,
            agents.into_iter().collect::<Result<_>>()?,
        )
    }

    /// An existing PKI, written to where the proxies expect it.
    pub(super) fn of(
        folder: &Path,
        bundle: String,
        crl: &str,
        server_name: &str,
        server: &TestCredential,
        agents: Vec<TestCredential>,
    ) -> Result<Self> {
        write_private(&folder.join("ca.pem"), &bundle)?;
        write_private(&folder.join("crl.pem"), crl)?;
        write_private(&folder.join("puppet.pem"), &server.chain_pem())?;
        write_private(&folder.join("key.pem"), &server.key_pem)?;
        // HAProxy reads the certificate and the key from one file.
        let both = server.chain_pem() + &server.key_pem;
        write_private(&folder.join("haproxy.pem"), &both)?;
        Ok(Self {
            bundle,
            agents,
            server_name: server_name.to_owned(),
        })
    }
}

/// Writes a file that only its owner can read. Proxies refuse a key that other accounts can read.
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
