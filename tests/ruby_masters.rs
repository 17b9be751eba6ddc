//! Real Ruby servers (puma and WEBrick, several processes each) that read the proxy's headers as the masters of Puppet 2.7,
//! 3.8 and 5 did, in each form that the proxy writes.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, Stdio},
};

use rcgen::DnType;
use serde_json::Value;
use testkit::{Ca, Client, Proxy, TestCredential, Tool};

use crate::{examples::mongrel, support};

const NODE: &str = "/production/node/web01";
const CA_CERTIFICATE: &str = "/production/certificate/ca";

/// A master process.
struct Master {
    process: Child,
    port: u16,
}

/// A form of the identity headers, and what the masters read from it for an agent with the subject `O=Example,
/// CN=web01`.
struct Form {
    /// `[pools.compilers.identity]`
    identity: &'static str,
    /// The lines in puppet.conf of the masters.
    settings: &'static [(&'static str, &'static str)],
    /// The subject that they get.
    subject: &'static str,
    /// The name as read by Mongrel and Rack up to 2.7.
    node_2_7: &'static str,
    /// The subject of the certificate, as read by Rack of Puppet 4.6 to 5.
    certificate: Option<&'static str>,
    /// Headers that identify the client, as a Rack application sees them.
    headers: &'static [&'static str],
}

const DN: &str = "HTTP_X_CLIENT_DN";
const VERIFY: &str = "HTTP_X_CLIENT_VERIFY";
const SUBJECT: &str = "HTTP_X_SSL_SUBJECT";
const FORMS: &[Form] = &[
    // Mongrel of Puppet 0.25 to 2.7, and Rack of Puppet 2.6 and 2.7, expect the CN last.
    Form {
        identity: "dn_format = \"cn-last\"",
        settings: &[],
        subject: "O=Example,CN=web01",
        node_2_7: "web01",
        certificate: None,
        headers: &[DN, VERIFY],
    },
    // Rack of Puppet 3 reads RFC 2253. The older pattern reads too much from this form.
    Form {
        identity: "",
        settings: &[],
        subject: "CN=web01,O=Example",
        node_2_7: "web01,O=Example",
        certificate: None,
        headers: &[DN, VERIFY],
    },
    // The headers that Apache and Pound sent by default.
    Form {
        identity: "dn_format = \"openssl\"",
        settings: &[],
        subject: "/O=Example/CN=web01",
        node_2_7: "web01",
        certificate: None,
        headers: &[DN, VERIFY],
    },
    // The header of sites that used Pound before.
    Form {
        identity: "dn_format = \"cn-last\"\ndn_header = \"X-SSL-Subject\"",
        settings: &[("ssl_client_header", SUBJECT)],
        subject: "O=Example,CN=web01",
        node_2_7: "web01",
        certificate: None,
        headers: &[VERIFY, SUBJECT],
    },
    // The three headers of the document, and names that a site chose itself.
    Form {
        identity: "dn_format = \"cn-last\"\ndn_header = [\"X-Client-DN\", \"X-SSL-Subject\"]\nverify_header = \"X-Client-Verdict\"",
        settings: &[("ssl_client_verify_header", "HTTP_X_CLIENT_VERDICT")],
        subject: "O=Example,CN=web01",
        node_2_7: "web01",
        certificate: None,
        headers: &[DN, "HTTP_X_CLIENT_VERDICT", SUBJECT],
    },
    // Rack of Puppet 4.6 to 5.
    Form {
        identity: "cert_format = \"one-line\"",
        settings: &[],
        subject: "CN=web01,O=Example",
        node_2_7: "web01,O=Example",
        certificate: Some("CN=web01,O=Example"),
        headers: &[DN, VERIFY, "HTTP_X_SSL_CLIENT_CERT"],
    },
];

#[test]
fn masters_on_puma_read_every_form() {
    read_every_form(Tool::Puma);
}

#[test]
fn masters_on_webrick_read_every_form() {
    read_every_form(Tool::Webrick);
}

fn read_every_form(server: Tool) {
    for form in FORMS {
        let Some(masters) = masters(server, form.settings) else {
            return;
        };
        for version in ["1.0", "1.1"] {
            let estate = Behind::start(&masters, form, version);
            reads_the_verified_agent(&estate, form);
            reads_no_one(&estate);
        }
    }
}

/// Asserts that the masters read the verified agent, whatever else the request contains.
fn reads_the_verified_agent(estate: &Behind, form: &Form) {
    let client = estate.proxy.client(Some(&estate.agent));
    let forged = [
        ("X-Client-DN", "CN=admin"),
        ("X_Client_DN", "CN=admin"),
        ("X-SSL-Subject", "CN=admin"),
        ("X-Client-Verify", "SUCCESS"),
        ("X-SSL-Client-Cert", "x"),
        ("X-Forwarded-For", "192.0.2.1"),
    ];
    let mut processes = BTreeSet::new();
    for _ in 0..4 {
        let seen = seen(
            &client,
            "PUT",
            "/production/facts/web01?x=y",
            &forged,
            b"facts",
        );
        assert_eq!(seen["authenticated"], true, "{seen:#}");
        assert_eq!(seen["subject"], form.subject, "{seen:#}");
        assert_eq!(seen["node_2_7"], form.node_2_7, "{seen:#}");
        assert_eq!(seen["node_3_8"], "web01", "{seen:#}");
        assert_eq!(seen["certificate"].as_str(), form.certificate, "{seen:#}");
        assert_eq!(seen["ip"], "127.0.0.1", "{seen:#}");
        assert_eq!(
            seen["identity_headers"],
            serde_json::json!(form.headers),
            "{seen:#}"
        );
        let request = ["method", "path", "query"].map(|key| seen[key].as_str().unwrap_or_default());
        assert_eq!(request, ["PUT", "/production/facts/web01", "x=y"]);
        assert_eq!(seen["body"], 5);
        assert_eq!(seen["host"], client.host());
        processes.insert(seen["pid"].to_string());
    }
    assert_eq!(processes.len(), 2, "both processes serve");
}

