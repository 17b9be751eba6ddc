//! What an operator has to do after `init`, on the proxy, on the CA server and on the compilers.

use std::{fmt::Write as _, path::Path};

use serde::Serialize;

use super::{
    compiler_ca::names,
    configuration::Members,
    machine::{Layout, Machine},
};

/// The directory that the proxy reads its certificate towards compilers from.
const PROXY_TLS: &str = "/etc/proscenium/tls";

/// What the CA server must not do.
const LEAVE_UNTRUSTED: &str = "Leave `allow-header-cert-info` at `false` in auth.conf. A CA server that trusts the headers signs certificates for any client (/usr/share/doc/proscenium/operating/ca.md).";

/// One step, on one kind of machine.
#[derive(Debug, Serialize)]
pub(super) struct Step {
    /// Where, and what it achieves.
    title: String,
    /// Sentences, each about one action.
    text: Vec<String>,
    /// Commands or lines of a file to copy.
    lines: Vec<String>,
}

impl Step {
    fn new(title: &str, text: &[&str], lines: &str) -> Self {
        Self {
            title: title.to_owned(),
            text: text.iter().map(|&text| text.to_owned()).collect(),
            lines: lines.lines().map(str::to_owned).collect(),
        }
    }
}

/// The steps as text, numbered.
pub(super) fn text(steps: &[Step]) -> String {
    let mut text = String::new();
    for (number, step) in steps.iter().enumerate() {
        let _ = writeln!(text, "{}. {}", number + 1, step.title);
        for sentence in &step.text {
            let _ = writeln!(text, "   {sentence}");
        }
        if !step.lines.is_empty() {
            let _ = writeln!(text);
        }
        for line in &step.lines {
            let _ = writeln!(text, "       {line}");
        }
        let _ = writeln!(text);
    }
    text
}

/// What is left to do after the configuration is written.
pub(super) fn after_configuration(machine: &Machine, members: &Members, file: &str) -> Vec<Step> {
    let server = machine.layout.server;
    let mut here = Vec::new();
    let missing = members.missing();
    let fill_in = format!("Fill in {} in {file}.", missing.join(" and "));
    if !missing.is_empty() {
        here.push(fill_in.as_str());
    }
    if machine.agents_port_in_use {
        here.push("Port 8140 is in use on this machine. If that is a Puppet Server, move it to another machine or to loopback (\"Everything on one host\" in /usr/share/doc/proscenium/operating/compilers.md). Otherwise change `address` of the listener.");
    }
    here.push("Test the configuration. `check` prints how to request a certificate, and how to let the proxy read the key, if necessary.");
    let own = machine.certname.as_ref();
    let own = own.map_or("the certname of the proxy", |found| &found.value);
    let inventory = format!(
        "The CA server renews certificates. Add {own} to infra_inventory.txt there, so that agents renew theirs through the proxy (/usr/share/doc/proscenium/operating/ca.md). The certificate of the proxy has a short life too: a Puppet agent of version 8 on this machine renews it, or `renew = true` in [tls]."
    );
    let mut on_ca = vec![LEAVE_UNTRUSTED];
    if machine.renewed_after.is_some() {
        on_ca.push(&inventory);
    }
    vec![
        Step::new(
            "On this machine",
            &here,
            "proscenium check --user proscenium",
        ),
        Step::new("On the CA server", &on_ca, ""),
        Step::new(
            "On each compiler",
            &[&format!(
                "In {server}/conf.d/auth.conf, trust the identity headers of the proxy:"
            )],
            AUTH_CONF,
        ),
        Step::new(
            "On each compiler, before the first agent run",
            &[
                "Make sure that only the proxy can connect: by a CA of their own (the command below creates it), by a packet filter, or on loopback (/usr/share/doc/proscenium/operating/compilers.md).",
            ],
            "proscenium init --compiler-ca /etc/proscenium/compiler-ca",
        ),
        Step::new(
            "On this machine, when the servers are prepared",
            &["Start the proxy, and test the whole deployment."],
            "systemctl enable --now proscenium\nproscenium doctor",
        ),
        Step::new(
            "On the CA server, to see that the proxy learns of revocations",
            &[
                "Revoke the certificate of a test agent, and run that agent: the proxy must answer it with 403. If it does not, the CA serves another CRL than its own, as with `enable-infra-crl` (/usr/share/doc/proscenium/operating/revocation.md).",
            ],
            "puppetserver ca revoke --certname test-agent.example.com",
        ),
    ]
}

