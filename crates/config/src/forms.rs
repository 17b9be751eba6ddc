//! String formats: what the string of a setting must look like, and the error if it does not.

use std::net::{IpAddr, SocketAddr};

use identity::HeaderPattern;

use crate::{closest::closest, crl_expired};

/// The format of a string.
pub(crate) struct Form {
    /// A description of the format, shown after "expected".
    pub(crate) what: &'static str,
    /// Checks a string.
    pub(crate) check: fn(&str) -> Result<(), Fault>,
}

/// Why a string does not match its format.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) message: String,
    pub(crate) help: Option<String>,
}

pub(crate) static PATH: Form = Form {
    what: "an absolute path",
    check: absolute_path,
};
pub(crate) static OUTPUT: Form = Form {
    what: "\"stdout\", \"syslog\", \"journal\", either of these with a socket as \"syslog:/path\", or an absolute path",
    check: |text| match (text, log_daemon(text)) {
        ("stdout", _) => Ok(()),
        (_, Some((_, Some(socket)))) => (SOCKET.check)(socket),
        (_, Some((_, None))) => Ok(()),
        (path, None) => absolute_path(path),
    },
};
pub(crate) static LOG_FORMAT: Form = Form {
    what: "\"combined\", \"json\", or directives of Apache's `LogFormat`, such as \"%h %u %t %>s\"",
    check: |text| match text {
        "combined" | "json" => Ok(()),
        text => match text.parse::<telemetry::LogFormat>() {
            Ok(_) => Ok(()),
            Err(telemetry::LogFormatError::NoDirective) => Err(Fault {
                message: format!("\"{text}\" is not a valid value"),
                help: closest(text, ["combined", "json"].into_iter())
                    .map(|close| format!("did you mean \"{close}\"?")),
            }),
            Err(error) => Err(Fault::new(error.to_string())),
        },
    },
};
pub(crate) static EVENT_OUTPUT: Form = Form {
    what: "\"stderr\", \"syslog\", \"journal\", or either of these with a socket as \"syslog:/path\"",
    check: |text| match (text, log_daemon(text)) {
        ("stderr", _) => Ok(()),
        (_, Some((_, Some(socket)))) => (SOCKET.check)(socket),
        (_, Some((_, None))) => Ok(()),
        _ => Err(Fault::new(format!(
            "\"{text}\" is not a destination for events"
        ))),
    },
};
pub(crate) static SOCKET: Form = Form {
    what: "an absolute path of at most 107 bytes",
    check: |text| match text.len() {
        // sun_path holds 108 bytes, including the terminating NUL.
        0..=107 => absolute_path(text),
        length => Err(Fault::new(format!(
            "path of {length} bytes is too long for a Unix socket"
        ))),
    },
};
pub(crate) static LISTEN: Form = Form {
    what: "an IP address and a port, such as \"0.0.0.0:8140\" or \"[::]:8140\", or \"unix:/path\"",
    check: listen_address,
};
pub(crate) static SOCKET_MODE: Form = Form {
    what: "permissions in octal, such as \"0660\"",
    check: |text| {
        require(
            text.parse::<listener::SocketMode>().is_ok(),
            text,
            "is not a file mode",
        )
    },
};
pub(crate) static GROUP: Form = Form {
    what: "the name or the number of a group",
    check: |text| {
        require(
            !(text.is_empty() || text.contains([':', '\n'])),
            text,
            "is not the name of a group",
        )
    },
};
pub(crate) static INTERFACE: Form = Form {
    what: "the name of a network interface, such as \"eth1\"",
    // IFNAMSIZ is 16 bytes, including the terminating NUL.
    check: |text| {
        require(
            matches!(text.len(), 1..=15) && text.bytes().all(|b| b.is_ascii_graphic() && b != b'/'),
            text,
            "is not the name of an interface",
        )
    },
};
pub(crate) static HTTPS_ORIGIN: Form = Form {
    what: "`https://` and a host name, with its port if that is not 443, such as \"https://puppet.example.com:8140\"",
    check: https_origin,
};
pub(crate) static MEMBER: Form = Form {
    what: "\"host:port\", \"unix:/path\" or \"srv:NAME\"",
    check: |text| Address::parse(text).map(drop),
};
pub(crate) static DNS_SERVER: Form = Form {
    what: "an IP address, with its port if that is not 53, such as \"192.0.2.53\" or \"127.0.0.1:5353\"",
    check: |text| {
        require(
            text.parse::<discovery::settings::DnsServer>().is_ok(),
            text,
            "is not the address of a DNS server",
        )
    },
};
pub(crate) static ETCD: Form = Form {
    what: "`https://`, a host and a port, such as \"https://etcd1.example.com:2379\"",
    check: |text| {
        require(
            text.parse::<crate::EtcdEndpoint>().is_ok(),
            text,
            "is not the address of a member of an etcd cluster",
        )
    },
};
pub(crate) static SITE: Form = Form {
    what: "letters, digits, `.`, `_` and `-`, at most 64",
    check: |text| require(is_key_part(text), text, "cannot be the name of a fleet"),
};
pub(crate) static ETCD_PREFIX: Form = Form {
    what: "a path such as \"/proscenium\", of letters, digits, `.`, `_` and `-`",
    check: |text| {
        require(
            text.strip_prefix('/')
                .is_some_and(|rest| rest.split('/').all(is_key_part)),
            text,
            "cannot be the beginning of a key",
        )
    },
};
pub(crate) static METRICS_ADDRESS: Form = Form {
    what: "an IP address and a port, such as \"127.0.0.1:9140\" or \"[::1]:9140\"",
    check: |text| {
        require(
            text.parse::<SocketAddr>().is_ok(),
            text,
            "is not an IP address and a port",
        )
    },
};
pub(crate) static SERVER_NAMES: Form = Form {
    what: "a host name, or `*.` and a domain",
    check: |text| {
        require(
            is_name(text.strip_prefix("*.").unwrap_or(text)) && !text.ends_with('.'),
            text,
            "is not a host name",
        )
    },
};
pub(crate) static SERVER_NAME: Form = Form {
    what: "a host name or an IP address",
    check: |text| require(is_host(text), text, "is not a host name"),
};
pub(crate) static NAME: Form = Form {
    what: "a name of letters, digits, `-` and `_`",
    check: name,
};
pub(crate) static POOL: Form = Form {
    what: "the name of a pool",
    check: |_| Ok(()),
};
pub(crate) static CERTNAME: Form = Form {
    what: "a certname: lower-case letters, digits, `.`, `-` and `_`",
    check: certname,
};
pub(crate) static IDENTITY_HEADER: Form = Form {
    what: "the name of a header: letters, digits and `-`",
    check: identity_header,
};
pub(crate) static CERTNAME_PATTERN: Form = Form {
    what: "a certname, in which `*` matches any run of characters",
    check: certname_pattern,
};
pub(crate) static LISTENER: Form = Form {
    what: "the name of a listener",
    check: |_| Ok(()),
};
pub(crate) static HOST: Form = Form {
    what: "a host name without a port, or `*.` and a domain",
    check: host_condition,
};
pub(crate) static METHOD: Form = Form {
    what: "a method in capitals, such as \"GET\"",
    check: method,
};
pub(crate) static PROTOCOL: Form = Form {
    what: "a protocol, such as \"websocket\", with its version after a slash if it has one",
    check: |text| routing::check_protocol(text).map_err(Fault::new),
};
pub(crate) static PATH_SEGMENTS: Form = Form {
    what: "a path that starts with `/`",
    check: path_condition,
};
pub(crate) static PROBE_PATH: Form = Form {
    what: "a path that starts with `/`, and its query",
    check: |text| {
        let printable = text.bytes().all(|byte| (0x21..=0x7e).contains(&byte));
        require(
            text.starts_with('/') && printable && !text.contains('#') && text.len() <= 1024,
            text,
            "is not a path",
        )
    },
};
pub(crate) static STATUS_RANGE: Form = Form {
    what: "a status code or a range of them, such as \"200\" or \"200-299\"",
    check: |text| {
        require(
            text.parse::<balancing::settings::StatusRange>().is_ok(),
            text,
            "is not a status code or a range of them",
        )
    },
};
pub(crate) static REGEX: Form = Form {
    what: "a regular expression, anchored at both ends",
    check: regular_expression,
};
pub(crate) static ISSUER: Form = Form {
    what: "a distinguished name (RFC 2253), such as \"CN=Puppet CA: puppet.example.com\", or \"*\"",
    check: |text| match text {
        "*" => Ok(()),
        text => distinguished_name(text),
    },
};
pub(crate) static CRL_EXPIRED: Form = Form {
    what: "\"warn\", \"reject\", or \"grace:\" and a duration of at most 366d, such as \"grace:72h\"",
    check: |text| match crl_expired::parse(text) {
        Some(_) => Ok(()),
        None => Err(Fault {
            message: format!("\"{text}\" is not a valid value"),
            help: closest(text, ["warn", "reject"].into_iter())
                .map(|close| format!("did you mean \"{close}\"?")),
        }),
    },
};
pub(crate) static ROUTE: Form = Form {
    what: "the name of a route",
    check: |_| Ok(()),
};
pub(crate) static EXTENSION: Form = Form {
    what: "an extension by Puppet's name, by one of `[identity.extensions]`, or by its OID",
    check: |_| Ok(()),
};
pub(crate) static EXTENSION_VALUE: Form = Form {
    what: "a value, in which `*` matches any run of characters",
    check: |text| match identity::ValuePattern::parse(text) {
        Some(_) => Ok(()),
        None => Err(Fault::new(
            "a value may not contain a control character or exceed 1024 bytes",
        )),
    },
};
pub(crate) static EXTENSION_NAME: Form = Form {
    what: "a name of letters, digits, `-` and `_`",
    check: |text| match identity::extension_oid(text) {
        Some(oid) => Err(Fault::new(format!(
            "\"{text}\" is Puppet's own name for {oid}"
        ))),
        None => name(text),
    },
};
pub(crate) static OID: Form = Form {
    what: "an OID in dotted form, such as \"1.3.6.1.4.1.34380.1.2.7\"",
    check: |text| {
        require(
            identity::is_extension_oid(text),
            text,
            "is not the OID of an extension with a string value",
        )
    },
};
pub(crate) static NETWORK: Form = Form {
    what: "an IP address, or a network as \"10.0.0.0/8\"",
    check: |text| match routing::Network::parse(text) {
        Ok(_) => Ok(()),
        Err(problem) => Err(Fault::new(problem.to_string())),
    },
};
pub(crate) static SNI: Form = Form {
    what: "a host name, as clients send it in the TLS handshake",
    check: |text| match text.parse::<IpAddr>() {
        Ok(_) => Err(Fault::new(
            "an IP address: a client that connects by address sends no server name",
        )),
        Err(_) if text.ends_with('.') => Err(Fault::new(
            "a trailing dot: clients send server names without it",
        )),
        Err(_) if is_name(text) => Ok(()),
        Err(_) => Err(Fault::new(format!("\"{text}\" is not a host name"))),
    },
};
pub(crate) static PARAMETER: Form = Form {
    what: "the name of a query parameter, decoded",
    check: not_empty,
};
pub(crate) static ANY_TEXT: Form = Form {
    what: "a string",
    check: |_| Ok(()),
};
pub(crate) static COOKIE_NAME: Form = Form {
    what: "the name of a cookie",
    check: |text| {
        require(
            !text.is_empty() && text.bytes().all(is_token),
            text,
            "is not a cookie name",
        )
    },
};
pub(crate) static COOKIE_TEXT: Form = Form {
    what: "the value of a cookie, byte for byte",
    check: |text| {
        if text
            .bytes()
            .all(|byte| (0x21..=0x7e).contains(&byte) && byte != b';')
        {
            Ok(())
        } else {
            Err(Fault::new("no cookie can hold this"))
        }
    },
};
pub(crate) static HEADER_NAME: Form = Form {
    what: "the name of a header field",
    check: |text| {
        if text.contains('_') {
            let fault = "no header field with a `_` is forwarded, so this never matches";
            return Err(Fault::new(fault).help(format!("write {}", text.replace('_', "-"))));
        }
        let is_name = !text.is_empty() && text.bytes().all(is_token);
        require(is_name, text, "is not a header name")
    },
};

