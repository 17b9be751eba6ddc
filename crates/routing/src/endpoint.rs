//! Which Puppet endpoint a request is for.
//!
//! Whole path segments are compared case-sensitively, as a Puppet server compares them. If a server could read a path as
//! a guarded endpoint, its class must never be [`Class::Unknown`], because a route with `client = "any"` opens that class.

use balancing::{Task, Work};
use http::Method;

use crate::{CanonicalPath, Class};

pub(crate) mod legacy;

pub use legacy::{Layout, Layouts};

/// Properties of the endpoint that a request addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Endpoint<'a> {
    /// Its class, which determines which clients may send the request.
    pub class: Class,
    /// The URL layout of its path.
    pub layout: Layout,
    /// The certname in the path, if the endpoint has one.
    pub certname: Option<&'a str>,
    /// The work that the request causes on a Puppet server: its kind, and whether it occupies a JRuby.
    pub task: Task,
    /// Methods that the endpoint supports.
    pub methods: Methods,
    /// Whether this request may be sent again after a server may have acted on it.
    pub retry: RetryClass,
    /// The checksum of a filebucket request. Requests with the same checksum go to the same member.
    pub bucket_key: Option<&'a str>,
    /// Whether the path has no segments beyond those of the endpoint. A server should not read a longer path as this endpoint.
    pub exact: bool,
    /// Whether the request may change the state of the CA. It is sent to one member and never repeated.
    pub ca_write: bool,
    /// The public CA document that the request reads.
    pub document: Option<Document>,
    /// The certname of the certificate request in its body. It is set for every path on which a CA accepts a certificate
    /// request.
    pub certificate_request: Option<&'a str>,
}

/// A public document of a CA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Document {
    /// The CA's own certificate and those of the CAs above it.
    Ca,
    /// The CRLs of these CAs.
    Crl,
}

impl Document {
    /// Both documents.
    pub const ALL: [Self; 2] = [Self::Ca, Self::Crl];

    /// The name in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ca => "ca",
            Self::Crl => "crl",
        }
    }

    /// The document that an indirection serves under the key `ca`.
    fn read(method: &Method, indirection: &str, key: &str) -> Option<Self> {
        match indirection {
            _ if key != "ca" || !is_safe(method) => None,
            "certificate" => Some(Self::Ca),
            "certificate_revocation_list" => Some(Self::Crl),
            _ => None,
        }
    }
}

/// Whether a request may be sent a second time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryClass {
    /// A GET or HEAD of an endpoint marked safe.
    Safe,
    /// Never, unless no byte of the request has been sent.
    Never,
}

/// The methods of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Methods(Option<&'static str>);

impl Methods {
    /// Any method, because the methods of the endpoint are not known.
    pub const ANY: Self = Self(None);

    /// Whether the endpoint supports `method`.
    pub fn allows(self, method: &Method) -> bool {
        self.0.is_none_or(|list| {
            list.split(',')
                .any(|known| known.trim_start() == method.as_str())
        })
    }

    /// The value of the `Allow` header. `None` if every method is allowed.
    pub const fn allow(self) -> Option<&'static str> {
        self.0
    }
}

const GET: Methods = Methods(Some("GET, HEAD"));
const GET_POST: Methods = Methods(Some("GET, HEAD, POST"));
const GET_PUT: Methods = Methods(Some("GET, HEAD, PUT"));
const GET_PUT_DELETE: Methods = Methods(Some("GET, HEAD, PUT, DELETE"));
const CATALOG: Methods = Methods(Some("GET, POST"));
const POST: Methods = Methods(Some("POST"));
const PUT: Methods = Methods(Some("PUT"));
const DELETE: Methods = Methods(Some("DELETE"));

/// The endpoint for a request with `method` and `path`, if these layouts are served.
pub fn classify<'a>(method: &Method, path: &CanonicalPath<'a>, layouts: Layouts) -> Endpoint<'a> {
    let segments = Segments::of(path.as_str());
    let legacy = || legacy::endpoint(method, &segments, layouts);
    let [first, second, ..] = segments.head;
    match first {
        "puppet-ca" => certificate_authority(method, &segments),
        "puppet" if second == "v3" => compile(method, &segments),
        "puppet" if segments.are(&["puppet", "v4", "catalog"]) => {
            Endpoint::of(Class::Services, POST).of_work(Work::Catalog)
        }
        // Other versions, and legacy paths with an environment called "puppet".
        "puppet" => legacy().unwrap_or(Endpoint::of(Class::Services, Methods::ANY)),
        "status" => status(&segments),
        "puppet-admin-api" if method == Method::DELETE && is_flush(&segments) => {
            Endpoint::of(Class::ServerAdministration, DELETE).without_jruby()
        }
        "metrics" | "puppet-admin-api" | "file-sync" | "file-sync-git" => {
            Endpoint::of(Class::Never, Methods::ANY)
        }
        _ if first.starts_with("file-sync-") => Endpoint::of(Class::Never, Methods::ANY),
        _ => legacy().unwrap_or(Endpoint::of(Class::Unknown, Methods::ANY)),
    }
}

