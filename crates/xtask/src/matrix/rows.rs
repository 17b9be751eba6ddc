//! The rows: certificate states, kinds of connection, sources of revocation, forged headers, endpoint classes and
//! faults at a reload.

use std::time::{Duration, SystemTime};

use rcgen::{CertificateParams, CustomExtension, DistinguishedName, DnType, KeyPair};
use testkit::{Ca, Protocol, TestCredential, name_der, wait_until};

use super::{
    far_end::{MARK, identified_as, no_client_verified, nothing},
    scene::{CATALOG, LIMIT, Scene, Shape},
};

/// A row of the matrix.
pub(super) struct Row {
    pub(super) name: String,
    pub(super) protocol: Protocol,
    pub(super) shape: Shape,
    pub(super) run: Box<dyn Fn(&Scene) -> Outcome>,
}

/// The outcome of a row.
pub(super) enum Outcome {
    Right,
    /// The result was wrong, for this reason.
    Wrong(String),
}

impl Outcome {
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Right => "ok",
            Self::Wrong(_) => "WRONG",
        }
    }

    fn and(self, other: impl FnOnce() -> Self) -> Self {
        match self {
            Self::Right => other(),
            outcome => outcome,
        }
    }
}

/// All rows.
pub(super) fn all() -> Vec<Row> {
    let mut rows = Vec::new();
    for protocol in [Protocol::Http1, Protocol::Http2] {
        let mut rows = Rows {
            rows: &mut rows,
            protocol,
        };
        states(&mut rows);
        changes(&mut rows);
        lies(&mut rows);
        classes(&mut rows);
    }
    faults(&mut Rows {
        rows: &mut rows,
        protocol: Protocol::Http1,
    });
    rows
}

/// Rows of one protocol.
struct Rows<'a> {
    rows: &'a mut Vec<Row>,
    protocol: Protocol,
}

impl Rows<'_> {
    fn add(&mut self, name: &str, run: impl Fn(&Scene) -> Outcome + 'static) {
        self.add_shaped(name, Shape::Plain, run);
    }

    fn add_shaped(&mut self, name: &str, shape: Shape, run: impl Fn(&Scene) -> Outcome + 'static) {
        let protocol = match self.protocol {
            Protocol::Http1 => "HTTP/1.1",
            Protocol::Http2 => "HTTP/2",
        };
        self.rows.push(Row {
            name: format!("{name}, {protocol}"),
            protocol: self.protocol,
            shape,
            run: Box::new(run),
        });
    }
}

type Make = fn(&Ca) -> TestCredential;

/// Certificates in every state, on a full handshake.
fn states(rows: &mut Rows<'_>) {
    rows.add("a good certificate", |scene| good(scene, "web01"));
    rows.add("no certificate", |scene| {
        let _ = scene.anonymous().try_request("GET", CATALOG, &[], b"");
        no_client_verified(&scene.arrived())
    });
    let states: [(&str, Make); 11] = [
        ("an expired certificate", |ca| {
            ca.leaf("web01").expired().issue()
        }),
        ("a certificate not yet valid", |ca| {
            ca.leaf("web01").valid_days(1, 9).issue()
        }),
        ("a certificate of another CA", |_| {
            Ca::other().agent("web01")
        }),
        ("a certificate of another CA with the same name", |ca| {
            ca.namesake().agent("web01")
        }),
        ("a stolen certificate without its key", |ca| {
            ca.agent("web01").with_key_of(&ca.agent("web02"))
        }),
        ("two CNs, the victim's first", |ca| {
            of_names(ca, &["web01", "web02"])
        }),
        ("two CNs, the victim's last", |ca| {
            of_names(ca, &["web02", "web01"])
        }),
        ("a comma and another name in the CN", |ca| {
            ca.leaf("web02")
                .subject(&[(DnType::CommonName, "web02,CN=web01")])
                .issue()
        }),
        ("a slash and another name in the CN", |ca| {
            ca.leaf("web02")
                .subject(&[(DnType::CommonName, "web02/CN=web01")])
                .issue()
        }),
        ("a line break in the CN", |ca| {
            let name = "web02\r\nX-Client-DN: CN=web01";
            ca.leaf("web02")
                .subject(&[(DnType::CommonName, name)])
                .issue()
        }),
        ("no CN", |ca| {
            ca.leaf("web02")
                .subject(&[(DnType::OrganizationName, "CN=web01")])
                .issue()
        }),
    ];
    for (name, make) in states {
        rows.add(name, move |scene| never(scene, &make(&scene.servers.ca)));
    }
    rows.add("a certificate that was revoked before", |scene| {
        let agent = scene.servers.ca.agent("web01");
        scene.revoke(&agent);
        never(scene, &agent).and(|| good(scene, "web02"))
    });
    rows.add("a certificate of a revoked intermediate", |scene| {
        let agent = scene.servers.ca.agent("web01");
        scene.servers.ca.revoke_intermediate();
        scene.revoke(&scene.servers.ca.agent("web09"));
        never(scene, &agent)
    });
}

