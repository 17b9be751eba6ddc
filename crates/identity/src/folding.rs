//! Which spellings of a header name servers read as one name.

use std::sync::LazyLock;

/// Whether [`crate::ScrubReport::scrubs`] removes headers with this name under every configuration.
pub(crate) fn seems_identity(name: &str) -> bool {
    is_identity_name(without_cgi_prefix(name.as_bytes()))
}

/// The name without the prefix `HTTP_`. A CGI server turns `X-Client-DN` into `HTTP_X_CLIENT_DN`, and some servers undo that
/// (HEADERS.md, 1).
pub(crate) fn without_cgi_prefix(mut name: &[u8]) -> &[u8] {
    while let Some(rest) = after(name, b"http-") {
        name = rest;
    }
    name
}

/// Whether some server reads `name` as an identity or forwarding header. `name` must not have the CGI prefix.
pub(crate) fn is_identity_name(name: &[u8]) -> bool {
    let Some(group) = group(name) else {
        return false;
    };
    GROUPS[group].iter().any(|entry| match entry {
        Entry::Prefix(prefix) => after(name, prefix).is_some(),
        Entry::Name(known) => same_for_readers(name, known),
    })
}

/// An entry in the lists below.
#[derive(Clone, Copy, Debug)]
enum Entry {
    Prefix(&'static [u8]),
    Name(&'static [u8]),
}

/// The entries by [`group`]. Every header of every request is looked up. Comparing it with all entries would cost a fifth of a
/// request's instructions.
static GROUPS: LazyLock<Vec<Vec<Entry>>> = LazyLock::new(|| {
    let prefixes = PREFIXES.iter().map(|prefix| Entry::Prefix(prefix));
    let names = NAMES.iter().map(|name| Entry::Name(name));
    let mut groups = vec![Vec::new(); GROUP_COUNT];
    for entry in prefixes.chain(names) {
        let (Entry::Prefix(text) | Entry::Name(text)) = entry;
        let first = group(text).expect("an entry has three characters");
        // An entry with three characters is in all groups for its third one, because any character may follow.
        let count = if text.len() == 3 { 32 } else { 1 };
        for group in &mut groups[first..first + count] {
            group.push(entry);
        }
    }
    groups
});

const GROUP_COUNT: usize = 32 * 32;

/// The group of the entries that may match `name`. It depends on the third and fourth character, because most entries begin
/// with `x-`.
fn group(name: &[u8]) -> Option<usize> {
    let place = |byte: &u8| usize::from(folded(*byte)) % 32;
    Some(32 * place(name.get(2)?) + name.get(3).map_or(0, place))
}

/// Whether some server reads `name` as `own`. `own` must be in lower case.
pub(crate) fn same_for_readers(name: &[u8], own: &[u8]) -> bool {
    name.len() == own.len() && after(name, own).is_some()
}

/// The rest of `name` after `prefix`, if a server that folds characters reads its beginning as `prefix`.
pub(crate) fn after<'a>(name: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let mut rest = name;
    for wanted in prefix {
        let (byte, others) = rest.split_first()?;
        if folded(*byte) != *wanted {
            return None;
        }
        rest = others;
    }
    Some(rest)
}

/// The byte in lower case, or `-` if it is not a letter or digit. CGI-style servers fold `-` and `_`. Caddy's advisory
/// GHSA-f59h-q822-g45g adds `.`. Old versions of Apache also fold every other character of a token.
pub(crate) fn folded(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() {
        byte.to_ascii_lowercase()
    } else {
        b'-'
    }
}

/// Prefixes. A header whose name begins with one of these carries the identity of a user or of a client certificate, or shows
/// how a request was forwarded. A front end sets it, and a server behind that front end trusts it.
///
/// The lists do not contain credentials that a client itself sends, such as `Authorization`, `X-Auth-Token`, `X-Auth-Key` and
/// `X-User-Token`.
const PREFIXES: &[&[u8]] = &[
    // Certificates of clients, and how requests were forwarded.
    b"x-client-",
    b"x-clientcert",
    b"x-ssl-",
    b"x-sslclient",
    b"x-tlsclient",
    b"x-mtlsclient",
    b"x-tls-",
    b"x-mtls-",
    b"x-cert-",
    b"x-certificate",
    b"x-original-forwarded-", // Kubernetes ingress
    b"x-forwarded-", // such as X-Forwarded-Client-Cert (Envoy), X-Forwarded-Tls-Client-Cert* (Traefik), X-Forwarded-User
    b"x-amzn-mtls-", // load balancers of AWS
    b"x-arr-",       // IIS and Azure, such as X-ARR-ClientCert
    b"x-rhsm-ssl-",  // Katello
    b"x-spiffe-",
    b"x-azure-",          // Azure Front Door: its own mark and the client's address
    b"x-cluster-client-", // Rackspace, Zeus
    // Users.
    b"x-remote-", // Kubernetes, Odoo, ManageIQ
    b"x-remoteuser",
    b"x-username",
    b"x-userid",
    b"x-userinfo", // OpenID Connect in OpenResty and APISIX
    b"x-user-id",
    b"x-user-name",
    b"x-user-email",
    b"x-user-group",
    b"x-user-role",
    b"x-user-dn",
    b"x-user-info",
    b"x-user-claim",
    b"x-user-principal",
    b"x-user-login",
    b"x-current-user",
    b"x-webauth-", // Grafana, Gitea
    b"x-authenticated-",
    b"x-auth-request-", // oauth2-proxy
    b"x-auth-user",     // Louketo, as the next four
    b"x-auth-email",
    b"x-auth-group",
    b"x-auth-role",
    b"x-auth-subject",
    b"x-auth-id", // Posit, as the next five
    b"x-auth-name",
    b"x-auth-first-",
    b"x-auth-last-",
    b"x-auth-rsc-",
    b"x-rstudio-user",
    b"x-sp-user",    // ShinyProxy
    b"x-token-user", // caddy-security, as the next one
    b"x-token-subject",
    b"x-oidc-",
    b"x-authentik-",
    b"x-consumer-", // Kong, as the next one
    b"x-credential-identifier",
    b"x-amzn-oidc-",
    b"x-goog-authenticated-user",
    b"x-goog-iap-",
    b"x-endpoint-api-userinfo", // Google, as the next one
    b"x-apigateway-api-userinfo",
    b"x-ms-client-principal", // Azure, as the next one
    b"x-ms-token-",
    b"x-rh-identity", // Pulp and other services of Red Hat
    b"x-vouch-",
    b"x-pomerium-",
    b"x-proxy-user", // OpenSearch, as the next two
    b"x-proxy-role",
    b"x-proxy-ext-",
    b"x-sso-user",      // Nexus
    b"x-jwt-assertion", // WSO2
    b"x-shib-",
    b"x-iisnode-",
    b"x-cas-",
    // Certificates of clients.
    b"ssl-client",
    b"sslclient", // F5, such as SSLClientCertSubject
    b"tls-client",
    b"tlsclient",
    b"mtls-",
    b"mtlsclient",
    b"client-cert", // RFC 9440, with Client-Cert-Chain
    b"clientcert",
    b"cert-chain",             // Keycloak
    b"cf-client-cert",         // Cloudflare
    b"cloudfront-viewer-cert", // Amazon CloudFront
    b"proxy-client-",          // WebLogic, as the next one
    b"wl-proxy-",
    b"-ws",            // WebSphere: $WSCC has the certificate, $WSRU the user
    b"l5d-client-id",  // Linkerd
    b"true-client-ip", // Akamai and Cloudflare: the client's address, as the next two
    b"cf-connecting-ip",
    b"fastly-client-ip",
    // Users.
    b"remote-", // Apache's REMOTE_USER and its attributes, Remote-Groups of Authelia
    b"remoteuser",
    b"proxy-remote-", // Oracle, as the next two
    b"oam-",
    b"osso-",
    b"cf-access-", // Cloudflare
    b"tailscale-",
    b"teleport-",
    b"oidc-", // mod_auth_openidc
    b"mellon-",
    b"shib-",
    b"cas-user",
    b"sm-",       // SiteMinder
    b"iv-",       // IBM WebSEAL
    b"auth-user", // LemonLDAP::NG and YunoHost, as the next four
    b"auth-mail",
    b"auth-group",
    b"auth-cn",
    b"ynh-",
    b"logon-user", // IIS
    b"cp-user",    // Candlepin, as the next one
    b"cp-consumer",
];

/// Complete names. `Proxy` becomes `HTTP_PROXY` for a CGI program (CVE-2016-5385).
const NAMES: &[&[u8]] = &[
    b"x-client",
    b"x-ssl",
    b"x-tls",
    b"x-cert",
    b"x-forwarded",
    b"forwarded",
    b"x-real-ip",
    b"x-authentication",
    b"proxy",
    b"x-user",
    b"x-email",
    b"x-group",
    b"x-groups",
    b"x-role",
    b"x-roles",
    b"x-login",
    b"x-principal",
    b"x-webauth",
    b"x-auth-request",
    b"x-authenticated",
    b"x-anonymous-consumer", // Kong
    b"eppn",                 // Shibboleth
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lists_are_folded_and_every_entry_is_found() {
        for name in [PREFIXES, NAMES].concat() {
            let shown = String::from_utf8_lossy(name);
            assert!(name.iter().all(|byte| folded(*byte) == *byte), "{shown}");
            assert_eq!(without_cgi_prefix(name), name, "{shown}");
            assert!(is_identity_name(name), "{shown}");
        }
    }

    #[test]
    fn no_entry_of_the_lists_is_superfluous() {
        for (index, name) in PREFIXES.iter().chain(NAMES).enumerate() {
            let mut others = PREFIXES.iter().enumerate();
            let covered = others.any(|(other, prefix)| other != index && name.starts_with(prefix));
            assert!(!covered, "{}", String::from_utf8_lossy(name));
        }
    }
}