/// `/puppet-ca/…`: everything except the exact enrolment requests is CA administration.
fn certificate_authority<'a>(method: &Method, segments: &Segments<'a>) -> Endpoint<'a> {
    let [_, version, indirection, name, _] = segments.head;
    let named = segments.count == 4 && !name.is_empty();
    let exact = segments.count == 3;
    let certname = (named && name != "ca").then_some(name);
    let administration = |methods| Endpoint::of(Class::CaAdministration, methods);
    let endpoint = match indirection {
        _ if version != "v1" => administration(Methods::ANY),
        "certificate" if named => Endpoint::of(Class::Enrolment, GET)
            .of_name(certname)
            .safe_to_repeat(method),
        // Agents use the other methods of this endpoint. Only DELETE is for administrators.
        "certificate_request" if named && method == Method::DELETE => {
            administration(GET_PUT_DELETE).of_name(Some(name))
        }
        "certificate_request" if named => {
            Endpoint::of(Class::Enrolment, GET_PUT).of_name(Some(name))
        }
        "certificate_revocation_list" if named && name == "ca" && !is_write(method) => {
            Endpoint::of(Class::Enrolment, GET).safe_to_repeat(method)
        }
        "certificate_revocation_list" if exact => administration(PUT),
        "certificate_status" if named => administration(GET_PUT_DELETE).of_name(Some(name)),
        "certificate_statuses" if segments.count == 4 => administration(GET).safe_to_repeat(method),
        // Further segments do not matter here: a server that ignores a trailing slash would still renew the certificate.
        "certificate_renewal" => Endpoint {
            exact,
            ..Endpoint::of(Class::Renewal, POST)
        },
        "expirations" if exact => administration(GET).safe_to_repeat(method),
        "clean" if exact => administration(PUT),
        "sign" if exact || (named && name == "all") => administration(POST),
        _ => administration(Methods::ANY),
    };
    let requested = indirection == "certificate_request" && may_carry_certificate_request(method);
    let document = Document::read(method, indirection, name).filter(|_| named && version == "v1");
    Endpoint {
        ca_write: !is_safe(method),
        document,
        certificate_request: requested.then(|| segments.from(3)),
        // Puppet Server's CA runs directly in the JVM, not in a JRuby.
        ..endpoint.without_jruby()
    }
}

/// `/puppet/v3/…`: unknown endpoints get the class for services, so that endpoints that a future server adds are not
/// open by default.
fn compile<'a>(method: &Method, segments: &Segments<'a>) -> Endpoint<'a> {
    let [_, _, indirection, fourth, fifth] = segments.head;
    let exact = segments.count == 3;
    let below = segments.count > 3;
    let own = |methods| Endpoint::of(Class::OwnDocuments, methods).of_name(Some(fourth));
    let files = |methods| Endpoint::of(Class::Files, methods).safe_to_repeat(method);
    let services = |methods| Endpoint::of(Class::Services, methods);
    let named = segments.count == 4 && !fourth.is_empty();
    match indirection {
        "catalog" if named => own(CATALOG).of_work(Work::Catalog),
        "node" if named => own(GET).safe_to_repeat(method),
        "report" if named => own(PUT).of_work(Work::Report),
        "facts" if named => own(PUT),
        "file_metadata" | "file_metadatas" if below => files(GET_POST).of_work(Work::File),
        "file_content" if below => files(GET).of_work(Work::File),
        "static_file_content" if below => files(GET).of_work(Work::File).without_jruby(),
        "environments" if exact => files(GET),
        "tasks" => files(GET),
        // A retry is not safe: another member would return 404, because it does not have the first member's bucket.
        "file_bucket_file" if !fourth.is_empty() && !fifth.is_empty() => Endpoint {
            bucket_key: Some(fifth),
            task: Task::of(Work::File),
            ..Endpoint::of(Class::Filebucket, GET_PUT)
        },
        "compile" if exact => services(POST).of_work(Work::Catalog),
        "environment_classes" | "environment_modules" | "environment_transports" if exact => {
            services(GET).safe_to_repeat(method)
        }
        "plans" => services(GET).safe_to_repeat(method),
        _ => services(Methods::ANY),
    }
}