/// Asserts that the masters authenticate no client without a certificate, and none whose certificate is refused and
/// forwarded.
fn reads_no_one(estate: &Behind) {
    let forged = [("X-Client-DN", "CN=admin"), ("X-SSL-Subject", "CN=admin")];
    for (credential, verdict) in [(None, "NONE"), (Some(&estate.revoked), "FAILED:revoked")] {
        let client = estate.proxy.client(credential);
        let seen = seen(&client, "GET", CA_CERTIFICATE, &forged, b"");
        assert_eq!(seen["authenticated"], false, "{seen:#}");
        assert_eq!(seen["verify"], verdict, "{seen:#}");
        assert!(seen["node_2_7"].is_null());
        assert!(seen["certificate"].is_null());
    }
}

#[test]
fn the_mongrel_example_serves_ruby_masters() {
    for server in [Tool::Puma, Tool::Webrick] {
        let settings = [("ssl_client_header", SUBJECT)];
        let Some(masters) = masters(server, &settings) else {
            return;
        };
        let ca = Ca::single("Puppet CA: puppet.example.com");
        let addresses = masters
            .each_ref()
            .map(|master| format!("127.0.0.1:{}", master.port));
        let proxy = mongrel(&ca, &addresses);
        let client = proxy
            .client(Some(&ca.agent("web01")))
            .server_name("puppet.example.com");
        for target in [
            NODE,
            CA_CERTIFICATE,
            "/puppet/v3/node/web01?environment=production",
        ] {
            let seen = seen(&client, "GET", target, &[], b"");
            assert_eq!(seen["node_2_7"], "web01", "{server:?} {target}: {seen:#}");
            assert_eq!(seen["authenticated"], true, "{server:?} {target}: {seen:#}");
        }
    }
}

/// The facts that a master read from a request.
#[track_caller]
fn seen(
    client: &Client,
    method: &str,
    target: &str,
    fields: &[(&str, &str)],
    body: &[u8],
) -> Value {
    let answer = client.request(method, target, fields, body);
    assert_eq!(answer.status, 200, "{method} {target}: {answer:?}");
    answer.json()
}

/// A proxy in front of two masters.
struct Behind {
    proxy: Proxy,
    agent: TestCredential,
    revoked: TestCredential,
}

impl Behind {
    fn start(masters: &[Master; 2], form: &Form, version: &str) -> Self {
        let ca = Ca::new();
        let subject = [
            (DnType::OrganizationName, "Example"),
            (DnType::CommonName, "web01"),
        ];
        let agent = ca.leaf("web01").subject(&subject).issue();
        let revoked = ca.agent("gone");
        ca.revoke(&revoked);
        let members = masters
            .each_ref()
            .map(|master| format!("\"127.0.0.1:{}\"", master.port));
        let forward_cert = form.identity.contains("one-line");
        let pool = |name: &str| {
            let (members, identity) = (members.join(", "), form.identity);
            format!(
                "[pools.{name}]\nscheme = \"http\"\nmembers = [{members}]\nhttp_version = \"{version}\"\n\
                 algorithm = \"round-robin\"\nforward_cert = {forward_cert}\ncheck = {{ type = \"tcp\" }}\n\
                 [pools.{name}.identity]\n{identity}\n"
            )
        };
        let proxy = support::proxy(&ca)
            .top("legacy_routes = true")
            .listener("on_invalid = \"forward\"")
            .with("[identity]\nsubject = \"single-cn\"")
            .with(&pool("ca"))
            .with(&pool("compilers"))
            .start();
        proxy.wait_for_members(&["ca", "compilers"]);
        Self {
            proxy,
            agent,
            revoked,
        }
    }
}

/// Two processes of the application on this server, with these settings of puppet.conf.
fn masters(server: Tool, settings: &[(&str, &str)]) -> Option<[Master; 2]> {
    let (first, second) = (server.command()?, server.command()?);
    let name = match server {
        Tool::Puma => "puma",
        _ => "webrick",
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/ruby/master.rb");
    let mut processes = [first, second].map(|mut ruby| {
        ruby.arg(&script).arg(name).envs(settings.iter().copied());
        let started = ruby.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        started.expect("ruby starts")
    });
    let ports = processes.each_mut().map(|process| {
        let mut line = String::new();
        let stdout = process.stdout.take().expect("a pipe");
        BufReader::new(stdout).read_line(&mut line).expect("text");
        line.trim()
            .parse()
            .unwrap_or_else(|_| panic!("{name} prints its port, not {line:?}"))
    });
    let mut ports = ports.into_iter();
    Some(processes.map(|process| Master {
        process,
        port: ports.next().expect("as many as processes"),
    }))
}

impl Drop for Master {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