/// A certificate with several CNs, in this order.
fn of_names(ca: &Ca, names: &[&str]) -> TestCredential {
    let rdns: Vec<_> = names
        .iter()
        .map(|name| vec![("2.5.4.3".to_owned(), 0x0c, name.as_bytes().to_vec())])
        .collect();
    ca.leaf("web02").issue_as(&name_der(&rdns))
}

/// The kind of connection that a formerly accepted client uses.
#[derive(Clone, Copy)]
enum ConnectionKind {
    Full,
    Resumed,
    Live,
}

/// The reason why a certificate is no longer accepted.
#[derive(Clone, Copy)]
enum Change {
    Revoked,
    Fetched,
    Blocked,
    Expired,
}

fn changes(rows: &mut Rows<'_>) {
    let changes = [
        ("revoked by a CRL file", Change::Revoked),
        ("revoked by a fetched CRL", Change::Fetched),
        ("blocked", Change::Blocked),
        ("expired", Change::Expired),
    ];
    let connections = [
        ("on a new connection", ConnectionKind::Full),
        ("on a resumed session", ConnectionKind::Resumed),
        ("on an open connection", ConnectionKind::Live),
    ];
    for (change_name, change) in changes {
        for (connection_name, connection) in connections {
            let shape = match change {
                Change::Fetched => Shape::Fetching,
                _ => Shape::Plain,
            };
            let name = format!("{change_name}, {connection_name}");
            rows.add_shaped(&name, shape, move |scene| {
                changed(scene, change, connection)
            });
        }
    }
}

/// The proxy accepts an agent first, and then no longer. The agent's next request must not carry a verified identity.
fn changed(scene: &Scene, change: Change, connection: ConnectionKind) -> Outcome {
    let ends = 8;
    let agent = match change {
        Change::Expired => scene
            .servers
            .ca
            .leaf("web01")
            .valid_seconds(-60, ends)
            .issue(),
        _ => scene.servers.ca.agent("web01"),
    };
    let over = SystemTime::now() + Duration::from_secs(ends.unsigned_abs() + 2);
    let client = scene.client(&agent);
    let Some(mut live) = scene.live(&client) else {
        return Outcome::Wrong("a good certificate was refused".to_owned());
    };
    match change {
        Change::Revoked | Change::Fetched => scene.revoke(&agent),
        Change::Blocked if scene.block("web01") => {}
        Change::Blocked => return Outcome::Wrong("the block was refused".to_owned()),
        Change::Expired => {
            wait_until(LIMIT, || (SystemTime::now() > over).then_some(()));
        }
    }
    scene.forget();
    match connection {
        ConnectionKind::Full => {
            let _ = client.forgetful().try_request("GET", CATALOG, &[], b"");
        }
        ConnectionKind::Resumed => match client.connect() {
            Ok(mut resumed) if resumed.resumed() => {
                let _ = resumed.try_request("GET", CATALOG, &[], b"");
            }
            Ok(_) => return Outcome::Wrong("the session was not resumed".to_owned()),
            // The proxy refused the client before a session could be resumed.
            Err(_) => {}
        },
        ConnectionKind::Live => {
            let _ = live.try_request("GET", CATALOG, &[], b"");
        }
    }
    let outcome = no_client_verified(&scene.arrived());
    match change {
        Change::Expired => outcome,
        _ => outcome.and(|| good(scene, "web02")),
    }
}