pub(crate) static HEADER_PATTERN: Form = Form {
    what: "the name of a header, or the beginning of names and a `*`",
    check: header_pattern,
};

pub(crate) static HEADER_TEXT: Form = Form {
    what: "a string of visible characters",
    check: |text| {
        if text.bytes().all(|byte| (0x20..=0x7e).contains(&byte)) {
            Ok(())
        } else {
            Err(Fault {
                message: "no header field can hold this".into(),
                help: None,
            })
        }
    },
};

pub(crate) static CA: Form = Form {
    what: "a distinguished name (RFC 2253), such as \"CN=Puppet CA: puppet.example.com\"",
    check: distinguished_name,
};

/// The kind of a log daemon and its socket, if the string names one.
pub(crate) fn log_daemon(text: &str) -> Option<(&str, Option<&str>)> {
    let (kind, socket) = match text.split_once(':') {
        Some((kind, socket)) => (kind, Some(socket)),
        None => (text, None),
    };
    matches!(kind, "syslog" | "journal").then_some((kind, socket))
}

/// A parsed address of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Unix,
    /// Members that SRV records list.
    Service,
    Ip(IpAddr),
    Name(String),
}

impl Address {
    pub(crate) fn parse(text: &str) -> Result<Self, Fault> {
        if let Some(path) = text.strip_prefix("unix:") {
            return absolute_path(path).map(|()| Self::Unix);
        }
        if let Some(service) = text.strip_prefix("srv:") {
            return if is_name(service) && service.starts_with('_') {
                Ok(Self::Service)
            } else {
                Err(
                    Fault::new(format!("\"{service}\" is not the name of SRV records")).help(
                        "write \"srv:_x-puppet._tcp.example.com\"; the port is in the record",
                    ),
                )
            };
        }
        if let Ok(address) = text.parse::<SocketAddr>() {
            return port_of_member(&address.port().to_string()).map(|()| Self::Ip(address.ip()));
        }
        if text.contains("://") {
            return Err(Fault::new(format!("\"{text}\" is a URL"))
                .help("set the protocol with the pool's `scheme`"));
        }
        match text.rsplit_once(':') {
            Some((host, port)) if is_name(host) => {
                port_of_member(port)?;
                Ok(Self::Name(host.into()))
            }
            Some((host, _)) => Err(Fault::new(format!("\"{host}\" is not a host name"))),
            None if is_host(text) => Err(Fault::new("the port is missing")
                .help(format!("write \"{text}:8140\" for a Puppet server"))),
            None => Err(Fault::new(format!("\"{text}\" is not an address"))),
        }
    }