/// `/status/…`: the proxy itself answers requests for the simple status. All other status endpoints disclose too much.
fn status<'a>(segments: &Segments<'a>) -> Endpoint<'a> {
    let simple = segments.are(&["status", "v1", "simple"])
        || segments.are(&["status", "v1", "simple", "server"])
        || segments.are(&["status", "v1", "simple", "master"]);
    if simple {
        Endpoint::of(Class::Status, GET)
    } else {
        Endpoint::of(Class::Never, Methods::ANY)
    }
}

/// The requests of the admin API that discard what a Puppet Server has loaded: its environments, or all its JRubies.
fn is_flush(segments: &Segments<'_>) -> bool {
    let flushes = ["environment-cache", "jruby-pool"].into_iter();
    let mut paths = flushes.map(|what| ["puppet-admin-api", "v1", what]);
    paths.any(|path| segments.are(&path))
}

impl<'a> Endpoint<'a> {
    const fn of(class: Class, methods: Methods) -> Self {
        Self {
            class,
            layout: Layout::Modern,
            certname: None,
            task: Task::of(Work::Other),
            methods,
            retry: RetryClass::Never,
            bucket_key: None,
            exact: true,
            ca_write: false,
            document: None,
            certificate_request: None,
        }
    }

    /// The endpoint when the proxy serves the CA documents itself. Clients may then also read them in the layout of Puppet
    /// 0.25 to 3.
    pub(crate) fn with_documents(self, method: &Method) -> Self {
        match self.document {
            Some(_) if self.class == Class::CaAdministration => Self {
                document: self.document,
                layout: self.layout,
                ..Self::of(Class::Enrolment, GET).safe_to_repeat(method)
            },
            _ => self,
        }
    }

    const fn of_work(self, work: Work) -> Self {
        Self {
            task: Task::of(work),
            ..self
        }
    }

    /// Marks an endpoint that Puppet Server serves without a JRuby.
    const fn without_jruby(self) -> Self {
        Self {
            task: Task {
                without_jruby: true,
                ..self.task
            },
            ..self
        }
    }

    const fn of_name(self, certname: Option<&'a str>) -> Self {
        Self { certname, ..self }
    }

    /// Marks an endpoint that is safe to repeat in the table of endpoints. This applies to GET and HEAD only.
    fn safe_to_repeat(self, method: &Method) -> Self {
        let retry = if is_safe(method) {
            RetryClass::Safe
        } else {
            RetryClass::Never
        };
        Self { retry, ..self }
    }
}

fn is_safe(method: &Method) -> bool {
    method == Method::GET || method == Method::HEAD
}

/// Whether a request with this method can have a body that a CA could read as a certificate request. Every server takes
/// the rest of the path as the certname. An invalid certname there does not match any certificate request.
fn may_carry_certificate_request(method: &Method) -> bool {
    !is_safe(method) && method != Method::DELETE
}

/// Whether administrators use this method to change what agents may only read.
fn is_write(method: &Method) -> bool {
    method == Method::PUT || method == Method::DELETE
}

/// The first five segments of a path, and how many of them there are. Missing segments are empty.
struct Segments<'a> {
    head: [&'a str; 5],
    count: usize,
    path: &'a str,
    /// How many of the segments are not in the path itself, but were added.
    added: usize,
}

impl<'a> Segments<'a> {
    fn of(path: &'a str) -> Self {
        let mut segments = Self {
            head: [""; 5],
            count: 0,
            path,
            added: 0,
        };
        let mut rest = path.strip_prefix('/').unwrap_or(path);
        loop {
            // Searches bytes, because a string search costs more for strings this short.
            let end = rest.bytes().position(|byte| byte == b'/');
            let (segment, after) = rest.split_at(end.unwrap_or(rest.len()));
            if let Some(place) = segments.head.get_mut(segments.count) {
                *place = segment;
            } else {
                break; // the caller only needs to know that there are more than five
            }
            segments.count += 1;
            if after.is_empty() {
                break;
            }
            rest = &after[1..];
        }
        segments
    }

    /// Replaces the first segment with these two.
    fn below(&self, first: &'a str, second: &'a str) -> Self {
        let [_, third, fourth, fifth, _] = self.head;
        Self {
            head: [first, second, third, fourth, fifth],
            count: self.count + 1,
            path: self.path,
            added: 1,
        }
    }

    /// The rest of the path, starting with the segment at this index.
    fn from(&self, number: usize) -> &'a str {
        let number = number - self.added;
        let path = self.path.strip_prefix('/').unwrap_or(self.path);
        path.splitn(number + 1, '/').nth(number).unwrap_or_default()
    }

    fn are(&self, path: &[&str]) -> bool {
        self.count == path.len()
            && self
                .head
                .iter()
                .zip(path)
                .all(|(segment, wanted)| segment == wanted)
    }
}

#[cfg(test)]
mod tests;