/// Clients send forged identity headers.
fn lies(rows: &mut Rows<'_>) {
    const FORGED: &str = "CN=victim-forged";
    const LIES: [(&str, &[(&str, &str)]); 10] = [
        ("X-Client-DN", &[("X-Client-DN", FORGED)]),
        (
            "X-Client-DN twice",
            &[("X-Client-DN", FORGED), ("X-Client-DN", "CN=forged")],
        ),
        ("X_Client_DN", &[("X_Client_DN", FORGED)]),
        ("x.client.dn", &[("x.client.dn", FORGED)]),
        ("X-Client_Verify", &[("X-Client_Verify", "SUCCESS forged")]),
        ("X-Client-Verify", &[("X-Client-Verify", "SUCCESS forged")]),
        ("X-Client-Cert", &[("X-Client-Cert", "-----BEGIN forged")]),
        (
            "X-SSL-Subject and X-SSL-Client-Cert",
            &[("X-SSL-Subject", FORGED), ("X-SSL-Client-Cert", MARK)],
        ),
        ("X-Authentication", &[("X-Authentication", MARK)]),
        (
            "Forwarded and X-Forwarded-For",
            &[("Forwarded", "for=forged"), ("X-Forwarded-For", MARK)],
        ),
    ];
    for (name, fields) in LIES {
        rows.add(&format!("an agent sends {name}"), move |scene| {
            let agent = scene.servers.ca.agent("web01");
            let _ = scene
                .client(&agent)
                .try_request("GET", CATALOG, fields, b"");
            identified_as(&scene.arrived(), "web01")
        });
        rows.add(
            &format!("a client without a certificate sends {name}"),
            move |scene| {
                let _ = scene.anonymous().try_request("GET", CATALOG, fields, b"");
                let target = "/puppet-ca/v1/certificate/ca";
                let _ = scene.anonymous().try_request("GET", target, fields, b"");
                no_client_verified(&scene.arrived())
            },
        );
    }
    if rows.protocol == Protocol::Http1 {
        rows.add("an agent names identity headers in Connection", |scene| {
            let agent = scene.servers.ca.agent("web01");
            let fields = [("Connection", "X-Client-Verify, X-Client-DN, X-Client-Cert")];
            let _ = scene
                .client(&agent)
                .try_request("GET", CATALOG, &fields, b"");
            identified_as(&scene.arrived(), "web01")
        });
    }
}

/// Tests which clients may request which endpoints.
fn classes(rows: &mut Rows<'_>) {
    rows.add("enrolment without a certificate has no identity", |scene| {
        let target = "/puppet-ca/v1/certificate/ca";
        match scene.anonymous().try_request("GET", target, &[], b"") {
            Ok(answer) if answer.status == 200 => no_client_verified(&scene.arrived()),
            answer => Outcome::Wrong(format!("refused: {answer:?}")),
        }
    });
    let administration = [
        ("GET", "/puppet-ca/v1/certificate_statuses/all"),
        ("PUT", "/puppet-ca/v1/certificate_status/web02"),
        ("DELETE", "/puppet-ca/v1/certificate_status/web02"),
        ("POST", "/puppet-ca/v1/sign/all"),
        ("PUT", "/puppet-ca/v1/clean"),
        ("DELETE", "/puppet-ca/v1/certificate_request/web02"),
    ];
    for (method, target) in administration {
        let short = target.trim_start_matches("/puppet-ca/v1/");
        rows.add(
            &format!("an agent administers the CA: {method} {short}"),
            move |scene| {
                let agent = scene.servers.ca.agent("web01");
                let _ = scene.client(&agent).try_request(method, target, &[], b"");
                nothing(&scene.arrived())
            },
        );
    }
    rows.add("a certificate request for rights on the servers", |scene| {
        let target = "/puppet-ca/v1/certificate_request/web05";
        let request = request_for_rights("web05");
        let type_ = [("Content-Type", "text/plain")];
        let _ = scene
            .anonymous()
            .try_request("PUT", target, &type_, request.as_bytes());
        nothing(&scene.arrived())
    });
    let tricks = [
        "/%70uppet-ca/v1/sign/all",
        "//puppet-ca/v1/sign/all",
        "/puppet-ca;x=1/v1/sign/all",
        "/puppet/v3/../../puppet-ca/v1/sign/all",
        "/puppet/v3/%2e%2e/%2e%2e/puppet-ca/v1/sign/all",
    ];
    for target in tricks {
        rows.add(&format!("an obfuscated path: {target}"), move |scene| {
            let agent = scene.servers.ca.agent("web01");
            let _ = scene.client(&agent).try_request("POST", target, &[], b"");
            nothing(&scene.arrived())
        });
    }
    rows.add("an agent requests another agent's catalog", |scene| {
        let agent = scene.servers.ca.agent("web02");
        let _ = scene.client(&agent).try_request("GET", CATALOG, &[], b"");
        nothing(&scene.arrived())
    });
}

