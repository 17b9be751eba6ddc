//! The cost that no full handshake can avoid: one signature with the server's key.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use rustls::{
    SignatureScheme,
    crypto::aws_lc_rs,
    pki_types::{PrivateKeyDer, pem::PemObject},
};

use super::cpu;

/// Microseconds of CPU for a signature with the RSA key of the proxies in this directory.
pub(super) fn cost(folder: &Path) -> Result<f64> {
    let key = fs::read(folder.join("key.pem")).context("the key of the server")?;
    let key = PrivateKeyDer::from_pem_slice(&key)?;
    let key = aws_lc_rs::default_provider()
        .key_provider
        .load_private_key(key)?;
    let signer = key
        .choose_scheme(&[SignatureScheme::RSA_PSS_SHA256])
        .context("not an RSA key")?;
    let sign = |count| {
        let before = cpu::run_time(std::process::id());
        for _ in 0..count {
            signer.sign(b"a transcript of a handshake")?;
        }
        let spent = cpu::run_time(std::process::id()).saturating_sub(before);
        anyhow::Ok(spent.as_secs_f64() * 1e6 / f64::from(count))
    };
    sign(WARM_UP)?;
    sign(SIGNATURES)
}

const WARM_UP: u32 = 20;
const SIGNATURES: u32 = 300;