    /// Whether plain HTTP to this address stays on this machine. Names other than `localhost` do not count, because
    /// their address can change without a change of the file. The proxy checks the resolved address again on every
    /// connect.
    pub(crate) fn is_local(&self) -> bool {
        match self {
            // The proxy checks each resolved address of a service when it connects.
            Self::Unix | Self::Service => true,
            Self::Ip(address) => address.to_canonical().is_loopback(),
            Self::Name(name) => name.eq_ignore_ascii_case("localhost"),
        }
    }
}

/// The error is `"TEXT" FAULT`, such as `"x" is not a file mode`.
fn require(is_valid: bool, text: &str, fault: &str) -> Result<(), Fault> {
    let message = || Fault::new(format!("\"{text}\" {fault}"));
    is_valid.then_some(()).ok_or_else(message)
}

impl Fault {
    fn new(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            help: None,
        }
    }

    fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// A byte of a token (RFC 9110, 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn not_empty(text: &str) -> Result<(), Fault> {
    (!text.is_empty())
        .then_some(())
        .ok_or_else(|| Fault::new("an empty name"))
}

fn absolute_path(text: &str) -> Result<(), Fault> {
    if text.starts_with('/') && text.contains('\0') {
        return Err(Fault::new("a path cannot hold a NUL"));
    }
    require(text.starts_with('/'), text, "is not an absolute path")
        .map_err(|fault| fault.help("a service has no directory of its own to start from"))
}

