//! The answers of a Puppet Server.

use std::sync::atomic::Ordering;

use serde_json::json;

use super::{Recorded, Shared, lock};
use crate::{ca::TestCredential, enrolment::RequestError, reply::Reply};

impl Shared {
    /// The answer of a Puppet Server.
    pub(super) fn puppet(&self, request: &Recorded) -> Reply {
        let segments: Vec<&str> = request.path().split('/').skip(1).collect();
        let segments = modern(segments);
        let reply = match (request.method.as_str(), segments.as_slice()) {
            ("GET", ["status", "v1", "simple", ..]) => Reply::ok("running"),
            ("GET", ["production", "status", "no_key"]) => {
                Reply::ok(r#"{"is_alive":true,"version":"3.8.7"}"#)
            }
            (_, ["puppet-ca", "v1", rest @ ..]) => return self.puppet_ca(request, rest),
            ("POST" | "GET", ["puppet", "v3", "catalog", name]) => Reply::json(
                &json!({ "name": name, "version": 1, "compiler": self.name, "resources": [], "edges": [] }),
            ),
            ("GET", ["puppet", "v3", "node", name]) => {
                Reply::json(&json!({ "name": name, "parameters": {} }))
            }
            ("PUT", ["puppet", "v3", "facts", name]) => Reply::json(&json!([name])),
            ("PUT", ["puppet", "v3", "report", _]) => Reply::json(&json!([])),
            ("GET", ["puppet", "v3", "file_metadatas", ..]) => Reply::json(&json!([])),
            ("GET", ["puppet", "v3", "file_metadata", rest @ ..]) => {
                Reply::json(&json!({ "path": rest.join("/"), "type": "file" }))
            }
            (
                "GET",
                [
                    "puppet",
                    "v3",
                    "file_content" | "static_file_content",
                    rest @ ..,
                ],
            ) => Reply::status(200)
                .header("Content-Type", "application/octet-stream")
                .body(format!("content of {}", rest.join("/")).as_bytes()),
            ("GET", ["puppet", "v3", "environments"]) => {
                Reply::json(&json!({ "environments": {} }))
            }
            (_, ["puppet", "v3", "file_bucket_file", algorithm, sum, ..]) => {
                self.file_bucket(request, algorithm, sum)
            }
            _ => return not_found(request),
        };
        reply
            .header("X-Puppet-Version", PUPPET_VERSION)
            .header("X-Puppet-Compiler-Name", &self.name)
    }

    fn puppet_ca(&self, request: &Recorded, rest: &[&str]) -> Reply {
        let reply = match (request.method.as_str(), rest, &self.ca) {
            (_, _, None) => return not_found(request),
            ("GET", ["certificate", "ca"], Some(ca)) => Reply::ok(&ca.bundle_pem()),
            ("GET", ["certificate_revocation_list", "ca"], Some(ca)) => Reply::ok(&ca.crl_pem()),
            ("GET", ["certificate", name], _) => match lock(&self.published).get(*name) {
                Some(pem) => Reply::ok(pem),
                None => return not_found(request),
            },
            ("PUT", ["certificate_request", name], _) => self.certificate_request(request, name),
            ("GET", ["certificate_request", name], _) => match lock(&self.requested).get(*name) {
                Some(pem) => Reply::status(200)
                    .header("Content-Type", "text/plain")
                    .body(pem),
                None => return not_found(request),
            },
            ("POST", ["certificate_renewal"], _) => match self.certificate_renewal(request) {
                Some(reply) => reply,
                None => return not_found(request),
            },
            ("GET", ["certificate_status", name], _) => {
                Reply::json(&json!({ "name": name, "state": "signed" }))
            }
            ("PUT", ["certificate_status", _] | ["clean"], _) | ("POST", ["sign", ..], _) => {
                Reply::status(204)
            }
            _ => return not_found(request),
        };
        reply.header("X-Puppet-Version", PUPPET_VERSION)
    }

    fn certificate_request(&self, request: &Recorded, name: &str) -> Reply {
        if lock(&self.requested).contains_key(name) {
            return bad_request(&format!(
                "{name} already has a requested certificate; ignoring certificate request"
            ));
        }
        lock(&self.requested).insert(name.to_owned(), request.body.kept.clone());
        if self.autosign.load(Ordering::SeqCst)
            && let Err(error) = self.sign(name)
        {
            return bad_request(&error.to_string());
        }
        Reply::ok("")
    }

    pub(super) fn sign(&self, name: &str) -> Result<TestCredential, RequestError> {
        let ca = self.ca.as_ref().ok_or(RequestError::Missing)?;
        let request = lock(&self.requested).remove(name);
        let credential = ca.sign(&request.ok_or(RequestError::Missing)?)?;
        self.publish(&credential);
        Ok(credential)
    }

    pub(super) fn publish(&self, credential: &TestCredential) {
        lock(&self.published).insert(credential.certname.clone(), credential.cert_pem.clone());
    }

    /// Every compiler has its own filebucket.
    fn file_bucket(&self, request: &Recorded, algorithm: &str, sum: &str) -> Reply {
        let key = format!("{algorithm}/{sum}");
        let mut bucket = lock(&self.bucket);
        match (request.method.as_str(), bucket.get(&key)) {
            ("PUT", _) => {
                bucket.insert(key, request.body.kept.clone());
                Reply::status(200)
            }
            ("GET" | "HEAD", Some(bytes)) => Reply::status(200)
                .header("Content-Type", "application/octet-stream")
                .body(bytes),
            _ => not_found(request),
        }
    }
}

/// Converts a path in the layout of Puppet 0.25 to 3, which Puppet Server 2 to 6 also serves.
fn modern(segments: Vec<&str>) -> Vec<&str> {
    let base = match segments.as_slice() {
        ["puppet-ca", ..] | ["puppet", "v3" | "v4", ..] => return segments,
        ["v2.0", "environments"] => ["puppet", "v3"],
        [_, indirection, _, ..] if indirection.starts_with("certificate") => ["puppet-ca", "v1"],
        [_, "catalog" | "node" | "facts" | "report", _] => ["puppet", "v3"],
        [_, indirection, _, ..] if indirection.starts_with("file_") => ["puppet", "v3"],
        _ => return segments,
    };
    base.into_iter()
        .chain(segments.into_iter().skip(1))
        .collect()
}

fn bad_request(text: &str) -> Reply {
    Reply::status(400)
        .header("Content-Type", "text/plain")
        .body(text.as_bytes())
}

fn not_found(request: &Recorded) -> Reply {
    let text = format!("Not Found: Could not find {}", request.path());
    Reply::status(404)
        .header("Content-Type", "text/plain")
        .body(text.as_bytes())
}

/// The version of Puppet that the stand-in announces.
const PUPPET_VERSION: &str = "8.7.0";
