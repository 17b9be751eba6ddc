//! Both sides of a TLS connection in memory.

use std::sync::Arc;

use pki::{Credential, Named};
use rcgen::KeyPair;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::aws_lc_rs;
use rustls::sign::SigningKey;
use rustls::time_provider::TimeProvider;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, Error, ServerConfig, ServerConnection,
    SignatureScheme,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};

use super::{Leaf, now, pem};

/// The clock of these tests.
#[derive(Debug)]
pub struct Fixed;

impl TimeProvider for Fixed {
    fn current_time(&self) -> Option<UnixTime> {
        Some(now())
    }
}

/// Accepts any server.
#[derive(Debug)]
pub struct AnyServer;

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        aws_lc_rs::default_provider()
            .signature_verification_algorithms
            .supported_schemes()
    }
}

pub fn signing_key(key: &KeyPair) -> Arc<dyn SigningKey> {
    let der = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    aws_lc_rs::sign::any_supported_type(&der).unwrap()
}

/// A credential that consists of a leaf alone.
pub fn credential(leaf: &Leaf) -> Credential {
    let chain = Named::new("cert.pem", pem("CERTIFICATE", &leaf.der).into_bytes());
    let key = Named::new("key.pem", leaf.key.serialize_pem().into_bytes());
    Credential::parse(&chain, &key).unwrap()
}

/// A handshake with the server name `puppet`. Returns the result of each side.
pub fn shake(
    client: &Arc<ClientConfig>,
    server: &Arc<ServerConfig>,
) -> (
    Result<ClientConnection, Error>,
    Result<ServerConnection, Error>,
) {
    shake_for("puppet", client, server)
}

pub fn shake_for(
    name: &str,
    client: &Arc<ClientConfig>,
    server: &Arc<ServerConfig>,
) -> (
    Result<ClientConnection, Error>,
    Result<ServerConnection, Error>,
) {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::clone(client), name).unwrap();
    let mut server = ServerConnection::new(Arc::clone(server)).unwrap();
    let (mut client_error, mut server_error) = (None, None);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        let sent = !bytes.is_empty();
        let mut rest = &bytes[..];
        while !rest.is_empty() && server_error.is_none() {
            server.read_tls(&mut rest).unwrap();
            server_error = server.process_new_packets().err();
        }
        bytes.clear();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        let answered = !bytes.is_empty();
        let mut rest = &bytes[..];
        while !rest.is_empty() && client_error.is_none() {
            client.read_tls(&mut rest).unwrap();
            client_error = client.process_new_packets().err();
        }
        if !sent && !answered {
            break;
        }
    }
    (
        client_error.map_or(Ok(client), Err),
        server_error.map_or(Ok(server), Err),
    )
}