fn listen_address(text: &str) -> Result<(), Fault> {
    if let Some(path) = text.strip_prefix("unix:") {
        return (SOCKET.check)(path);
    }
    if text.parse::<SocketAddr>().is_ok() {
        return Ok(());
    }
    let fault = Fault::new(format!("\"{text}\" is not an address to listen on"));
    if text.parse::<IpAddr>().is_ok() {
        return Err(fault.help("the port is missing; agents use 8140"));
    }
    let port = text.strip_prefix('*').unwrap_or(text);
    Err(
        match port.strip_prefix(':').unwrap_or(port).parse::<u16>() {
            Ok(port) => fault.help(format!(
                "write \"0.0.0.0:{port}\" for every IPv4 address, \"[::]:{port}\" for IPv6"
            )),
            Err(_) => fault,
        },
    )
}

fn https_origin(text: &str) -> Result<(), Fault> {
    let fault = || Fault::new(format!("\"{text}\" is not such a URL"));
    let authority = text.strip_prefix("https://").ok_or_else(fault)?;
    if authority.contains(['/', '?', '#']) {
        return Err(fault().help("leave out the path: that of each request follows"));
    }
    let after_host = authority.rfind(']').unwrap_or(0);
    let is_valid = match authority[after_host..].rfind(':') {
        Some(colon) => {
            let (host, port) = authority.split_at(after_host + colon);
            is_url_host(host) && port_of_member(&port[1..]).is_ok()
        }
        None => is_url_host(authority),
    };
    is_valid.then_some(()).ok_or_else(fault)
}

