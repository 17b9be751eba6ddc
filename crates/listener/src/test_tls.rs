//! For tests: the TLS of a server `puppet` and of a client that trusts it.

use std::sync::Arc;

use rustls::{
    ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion,
    crypto::aws_lc_rs::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use testkit::Ca;

pub(crate) type Versions<'a> = &'a [&'static SupportedProtocolVersion];

/// The configurations of the server and of the client, each with these TLS versions.
pub(crate) fn configs(
    of_server: Versions<'_>,
    of_client: Versions<'_>,
) -> (ServerConfig, ClientConfig) {
    let ca = Ca::new();
    let server = ca.server("puppet");
    let (chain, bundle) = (server.chain_pem(), ca.bundle_pem());
    let certificates = |pem: &str| {
        CertificateDer::pem_slice_iter(pem.as_bytes())
            .flatten()
            .collect()
    };
    let chain: Vec<CertificateDer<'static>> = certificates(&chain);
    let key = PrivateKeyDer::from_pem_slice(server.key_pem.as_bytes()).expect("a key");
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates(&bundle));
    let provider = Arc::new(default_provider());
    let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(of_server)
        .expect("versions of the provider")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("a certificate");
    let client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(of_client)
        .expect("versions of the provider")
        .with_root_certificates(roots)
        .with_no_client_auth();
    (server, client)
}