/// A signing request with `pp_cli_auth`, which grants administration of the CA.
fn request_for_rights(certname: &str) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, certname);
    let rights = [1, 3, 6, 1, 4, 1, 34380, 1, 3, 39];
    // UTF8String "true".
    let value = vec![0x0c, 4, b't', b'r', b'u', b'e'];
    let extension = CustomExtension::from_oid_content(&rights, value);
    params.custom_extensions.push(extension);
    let request = KeyPair::generate().and_then(|key| params.serialize_request(&key));
    let pem = request.and_then(|request| request.pem());
    pem.unwrap_or_else(|error| panic!("cannot create a signing request: {error}"))
}

/// A fault replaces the CRL file before a reload. Revoked clients must stay refused, and valid clients accepted.
fn faults(rows: &mut Rows<'_>) {
    type Text = fn(&Ca, &str) -> Option<String>;
    let faults: [(&str, Text); 7] = [
        ("garbage", |_, _| Some("garbage\n".to_owned())),
        ("an empty file", |_, _| Some(String::new())),
        ("no file", |_, _| None),
        ("half a CRL", |ca, _| {
            let whole = ca.crl_pem();
            Some(whole[..whole.len() / 3].to_owned())
        }),
        ("an older CRL", |_, before| Some(before.to_owned())),
        ("another CA's CRL", |_, _| Some(Ca::other().crl_pem())),
        ("a CRL of another CA with the same name", |ca, _| {
            Some(ca.namesake().crl_pem())
        }),
    ];
    for (name, text) in faults {
        rows.add(&format!("{name} instead of the CRLs"), move |scene| {
            let before = scene.servers.ca.crl_pem();
            let revoked = scene.servers.ca.agent("web01");
            scene.revoke(&revoked);
            scene.write_crls(text(&scene.servers.ca, &before).as_deref());
            // If a proxy applies the file at all, it does so within this time.
            let settled = SystemTime::now() + Duration::from_secs(2);
            wait_until(LIMIT, || (SystemTime::now() > settled).then_some(()));
            never(scene, &revoked).and(|| good(scene, "web02"))
        });
    }
}

/// A valid agent must be served, and the server must see its identity.
fn good(scene: &Scene, certname: &str) -> Outcome {
    let agent = scene.servers.ca.agent(certname);
    scene.forget();
    let target = format!("/puppet/v3/catalog/{certname}?environment=production");
    match scene.client(&agent).try_request("GET", &target, &[], b"") {
        Ok(answer) if answer.status == 200 => identified_as(&scene.arrived(), certname),
        Ok(answer) => Outcome::Wrong(format!("a good agent was answered {}", answer.status)),
        Err(error) => Outcome::Wrong(format!("a good agent was refused: {error}")),
    }
}

/// Asserts that no request with this certificate carries a verified identity.
fn never(scene: &Scene, agent: &TestCredential) -> Outcome {
    scene.forget();
    let _ = scene
        .client(agent)
        .forgetful()
        .try_request("GET", CATALOG, &[], b"");
    no_client_verified(&scene.arrived())
}