/// A host as written in a URL, where an IPv6 address has brackets.
fn is_url_host(host: &str) -> bool {
    match host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
    {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => !host.contains(':') && is_host(host),
    }
}

fn port_of_member(text: &str) -> Result<(), Fault> {
    match text.parse::<u16>() {
        Ok(1..) => Ok(()),
        _ => Err(Fault::new(format!(
            "\"{text}\" is not a port from 1 to 65535"
        ))),
    }
}

fn name(text: &str) -> Result<(), Fault> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    match text.len() {
        1..=64 if text.bytes().all(plain) => Ok(()),
        1..=64 => Err(Fault::new(format!("\"{text}\" is not a valid name"))
            .help("it appears in records and metrics")),
        _ => Err(Fault::new("a name has 1 to 64 characters")),
    }
}

fn certname(text: &str) -> Result<(), Fault> {
    let plain =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
    require(
        matches!(text.len(), 1..=255) && text.bytes().all(plain),
        text,
        "is not a certname",
    )
}

/// Upper case is allowed: `[identity] subject = "single-cn"` accepts such names.
fn certname_pattern(text: &str) -> Result<(), Fault> {
    let plain = |byte: u8| byte.is_ascii_graphic() && !b",/+\"\\".contains(&byte);
    require(
        matches!(text.len(), 1..=255) && text.bytes().all(plain),
        text,
        "cannot match any certname",
    )
}

/// Puppet's settings name a header in the CGI form, for example `HTTP_X_CLIENT_DN`.
fn identity_header(text: &str) -> Result<(), Fault> {
    let Err(error) = identity::IdentityName::parse(text) else {
        return Ok(());
    };
    let fault = Fault::new(format!("\"{text}\" cannot carry the identity: {error}"));
    let plain = text.strip_prefix("HTTP_").unwrap_or(text).replace('_', "-");
    match identity::IdentityName::parse(&plain) {
        Ok(name) if text.contains('_') => Err(fault.help(format!(
            "write \"{name}\": Puppet reads it as HTTP_{}",
            plain.to_uppercase().replace('-', "_")
        ))),
        _ => Err(fault),
    }
}

/// No request can be forwarded without its framing, and hop-by-hop fields are never forwarded.
fn header_pattern(text: &str) -> Result<(), Fault> {
    let Some(pattern) = HeaderPattern::parse(text) else {
        return Err(Fault::new(format!("\"{text}\" is not a header name")));
    };
    match pattern.first_covered(upstream::framing_fields()) {
        Some(covered) => Err(Fault::new(format!(
            "\"{text}\" {covered}, which the proxy itself needs for each message or connection"
        ))),
        None => Ok(()),
    }
}

fn host_condition(text: &str) -> Result<(), Fault> {
    match text.rsplit_once(':') {
        _ if is_host(text) || text.strip_prefix("*.").is_some_and(is_name) => Ok(()),
        Some((host, port)) if is_host(host) && port.parse::<u16>().is_ok() => {
            Err(Fault::new("a host is compared without its port").help(format!("write \"{host}\"")))
        }
        _ => Err(Fault::new(format!("\"{text}\" is not a host name"))),
    }
}