/// What is left to do after a CA for compilers is created in a directory.
pub(super) fn after_compiler_ca(layout: &Layout, directory: &Path, webserver: &str) -> Vec<Step> {
    let (shown, server) = (directory.display(), layout.server);
    let (ca, crl) = (names::CA, names::CRL);
    let (certificate, key) = (names::CERTIFICATE, names::KEY);
    vec![
        Step::new(
            "On the proxy, install the files",
            &[
                "The proxy must be able to read its key, and no other account. `doctor` reads the dates of the CA and of its CRL from the copies.",
            ],
            &format!(
                "install -d -m 0750 -g proscenium {PROXY_TLS}\n\
                 install -m 0640 -g proscenium {shown}/{certificate} {shown}/{key} {PROXY_TLS}/\n\
                 install -m 0644 {shown}/{ca} {shown}/{crl} {PROXY_TLS}/"
            ),
        ),
        Step::new(
            "In the configuration of the proxy, use the certificate",
            &[
                "If compilers are in use, they must accept both CAs until this is done (/usr/share/doc/proscenium/operating/compilers.md).",
            ],
            &format!(
                "[pools.compilers.tls]\n\
                 chain = \"{PROXY_TLS}/{certificate}\"\n\
                 key = \"{PROXY_TLS}/{key}\""
            ),
        ),
        Step::new(
            "On each compiler, accept only this CA",
            &[
                &format!("Copy {shown}/{ca} and {shown}/{crl} to {server}/."),
                &format!(
                    "In {server}/conf.d/webserver.conf, set these lines, with the certname of the compiler. They are also in {shown}. The compiler keeps its certificate of the Puppet CA."
                ),
            ],
            webserver,
        ),
        Step::new(
            "On each compiler, trust the identity headers",
            &[&format!(
                "In {server}/conf.d/auth.conf. Then restart Puppet Server."
            )],
            AUTH_CONF,
        ),
        Step::new(
            "On the proxy, test the compilers",
            &[&format!(
                "Then move {shown}/{} to a safe place: no machine needs it until the certificate is renewed.",
                names::CA_KEY
            )],
            "proscenium check --user proscenium\nsystemctl reload proscenium\nproscenium doctor",
        ),
    ]
}

/// The lines of a compiler's `auth.conf`.
pub(super) const AUTH_CONF: &str = "\
authorization: {
    version: 1
    allow-header-cert-info: true
    rules: [ ... as they are ... ]
}
";

/// The `webserver.conf` of a compiler that accepts only the CA for compilers.
pub(super) fn webserver_conf(layout: &Layout, certname: &str) -> String {
    let Layout { ssldir, server, .. } = layout;
    let (ca, crl) = (names::CA, names::CRL);
    format!(
        "webserver: {{\n\
         \x20   access-log-config: {server}/request-logging.xml\n\
         \x20   ssl-host: 0.0.0.0\n\
         \x20   ssl-port: 8140\n\
         \x20   client-auth: need\n\
         \x20   ssl-cert: {ssldir}/certs/{certname}.pem\n\
         \x20   ssl-key: {ssldir}/private_keys/{certname}.pem\n\
         \x20   ssl-ca-cert: {server}/{ca}\n\
         \x20   ssl-crl-path: {server}/{crl}\n\
         }}\n"
    )
}
