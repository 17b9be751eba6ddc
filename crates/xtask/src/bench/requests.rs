//! The requests of the workloads, in the order in which each connection sends them.

use std::sync::Arc;

/// The requests that a connection repeats. Clones share the bytes.
#[derive(Clone)]
pub(super) struct Mix(Arc<[Vec<u8>]>);

impl Mix {
    /// Nine GETs for a file's metadata and one for the CRL, as in a run without changes.
    pub(super) fn small() -> Self {
        let crl = get("/puppet-ca/v1/certificate_revocation_list/ca", "text/plain");
        Self::of((0..9).map(|_| metadata()).chain([crl]))
    }

    /// Downloads of the same large file.
    pub(super) fn download() -> Self {
        let path = "/puppet/v3/file_content/modules/large/file?environment=production";
        Self::of([get(path, "application/octet-stream")])
    }

    /// Reports of 4 MB.
    pub(super) fn upload(certname: &str) -> Self {
        let path = format!("/puppet/v3/report/{certname}?environment=production");
        Self::of([with_body("PUT", &path, REPORT_BYTES)])
    }

    /// A catalog request with facts of 30 KB, then the metadata of 40 files.
    pub(super) fn run(certname: &str) -> Self {
        let path = format!("/puppet/v3/catalog/{certname}?environment=production");
        let catalog = with_body("POST", &path, FACTS_BYTES);
        Self::of([catalog].into_iter().chain((0..40).map(|_| metadata())))
    }

    fn of(requests: impl IntoIterator<Item = Vec<u8>>) -> Self {
        Self(requests.into_iter().collect())
    }

    /// The number of requests after which the mix repeats.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn request(&self, number: usize) -> &[u8] {
        &self.0[number % self.0.len()]
    }
}

/// A GET for a file's metadata.
pub(super) fn metadata() -> Vec<u8> {
    let path = format!("/puppet/v3/file_metadata/modules/ntp/ntp.conf?{METADATA_QUERY}");
    get(&path, "application/json")
}

/// The path of the same request for an HTTP/2 client. Members answer it without a client certificate.
pub(super) fn anonymous_path() -> String {
    format!("/puppet/v3/file_metadata/{ANONYMOUS}/ntp.conf?{METADATA_QUERY}")
}

fn get(path: &str, accept: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: puppet:8140\r\nAccept: {accept}\r\n{AGENT}\r\n")
        .into_bytes()
}

fn with_body(method: &str, path: &str, length: usize) -> Vec<u8> {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: puppet:8140\r\nAccept: application/json\r\n\
         Content-Type: application/json\r\nContent-Length: {length}\r\n{AGENT}\r\n"
    );
    let mut request = head.into_bytes();
    request.resize(request.len() + length, b'f');
    request
}

/// The part of a path that members answer without a client certificate.
pub(super) const ANONYMOUS: &str = "anonymous";
const METADATA_QUERY: &str = "environment=production&links=manage&checksum_type=sha256";
const AGENT: &str = "User-Agent: Puppet/8.0.0 Ruby/3.2\r\nX-Puppet-Version: 8.0.0\r\n";
const REPORT_BYTES: usize = 4_000_000;
const FACTS_BYTES: usize = 30 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_one_catalog_for_forty_small_requests() {
        let run = Mix::run("web01");
        let catalogs = (0..run.len()).filter(|n| run.request(*n).starts_with(b"POST "));
        assert_eq!((run.len(), catalogs.count()), (41, 1));
        assert_eq!(run.request(41), run.request(0));
        assert!(run.request(0).len() > FACTS_BYTES);
    }
}