fn method(text: &str) -> Result<(), Fault> {
    let capitals = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|byte| byte.is_ascii_uppercase() || byte == b'-')
    };
    let upper = text.to_uppercase();
    if text != upper && capitals(&upper) {
        return Err(
            Fault::new("methods are compared with their case").help(format!("write \"{upper}\""))
        );
    }
    require(capitals(text), text, "is not a method")
}

/// The path rule refuses some paths. A route on such a path would never match.
fn path_condition(text: &str) -> Result<(), Fault> {
    if !text.starts_with('/') {
        return Err(Fault::new(format!("\"{text}\" does not start with `/`")));
    }
    if text.contains(['?', '#']) {
        return Err(Fault::new("a path is compared without its query"));
    }
    if text
        .split('/')
        .any(|segment| segment == "." || segment == "..")
    {
        return Err(Fault::new(
            "no request with a dot segment is forwarded, so this never matches",
        ));
    }
    if text
        .bytes()
        .all(|byte| (0x21..=0x7e).contains(&byte) && byte != b'\\')
    {
        Ok(())
    } else {
        Err(Fault::new(
            "a path is compared as it is sent, with spaces and other letters escaped",
        ))
    }
}

fn regular_expression(text: &str) -> Result<(), Fault> {
    let Err(error) = regex::Regex::new(text) else {
        return Ok(());
    };
    // The regex library prints the expression and a caret first. Its last line is the message.
    let error = error.to_string();
    let sentence = error.lines().last().unwrap_or_default();
    let sentence = sentence.strip_prefix("error: ").unwrap_or(sentence);
    Err(Fault::new(format!("not a regular expression: {sentence}")))
}

/// Attribute type, `=` and value, separated by commas or plus signs that are not escaped (RFC 2253 §2).
fn distinguished_name(text: &str) -> Result<(), Fault> {
    let no_name = || Fault::new(format!("\"{text}\" is not a distinguished name (RFC 2253)"));
    if text.starts_with('/') {
        return Err(no_name().help(rfc2253_of_slashes(text)));
    }
    if attributes(text)
        .ok_or_else(no_name)?
        .iter()
        .all(|attribute| is_attribute(attribute))
    {
        Ok(())
    } else {
        Err(no_name())
    }
}

/// Splits a name at separators that are neither escaped nor quoted; `None` if an escape or a quotation is incomplete.
fn attributes(text: &str) -> Option<Vec<String>> {
    let mut parts = vec![String::new()];
    let (mut escaped, mut quoted) = (false, false);
    for character in text.chars() {
        let part = parts.last_mut()?;
        match character {
            ',' | '+' | ';' if !escaped && !quoted => {
                parts.push(String::new());
                continue;
            }
            '"' if !escaped => quoted = !quoted,
            _ => {}
        }
        escaped = character == '\\' && !escaped;
        part.push(character);
    }
    (!escaped && !quoted).then_some(parts)
}

fn is_attribute(text: &str) -> bool {
    let Some((kind, value)) = text.trim_start().split_once('=') else {
        return false;
    };
    let keyword = kind.starts_with(|first: char| first.is_ascii_alphabetic())
        && kind
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let dotted = kind
        .split('.')
        .all(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()));
    (keyword || dotted) && !value.is_empty()
}

/// Converts OpenSSL's old form `/O=x/CN=y`. RFC 2253 starts with the last RDN.
fn rfc2253_of_slashes(text: &str) -> String {
    let parts: Vec<_> = text.trim_start_matches('/').rsplit('/').collect();
    format!("write \"{}\"", parts.join(","))
}

fn is_host(text: &str) -> bool {
    text.parse::<IpAddr>().is_ok() || is_name(text)
}

fn is_name(text: &str) -> bool {
    let label = |label: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        (1..=63).contains(&label.len()) && label.bytes().all(plain)
    };
    text.len() <= 253 && text.strip_suffix('.').unwrap_or(text).split('.').all(label)
}

/// Whether a string can be one part of a key in etcd.
fn is_key_part(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=64).contains(&text.len()) && text.bytes().all(is_plain)
}

#[cfg(test)]
mod tests;
