//! The URL layout of Puppet 0.25 to 3: `/{environment}/{indirection}/{key}`, `/v2.0/environments`, and XML-RPC.
//!
//! With [`Layouts::ModernAndLegacy`] a path has the class of its modern equivalent, by the same functions. Without, the
//! paths are guarded: a Puppet Server of version 2 to 6 serves them too.

use http::Method;

use super::{Document, Endpoint, Methods, Segments, brings_request, is_safe};
use crate::{CanonicalPath, Class};

/// Which URL layouts are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layouts {
    /// That of Puppet 4 and later.
    #[default]
    Modern,
    /// That of Puppet 0.25 to 3 as well.
    ModernAndLegacy,
}

/// The URL layout of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// That of Puppet 4 and later, or of no Puppet server.
    Modern,
    /// That of Puppet 0.25 to 3.
    Legacy,
}

/// The modern path and query that ask for the same as a legacy path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Equivalent {
    pub(crate) path: String,
    pub(crate) query: Option<String>,
}

/// The endpoint of a legacy path; none if the path is in no legacy layout.
pub(super) fn endpoint<'a>(
    method: &Method,
    segments: &Segments<'a>,
    layouts: Layouts,
) -> Option<Endpoint<'a>> {
    let endpoint = match layouts {
        Layouts::Modern => guarded(method, segments),
        Layouts::ModernAndLegacy => match target(segments) {
            Some(Target::Ca) => Some(super::certificate_authority(
                method,
                &segments.below("puppet-ca", "v1"),
            )),
            Some(Target::Compiler) => Some(super::compile(method, &segments.below("puppet", "v3"))),
            // Like an unknown endpoint of `/puppet/v3`: an indirection is not open because a module added it.
            Some(Target::NoRow) => Some(Endpoint::of(Class::Services, Methods::ANY)),
            None => guarded(method, segments),
        },
    };
    endpoint.map(|endpoint| Endpoint {
        layout: Layout::Legacy,
        ..endpoint
    })
}

/// Where a legacy path belongs.
enum Target {
    Ca,
    Compiler,
    NoRow,
}

fn target(segments: &Segments<'_>) -> Option<Target> {
    if segments.are(&["v2.0", "environments"]) {
        return Some(Target::Compiler);
    }
    let [environment, indirection, ..] = segments.head;
    let is_legacy = segments.count >= 3
        && is_environment(environment)
        && !RESERVED.contains(&environment)
        && is_word(indirection);
    is_legacy.then(|| {
        if is_named(indirection, CA) {
            Target::Ca
        } else if COMPILER_ROWS.contains(&indirection) {
            Target::Compiler
        } else {
            Target::NoRow
        }
    })
}

/// Without routes for them, legacy paths are guarded, nothing more. The environment may be any segment: Puppet Server
/// requires only that it has no slash.
fn guarded<'a>(method: &Method, segments: &Segments<'a>) -> Option<Endpoint<'a>> {
    let [first, indirection, key, ..] = segments.head;
    let keyed = segments.count >= 3;
    // The body of an XML-RPC call names the service, `puppetca.getcert` among them.
    if first == XML_RPC || (keyed && is_named(indirection, CA)) {
        let requested = keyed
            && matches!(indirection, "certificate_request" | "certificate_requests")
            && brings_request(method);
        let exact = segments.count == 3 && is_environment(first);
        return Some(Endpoint {
            ca_write: !is_safe(method),
            document: Document::read(method, indirection, key).filter(|_| exact),
            certificate_request: requested.then(|| segments.from(2)),
            ..Endpoint::of(Class::CaAdministration, Methods::ANY)
        });
    }
    let compiles = first == "v2.0" || (keyed && is_named(indirection, COMPILER));
    compiles.then(|| Endpoint::of(Class::Services, Methods::ANY))
}

/// The modern equivalent of a path in the legacy layout.
pub(crate) fn equivalent(path: &CanonicalPath<'_>, query: Option<&str>) -> Option<Equivalent> {
    let segments = Segments::of(path.as_str());
    let base = match target(&segments)? {
        Target::Ca => "/puppet-ca/v1",
        Target::Compiler | Target::NoRow => "/puppet/v3",
    };
    let path = format!("{base}/{}", segments.from(1));
    if segments.head[0] == "v2.0" {
        let query = query.map(str::to_owned);
        return Some(Equivalent { path, query });
    }
    let mut moved = format!("environment={}", segments.head[0]);
    for pair in pairs(query).filter(|pair| !names_environment(pair)) {
        moved.push('&');
        moved.push_str(pair);
    }
    let query = Some(moved);
    Some(Equivalent { path, query })
}

/// Whether no server reads another environment from the query of a legacy path than from the path itself. Rack and
/// Mongrel split a query at `;` too, so both separators count here.
pub(crate) fn environment_agrees(path: &CanonicalPath<'_>, query: Option<&str>) -> bool {
    let environment = Segments::of(path.as_str()).head[0];
    let agrees = |pair: &str| match pair.split_once('=') {
        // An array or a hash of Rack has no such value.
        Some((name, value)) => value == environment && !name.contains(['[', '%']),
        None => false,
    };
    environment == "v2.0"
        || pairs(query)
            .filter(|pair| names_environment(pair))
            .all(agrees)
}

fn pairs(query: Option<&str>) -> impl Iterator<Item = &str> {
    let pairs = query.unwrap_or_default().split(['&', ';']);
    pairs.filter(|pair| !pair.is_empty())
}

/// Whether a server could take the pair for the parameter `environment`: however its name is escaped, and as the array or
/// hash that Rack makes of `environment[]` and `environment[x]`.
fn names_environment(pair: &str) -> bool {
    let name = pair.split_once('=').map_or(pair, |(name, _)| name);
    let decoded = crate::parameters::decoded(name);
    let rest = decoded.trim_ascii().strip_prefix(b"environment");
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"["))
}

/// What Puppet 0.25 to 3 take for an environment.
fn is_environment(segment: &str) -> bool {
    is_word(segment) && segment != XML_RPC
}

fn is_word(segment: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !segment.is_empty() && segment.bytes().all(is_word)
}

/// Whether a segment is one of these names, or what Puppet 0.25 to 3 take for the plural of one: they cut `_search`, `es`
/// or `s` off.
fn is_named(segment: &str, names: &[&str]) -> bool {
    let singular = |suffix| segment.strip_suffix(suffix);
    let cut = PLURALS.iter().filter_map(singular);
    cut.chain([segment]).any(|name| names.contains(&name))
}

/// The path of XML-RPC, of Puppet before 0.25: the body names the service, so it stays closed.
const XML_RPC: &str = "RPC2";

const PLURALS: [&str; 3] = ["_search", "es", "s"];

/// First segments that other services have in the modern layout; no environment can have such a name. `puppet-ca`,
/// `puppet/v3`, `status` and the like have their classes before a legacy path is considered.
const RESERVED: &[&str] = &["packages", "pcp", "pcp2"];

const CA: &[&str] = &[
    "certificate",
    "certificate_request",
    "certificate_revocation_list",
    "certificate_status",
    "key",
];

/// Those with a row in the table of legacy routes.
const COMPILER_ROWS: &[&str] = &[
    "catalog",
    "node",
    "facts",
    "file_metadata",
    "file_metadatas",
    "file_content",
    "file_bucket_file",
    "report",
];

const COMPILER: &[&str] = &[
    "catalog",
    "node",
    "facts",
    "file_metadata",
    "file_content",
    "file_bucket_file",
    "report",
    "resource_type",
    "resource",
    "status",
    "inventory",
    "run",
    "environment",
];

#[cfg(test)]
mod tests;
