//! The URL layout of Puppet 0.25 to 3: `/{environment}/{indirection}/{key}`, `/v2.0/environments`, and XML-RPC.
//!
//! With [`Layouts::ModernAndLegacy`], a legacy path has the class of its modern equivalent; the same functions classify
//! both. With [`Layouts::Modern`], legacy paths are guarded, because Puppet Server 2 to 6 serves them too.

use http::Method;

use super::{Document, Endpoint, Methods, Segments, is_safe, may_carry_certificate_request};
use crate::{CanonicalPath, Class};

/// Which URL layouts are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layouts {
    /// The layout of Puppet 4 and later.
    #[default]
    Modern,
    /// Also the layout of Puppet 0.25 to 3.
    ModernAndLegacy,
}

/// The URL layout of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// The layout of Puppet 4 and later, or a path that does not belong to a Puppet server.
    Modern,
    /// The layout of Puppet 0.25 to 3.
    Legacy,
}

/// The modern path and query that are equivalent to a legacy path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Equivalent {
    pub(crate) path: String,
    pub(crate) query: Option<String>,
}

/// The endpoint of a legacy path. `None` if the path does not have a legacy layout.
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
            // The path is treated like an unknown endpoint of `/puppet/v3`, because an indirection that a module adds must not
            // be open by default.
            Some(Target::NoRow) => Some(Endpoint::of(Class::Services, Methods::ANY)),
            None => guarded(method, segments),
        },
    };
    endpoint.map(|endpoint| Endpoint {
        layout: Layout::Legacy,
        ..endpoint
    })
}

/// The part of the modern layout to which a legacy path corresponds.
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

/// Guards legacy paths that have no routes, without classifying them further. The environment may be any segment, because
/// Puppet Server only requires that it does not contain a slash.
fn guarded<'a>(method: &Method, segments: &Segments<'a>) -> Option<Endpoint<'a>> {
    let [first, indirection, key, ..] = segments.head;
    let keyed = segments.count >= 3;
    // The body of an XML-RPC call names the service, for example `puppetca.getcert`.
    if first == XML_RPC || (keyed && is_named(indirection, CA)) {
        let requested = keyed
            && matches!(indirection, "certificate_request" | "certificate_requests")
            && may_carry_certificate_request(method);
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

/// Whether every server reads the same environment from the query of a legacy path as from the path itself. Rack and
/// Mongrel also split a query at `;`, so this treats both `&` and `;` as separators.
pub(crate) fn environment_agrees(path: &CanonicalPath<'_>, query: Option<&str>) -> bool {
    let environment = Segments::of(path.as_str()).head[0];
    let agrees = |pair: &str| match pair.split_once('=') {
        // In Rack, a name with brackets is an array or a hash, not a plain value.
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

/// Whether a server could read the pair as the parameter `environment`. The name may be escaped, and it may be
/// `environment[]` or `environment[x]`, from which Rack makes an array or a hash.
fn names_environment(pair: &str) -> bool {
    let name = pair.split_once('=').map_or(pair, |(name, _)| name);
    let decoded = crate::parameters::decoded(name);
    let rest = decoded.trim_ascii().strip_prefix(b"environment");
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"["))
}

/// Whether Puppet 0.25 to 3 read the segment as the name of an environment.
fn is_environment(segment: &str) -> bool {
    is_word(segment) && segment != XML_RPC
}

fn is_word(segment: &str) -> bool {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    !segment.is_empty() && segment.bytes().all(is_word)
}

/// Whether a segment is one of these names or its plural. To get the singular, Puppet 0.25 to 3 remove `_search`, `es`
/// or `s` from the end.
fn is_named(segment: &str, names: &[&str]) -> bool {
    let singular = |suffix| segment.strip_suffix(suffix);
    let cut = PLURALS.iter().filter_map(singular);
    cut.chain([segment]).any(|name| names.contains(&name))
}

/// The path of XML-RPC in Puppet before 0.25. It stays closed, because the service is named in the body.
const XML_RPC: &str = "RPC2";

const PLURALS: [&str; 3] = ["_search", "es", "s"];

/// First segments that belong to other services in the modern layout. They are not treated as environments. `puppet-ca`,
/// `puppet/v3`, `status` and similar paths are classified before legacy paths are considered.
const RESERVED: &[&str] = &["packages", "pcp", "pcp2"];

const CA: &[&str] = &[
    "certificate",
    "certificate_request",
    "certificate_revocation_list",
    "certificate_status",
    "key",
];

/// Indirections with a row in the table of legacy routes.
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
