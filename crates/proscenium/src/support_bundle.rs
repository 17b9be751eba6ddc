//! The command `support-bundle`: what a developer needs to see of a running proxy, in one file.
//!
//! It has no private key, no ticket key and no file of the ssldir. It has certnames and addresses of agents.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    os::unix::fs::OpenOptionsExt,
    time::SystemTime,
};

use anyhow::Context;
use flate2::{Compression, write::GzEncoder};

use crate::{
    arguments::{Arguments, SupportBundle},
    ask::{client, wait},
    failure::Failure,
    output,
    progress::with_progress,
    version,
};

/// Parts of the bundle: name of the file, and the endpoint that provides it.
const PARTS: &[(&str, &str)] = &[
    ("status.json", "/v1/status"),
    ("metrics.txt", "/metrics"),
    ("traffic.json", "/v1/traffic"),
    ("requests.json", "/v1/requests"),
    ("configuration.json", "/v1/configuration"),
    ("members.json", "/v1/members/state"),
    ("blocks.json", "/v1/blocks"),
    ("agents.json", "/v1/agents"),
    ("refusals.json", "/v1/refusals"),
    ("certificates.json", "/v1/certificates"),
];

type Archive = tar::Builder<GzEncoder<File>>;

/// Writes the bundle. A part that cannot be read is replaced by the reason.
pub(crate) fn write(arguments: &Arguments, wanted: &SupportBundle) -> Result<(), Failure> {
    let client = client(arguments, &wanted.socket)?;
    let path = wanted.file.display();
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&wanted.file)
        .with_context(|| format!("cannot create {path}"))?;
    let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
    let mut names = Vec::new();
    let mut add = |archive: &mut Archive, name: &str, content: &[u8]| {
        names.push(name.to_owned());
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o600);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        header.set_mtime(now.map_or(0, |now| now.as_secs()));
        let name = format!("proscenium-support/{name}");
        archive.append_data(&mut header, name, content)
    };
    let written = with_progress("collecting the status of the proxy", || {
        add(&mut archive, "version.txt", version::LINES.as_bytes())?;
        for (name, endpoint) in PARTS {
            match wait(client.text(endpoint)) {
                Ok(content) => add(&mut archive, name, &content)?,
                Err(Failure::Failed(error)) => {
                    let (name, error) = (format!("{name}.error"), format!("{error:#}\n"));
                    add(&mut archive, &name, error.as_bytes())?;
                }
                Err(_) => {}
            }
        }
        archive.into_inner()?.finish()?.flush()
    });
    written.with_context(|| format!("cannot write {path}"))?;
    let answer = serde_json::json!({ "file": wanted.file, "parts": names });
    output::answer(arguments.json, &answer, |_| {
        format!(
            "wrote {path}: {}\nit has certnames and addresses of agents, and no keys; read it before you send it",
            names.join(", ")
        )
    })
}
