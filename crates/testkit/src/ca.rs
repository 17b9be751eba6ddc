//! A certificate authority like Puppet's, created by each test: root, intermediate, and agents that send only their
//! leaf.

use std::{
    fs,
    io::Write,
    net::IpAddr,
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateRevocationListParams,
    CrlDistributionPoint, CrlIssuingDistributionPoint, CrlScope, CustomExtension,
    DistinguishedName, DnType, DnValue, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod,
    KeyPair, KeyUsagePurpose, PublicKeyData, RevocationReason, RevokedCertParams, SanType,
    SerialNumber, SigningKey,
};
use time::{Duration, OffsetDateTime};
use x509_parser::{certificate::X509Certificate, extensions::GeneralName, prelude::FromDer};

use crate::enrolment::{RequestError, RequestedKey, SigningRequest};
use crate::subject;

/// A certificate with its key, for example of an agent, a server or the proxy.
#[derive(Clone, Debug)]
pub struct TestCredential {
    /// The subject's CN, which is the certname.
    pub certname: String,
    /// The leaf certificate, PEM, as agents store and send it.
    pub cert_pem: String,
    /// PKCS#8 key, PEM.
    pub key_pem: String,
    /// The leaf, DER.
    pub cert_der: Vec<u8>,
    /// Certificates that are sent after the leaf, PEM; empty for an agent.
    pub intermediates_pem: String,
    /// Serial number from its CA.
    pub serial: u64,
}

impl TestCredential {
    /// This certificate with another key: a stolen certificate, which must fail proof of possession.
    pub fn with_key_of(mut self, other: &Self) -> Self {
        self.key_pem.clone_from(&other.key_pem);
        self
    }

    /// A credential from PEM files, such as those of `ssl-fixtures/`. The serial is 0.
    pub fn from_pem(certname: &str, cert_pem: &str, key_pem: &str) -> Self {
        let cert_der = pem_blocks(cert_pem, "CERTIFICATE")
            .into_iter()
            .next()
            .unwrap_or_default();
        Self {
            certname: certname.to_owned(),
            cert_pem: cert_pem.to_owned(),
            key_pem: key_pem.to_owned(),
            cert_der,
            intermediates_pem: String::new(),
            serial: 0,
        }
    }

    /// The leaf and the intermediates, PEM, as they are sent.
    pub fn chain_pem(&self) -> String {
        format!("{}{}", self.cert_pem, self.intermediates_pem)
    }
}

/// A certificate authority. Clones are the same authority.
#[derive(Clone)]
pub struct Ca {
    state: Arc<Mutex<State>>,
}

struct State {
    authorities: Vec<Authority>,
    /// Counter for the serial numbers of leaves; Puppet counts from 1.
    serial: u64,
}

/// A CA certificate with its CRL. The last authority issues the leaves.
struct Authority {
    name: String,
    pem: String,
    issuer: Issuer<'static, KeyPair>,
    /// The issuer with its name in UTF-8, if the name has another string type.
    in_utf8: Option<Issuer<'static, KeyPair>>,
    /// A copy of the issuer's key, because the issuer does not expose it.
    key_pem: String,
    crl_number: u64,
    revoked: Vec<u64>,
    next_update: OffsetDateTime,
}

impl Ca {
    /// Root and intermediate, as Puppet 6 and later create them.
    pub fn new() -> Self {
        Self::named("test")
    }

    /// Another CA of the same shape with other names. Nothing trusts its certificates by default.
    pub fn other() -> Self {
        Self::named("elsewhere")
    }

    /// A root and the intermediate `Puppet CA: NAME`. Two CAs with one name have the same subject and different keys.
    pub fn named(name: &str) -> Self {
        let root = Authority::root(&format!("Puppet Root CA: {name}"));
        let intermediate = root.subordinate(&format!("{ISSUING}{name}"));
        Self::of(vec![root, intermediate])
    }

    /// Another CA with the same names: its certificates name this CA as issuer, but another key has signed them.
    pub fn namesake(&self) -> Self {
        let name = self.name();
        Self::named(name.strip_prefix(ISSUING).unwrap_or(&name))
    }

    /// A root and an intermediate, both five years old. The intermediate expires in this many days.
    pub fn expiring_in(days: i64) -> Self {
        let root = Authority::root("Puppet Root CA: expiring");
        let name = format!("{ISSUING}expiring");
        let mut params = Authority::params(&name, INTERMEDIATE_SERIAL);
        params.not_after = now() + Duration::days(days);
        params.not_before = params.not_after - Duration::days(5 * 365);
        let issuing = root.certifies(&name, params);
        Self::of(vec![root, issuing])
    }

    /// A later certificate of the leaves' issuer, with the same name and key.
    pub fn renewed_issuing_pem(&self) -> String {
        let state = self.state();
        let [root, .., issuing] = state.authorities.as_slice() else {
            panic!("there is no root above the leaves' issuer");
        };
        let key = KeyPair::from_pem(&issuing.key_pem).expect("its own key");
        let params = Authority::params(&issuing.name, INTERMEDIATE_SERIAL + 1);
        let renewed = params.signed_by(&key, &root.issuer);
        renewed.expect("own parameters can be signed").pem()
    }

    /// One self-signed CA, as Puppet 3 to 5 create it.
    pub fn single(name: &str) -> Self {
        Self::of(vec![Authority::root(&format!("{ISSUING}{name}"))])
    }

    /// A CA that was created elsewhere, with a PrintableString as its name, and imported.
    /// [`LeafBuilder::issuer_in_utf8`] makes the certificates that Puppet Server signs with such a CA.
    pub fn imported() -> Self {
        let root = Authority::root("Puppet Root CA: imported");
        let name = format!("{ISSUING}imported");
        let in_utf8 = Authority::params(&name, INTERMEDIATE_SERIAL);
        let printable = name.as_str().try_into().expect("plain letters");
        let mut params = in_utf8.clone();
        params
            .distinguished_name
            .push(DnType::CommonName, DnValue::PrintableString(printable));
        let mut issuing = root.certifies(&name, params);
        let key = KeyPair::from_pem(&issuing.key_pem).expect("its own key");
        issuing.in_utf8 = Some(Issuer::new(in_utf8, key));
        Self::of(vec![root, issuing])
    }

    fn of(authorities: Vec<Authority>) -> Self {
        let state = State {
            authorities,
            serial: 1,
        };
        Self {
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Revokes a leaf; the CRL of its issuer gets the next number.
    pub fn revoke(&self, credential: &TestCredential) {
        let mut state = self.state();
        let issuer = state.issuing();
        issuer.revoked.push(credential.serial);
        issuer.crl_number += 1;
    }

    /// Revokes this many certificates that were never issued, so that the leaves' CRL is as long as a real one.
    pub fn revoke_strangers(&self, count: u64) {
        let mut state = self.state();
        let issuing = state.issuing();
        issuing.revoked.extend((0..count).map(|n| STRANGERS + n));
        issuing.crl_number += 1;
    }

    /// Revokes the intermediate in the root's CRL.
    pub fn revoke_intermediate(&self) {
        let root = &mut self.state().authorities[0];
        root.revoked.push(INTERMEDIATE_SERIAL);
        root.crl_number += 1;
    }

    /// Raises the number of the leaves' CRL without revoking a certificate.
    pub fn renew_crl(&self) -> u64 {
        let mut state = self.state();
        state.issuing().crl_number += 1;
        state.issuing().crl_number
    }

    /// Sets `nextUpdate` of the leaves' CRL, in days from now. A negative number makes the CRL expired.
    pub fn crl_next_update_days(&self, days: i64) {
        let mut state = self.state();
        state.issuing().next_update = now() + Duration::days(days);
        state.issuing().crl_number += 1;
    }

    /// Sets `nextUpdate` in seconds from now, for a CRL that expires during a test.
    pub fn crl_next_update_seconds(&self, seconds: i64) {
        let mut state = self.state();
        state.issuing().next_update = now() + Duration::seconds(seconds);
        state.issuing().crl_number += 1;
    }

    /// An agent's certificate as the Puppet CA signs it.
    pub fn agent(&self, certname: &str) -> TestCredential {
        self.leaf(certname).issue()
    }

    /// Signs a request as Puppet's CA does; the key stays with the agent.
    ///
    /// # Errors
    /// The text is not a signing request, or its signature does not match its key.
    pub fn sign(&self, request_pem: &[u8]) -> Result<TestCredential, RequestError> {
        let request = SigningRequest::parse(request_pem)?;
        let (certificate, serial) = self.leaf(&request.certname).signed(&request.key);
        Ok(TestCredential {
            certname: request.certname,
            cert_pem: certificate.pem(),
            key_pem: String::new(),
            cert_der: certificate.der().to_vec(),
            intermediates_pem: String::new(),
            serial,
        })
    }

    /// Signs the next certificate for this one, as Puppet's CA renews: with the same name, key, alternative names and
    /// Puppet extensions, whichever CA signed the old one.
    ///
    /// # Errors
    /// The bytes are not a certificate, or its kind of key is unknown here.
    pub fn renew(&self, certificate_der: &[u8]) -> Result<TestCredential, RequestError> {
        let (_, old) =
            X509Certificate::from_der(certificate_der).map_err(|_| RequestError::Unreadable)?;
        let name = old.subject().iter_common_name().next();
        let certname = name
            .and_then(|name| name.as_str().ok())
            .ok_or(RequestError::Nameless)?
            .to_owned();
        let mut leaf = self.leaf(&certname);
        let names = old.subject_alternative_name().ok().flatten();
        let names = names
            .into_iter()
            .flat_map(|names| &names.value.general_names);
        // The certname is added when the certificate is signed.
        leaf.params.subject_alt_names = names
            .filter(|name| !matches!(name, GeneralName::DNSName(name) if **name == certname))
            .filter_map(alternative_name)
            .collect();
        for extension in old.extensions() {
            let oid: Option<Vec<u64>> = extension.oid.iter().map(Iterator::collect);
            let oid = oid.filter(|oid| oid.starts_with(PUPPET));
            leaf.params.custom_extensions.extend(
                oid.map(|oid| CustomExtension::from_oid_content(&oid, extension.value.to_vec())),
            );
        }
        let (certificate, serial) = leaf.signed(&RequestedKey::of(old.public_key())?);
        Ok(TestCredential {
            certname,
            cert_pem: certificate.pem(),
            key_pem: String::new(),
            cert_der: certificate.der().to_vec(),
            intermediates_pem: String::new(),
            serial,
        })
    }

    /// A server's certificate: certname, `puppet`, `localhost` and the loopback address as names.
    pub fn server(&self, certname: &str) -> TestCredential {
        self.leaf(certname)
            .dns("puppet")
            .dns("localhost")
            .ip("127.0.0.1")
            .issue()
    }

    /// A builder for a certificate that differs from those that `agent` makes.
    pub fn leaf(&self, certname: &str) -> LeafBuilder {
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(certname);
        params.not_before = now() - Duration::days(1);
        params.not_after = now() + Duration::days(5 * 365);
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.is_ca = IsCa::ExplicitNoCa;
        params.use_authority_key_identifier_extension = true;
        LeafBuilder {
            ca: self.clone(),
            certname: certname.to_owned(),
            params,
            san: true,
            issuer_in_utf8: false,
        }
    }

    /// CRLs of every CA, the issuing one first, as Puppet's `ca_crl.pem` has them.
    pub fn crl_pem(&self) -> String {
        self.state()
            .authorities
            .iter()
            .rev()
            .map(Authority::crl_pem)
            .collect()
    }

    /// A CRL of the leaves' issuer that covers only user certificates, with the next number.
    pub fn partitioned_crl_pem(&self) -> String {
        let mut state = self.state();
        let issuing = state.issuing();
        let scope = Some(CrlScope::UserCertsOnly);
        let distribution_point = CrlDistributionPoint {
            uris: vec!["http://crl.example.com/users".to_owned()],
        };
        issuing.crl_of(
            issuing.crl_number + 1,
            Some(CrlIssuingDistributionPoint {
                distribution_point,
                scope,
            }),
        )
    }

    /// The CRL of the leaves' issuer alone.
    pub fn issuing_crl_pem(&self) -> String {
        self.state().issuing().crl_pem()
    }

    /// A CRL of the leaves' issuer with this number and only these serials: an infrastructure CRL, or a CRL that lost
    /// revocations. The CA's own CRL does not change.
    pub fn other_crl_pem(&self, number: u64, named: &[&TestCredential]) -> String {
        let mut state = self.state();
        let issuing = state.issuing();
        let named = named.iter().map(|credential| credential.serial).collect();
        let kept = (
            std::mem::replace(&mut issuing.crl_number, number),
            std::mem::replace(&mut issuing.revoked, named),
        );
        let pem = issuing.crl_pem();
        (issuing.crl_number, issuing.revoked) = kept;
        pem
    }

    /// Number of the leaves' CRL.
    pub fn crl_number(&self) -> u64 {
        self.state().issuing().crl_number
    }

    /// Every CA certificate, the issuing one first, as Puppet's `ca_crt.pem` has them.
    pub fn bundle_pem(&self) -> String {
        self.state()
            .authorities
            .iter()
            .rev()
            .map(|a| a.pem.as_str())
            .collect()
    }

    /// The root certificate without the others.
    pub fn root_pem(&self) -> String {
        self.state().authorities[0].pem.clone()
    }

    /// The root with the same name and key, and a key usage that allows signing CRLs only. Its own signature is
    /// invalid.
    pub fn root_pem_for_lists_alone(&self) -> String {
        let mut der = pem_blocks(&self.root_pem(), "CERTIFICATE").remove(0);
        // The extension's OID, TRUE, an OCTET STRING, a BIT STRING with one unused bit: keyCertSign and cRLSign.
        let both = [0x55, 0x1d, 0x0f, 1, 1, 0xff, 4, 4, 3, 2, 1, 0b110];
        let at = der.windows(both.len()).position(|bytes| bytes == both);
        der[at.expect("a key usage") + both.len() - 1] = 0b10;
        certificate_pem(&der)
    }

    /// The certificate of the leaves' issuer without the others.
    pub fn issuing_pem(&self) -> String {
        self.state().issuing().pem.clone()
    }

    /// Common name of the leaves' issuer.
    pub fn name(&self) -> String {
        self.state().issuing().name.clone()
    }

    /// Writes a Puppet agent's ssldir into `directory`, with a new server certificate for `certname`.
    pub fn write_ssldir(&self, directory: &Path, certname: &str) -> TestCredential {
        let credential = self.server(certname);
        self.write_ssldir_with(directory, &credential);
        credential
    }

    /// Writes a Puppet agent's ssldir with `credential`: `certs/ca.pem`, `crl.pem`, `certs/N.pem`,
    /// `private_keys/N.pem`.
    pub fn write_ssldir_with(&self, directory: &Path, credential: &TestCredential) {
        for (name, mode) in [
            ("certs", 0o755),
            ("private_keys", 0o750),
            ("public_keys", 0o755),
        ] {
            let path = directory.join(name);
            fs::create_dir_all(&path)
                .unwrap_or_else(|error| panic!("cannot make {}: {error}", path.display()));
            set_mode(&path, mode);
        }
        let leaf = format!("{}.pem", credential.certname);
        write_file(&directory.join("certs/ca.pem"), &self.bundle_pem(), 0o644);
        write_file(&directory.join("crl.pem"), &self.crl_pem(), 0o644);
        write_file(
            &directory.join("certs").join(&leaf),
            &credential.cert_pem,
            0o644,
        );
        write_file(
            &directory.join("private_keys").join(&leaf),
            &credential.key_pem,
            0o640,
        );
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Ca {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    fn issuing(&mut self) -> &mut Authority {
        self.authorities
            .last_mut()
            .expect("a CA has at least one authority")
    }
}

impl Authority {
    fn root(name: &str) -> Self {
        let key = new_key();
        let params = Self::params(name, 1);
        let pem = params
            .self_signed(&key)
            .expect("own parameters can be signed")
            .pem();
        Self::of(name, pem, params, key)
    }

    fn subordinate(&self, name: &str) -> Self {
        self.certifies(name, Self::params(name, INTERMEDIATE_SERIAL))
    }

    fn certifies(&self, name: &str, params: CertificateParams) -> Self {
        let key = new_key();
        let pem = params
            .signed_by(&key, &self.issuer)
            .expect("own parameters can be signed")
            .pem();
        Self::of(name, pem, params, key)
    }

    fn of(name: &str, pem: String, params: CertificateParams, key: KeyPair) -> Self {
        let key_pem = key.serialize_pem();
        let issuer = Issuer::new(params, key);
        let next_update = now() + Duration::days(5 * 365);
        Self {
            name: name.to_owned(),
            pem,
            issuer,
            in_utf8: None,
            key_pem,
            crl_number: 0,
            revoked: Vec::new(),
            next_update,
        }
    }

    fn params(name: &str, serial: u64) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(name);
        params.serial_number = Some(SerialNumber::from(serial));
        params.not_before = now() - Duration::days(30);
        params.not_after = now() + Duration::days(15 * 365);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params.use_authority_key_identifier_extension = true;
        params
    }

    fn crl_pem(&self) -> String {
        self.crl_of(self.crl_number, None)
    }

    fn crl_of(&self, number: u64, part: Option<CrlIssuingDistributionPoint>) -> String {
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: now(),
            reason_code: Some(RevocationReason::KeyCompromise),
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: now().min(self.next_update) - Duration::days(1),
            next_update: self.next_update,
            crl_number: SerialNumber::from(number),
            issuing_distribution_point: part,
            revoked_certs: self.revoked.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let crl = params
            .signed_by(&self.issuer)
            .expect("own parameters can be signed");
        crl.pem().expect("a CRL can be written as PEM")
    }
}

/// A builder for a leaf, which begins with an agent's settings.
pub struct LeafBuilder {
    ca: Ca,
    certname: String,
    params: CertificateParams,
    san: bool,
    issuer_in_utf8: bool,
}

impl LeafBuilder {
    /// Makes the certificate one that expired yesterday.
    pub fn expired(self) -> Self {
        self.valid_days(-30, -1)
    }

    /// Sets the validity, in days from now.
    pub fn valid_days(self, from: i64, to: i64) -> Self {
        self.valid_seconds(from * 86_400, to * 86_400)
    }

    /// Sets the validity, in seconds from now.
    pub fn valid_seconds(mut self, from: i64, to: i64) -> Self {
        self.params.not_before = now() + Duration::seconds(from);
        self.params.not_after = now() + Duration::seconds(to);
        self
    }

    /// Leaves out the subjectAltName, as Puppet 3 to 5 do for agents.
    pub fn without_san(mut self) -> Self {
        self.san = false;
        self
    }

    /// Sets another subject: these RDNs in this order, in place of the certname's CN.
    pub fn subject(mut self, rdns: &[(DnType, &str)]) -> Self {
        self.params.distinguished_name = DistinguishedName::new();
        for (kind, value) in rdns {
            self.params.distinguished_name.push(kind.clone(), *value);
        }
        self
    }

    /// Signs the certificate with this Name as its subject, in the form that `name_der` returns.
    pub fn issue_as(self, name: &[u8]) -> TestCredential {
        let ca = self.ca.clone();
        let mut credential = self.issue();
        let key_pem = ca.state().issuing().key_pem.clone();
        let key = KeyPair::from_pem(&key_pem).expect("a key of ours can be read");
        let sign = |bytes: &[u8]| key.sign(bytes).expect("a key of ours signs");
        credential.cert_der = subject::with_subject(&credential.cert_der, name, sign);
        credential.cert_pem = certificate_pem(&credential.cert_der);
        credential
    }

    /// Adds a DNS name.
    pub fn dns(mut self, name: &str) -> Self {
        let name = name.try_into().expect("a DNS name is ASCII");
        self.params.subject_alt_names.push(SanType::DnsName(name));
        self
    }

    /// Adds an IP address.
    pub fn ip(mut self, address: &str) -> Self {
        let address = address
            .parse()
            .expect("an address in a test is well formed");
        self.params
            .subject_alt_names
            .push(SanType::IpAddress(address));
        self
    }

    /// Adds a UTF8String extension, such as `pp_role` (1.3.6.1.4.1.34380.1.1.13) or `pp_cli_auth` (….1.3.39).
    pub fn extension(mut self, oid: &[u64], value: &str) -> Self {
        self.params
            .custom_extensions
            .push(utf8_extension(oid, value));
        self
    }

    /// Adds an extension with these bytes, DER or not.
    pub fn raw_extension(mut self, oid: &[u64], value: &[u8]) -> Self {
        let extension = CustomExtension::from_oid_content(oid, value.to_vec());
        self.params.custom_extensions.push(extension);
        self
    }

    /// Writes the issuer's name in UTF-8, whatever the CA's certificate has, as Puppet Server does
    /// (`SSLUtils.signCertificate`).
    pub fn issuer_in_utf8(mut self) -> Self {
        self.issuer_in_utf8 = true;
        self
    }

    /// Signs the certificate for a new key.
    pub fn issue(self) -> TestCredential {
        self.issue_over(new_key())
    }

    /// Signs the certificate for the key of another credential, as a renewal does.
    pub fn issue_with_key_of(self, other: &TestCredential) -> TestCredential {
        self.issue_over(KeyPair::from_pem(&other.key_pem).expect("a key of ours can be read"))
    }

    fn issue_over(self, key: KeyPair) -> TestCredential {
        let certname = self.certname.clone();
        let (cert, serial) = self.signed(&key);
        TestCredential {
            certname,
            cert_pem: cert.pem(),
            key_pem: key.serialize_pem(),
            cert_der: cert.der().to_vec(),
            intermediates_pem: String::new(),
            serial,
        }
    }

    /// Makes it a certificate that no server may present.
    pub fn for_clients_alone(mut self) -> Self {
        self.params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self
    }

    fn signed(mut self, key: &impl PublicKeyData) -> (Certificate, u64) {
        if self.san {
            let name = self.certname.as_str().try_into();
            // A certname that is not an IA5 string gets no alternative name, only the CN.
            if let Ok(name) = name {
                self.params
                    .subject_alt_names
                    .insert(0, SanType::DnsName(name));
            }
        } else {
            self.params.subject_alt_names.clear();
        }
        let mut state = self.ca.state();
        // Serials 1 and 2 belong to the CAs.
        state.serial += 1;
        let serial = state.serial + INTERMEDIATE_SERIAL;
        self.params.serial_number = Some(SerialNumber::from(serial));
        let issuing = state.issuing();
        let in_utf8 = issuing.in_utf8.as_ref().filter(|_| self.issuer_in_utf8);
        let issuer = in_utf8.unwrap_or(&issuing.issuer);
        let certificate = self
            .params
            .signed_by(key, issuer)
            .expect("parameters in a test can be signed");
        (certificate, serial)
    }
}

/// Writes a file with this mode by replacing it, so that a reader sees the old or the new text.
pub(crate) fn write_file(path: &Path, text: &str, mode: u32) {
    let fresh = path.with_extension("new");
    let write = || {
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(mode)
            .open(&fresh)?;
        file.write_all(text.as_bytes())?;
        fs::rename(&fresh, path)
    };
    write()
        .unwrap_or_else(|error: std::io::Error| panic!("cannot write {}: {error}", path.display()));
    set_mode(path, mode);
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .unwrap_or_else(|error| panic!("cannot set the mode of {}: {error}", path.display()));
}

fn certificate_pem(der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
}

/// The DER of every PEM block with this label.
pub(crate) fn pem_blocks(pem: &str, label: &str) -> Vec<Vec<u8>> {
    use rustls_pki_types::{CertificateDer, CertificateRevocationListDer, pem::PemObject};
    match label {
        "CERTIFICATE" => CertificateDer::pem_slice_iter(pem.as_bytes())
            .filter_map(|block| Some(block.ok()?.to_vec()))
            .collect(),
        _ => CertificateRevocationListDer::pem_slice_iter(pem.as_bytes())
            .filter_map(|block| Some(block.ok()?.as_ref().to_vec()))
            .collect(),
    }
}

fn common_name(name: &str) -> DistinguishedName {
    let mut subject = DistinguishedName::new();
    subject.push(DnType::CommonName, name);
    subject
}

/// A DNS name or an IP address, in the form that is needed to sign it again.
fn alternative_name(name: &GeneralName<'_>) -> Option<SanType> {
    match name {
        GeneralName::DNSName(name) => (*name).try_into().ok().map(SanType::DnsName),
        GeneralName::IPAddress(bytes) => {
            let v4 = <[u8; 4]>::try_from(*bytes).map(IpAddr::from);
            let address = v4.or_else(|_| <[u8; 16]>::try_from(*bytes).map(IpAddr::from));
            address.ok().map(SanType::IpAddress)
        }
        _ => None,
    }
}

fn utf8_extension(oid: &[u64], value: &str) -> CustomExtension {
    let length = u8::try_from(value.len())
        .ok()
        .filter(|n| *n < 0x80)
        .expect("an extension in a test is short");
    let mut der = vec![0x0c, length];
    der.extend_from_slice(value.as_bytes());
    CustomExtension::from_oid_content(oid, der)
}

fn new_key() -> KeyPair {
    KeyPair::generate().expect("P-256 keys can be made")
}

fn now() -> OffsetDateTime {
    SystemTime::now().into()
}

/// Serial number of the intermediate, which the root assigns.
const INTERMEDIATE_SERIAL: u64 = 2;
/// The prefix of the name of every CA that signs agents.
const ISSUING: &str = "Puppet CA: ";
/// The OID arc of Puppet.
const PUPPET: &[u64] = &[1, 3, 6, 1, 4, 1, 34380];
/// First serial number of the certificates that were never issued.
const STRANGERS: u64 = 1 << 40;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crl_numbers_rise_with_each_revocation() {
        let ca = Ca::new();
        let (one, two) = (ca.agent("one"), ca.agent("two"));
        assert_ne!(one.serial, two.serial);
        assert_eq!(ca.crl_number(), 0);
        ca.revoke(&one);
        ca.revoke(&two);
        assert_eq!(ca.crl_number(), 2);
        let lists = pem_blocks(&ca.crl_pem(), "X509 CRL");
        assert_eq!(lists.len(), 2, "intermediate and root");
        let revoked: Vec<u64> = revoked_serials(&lists[0]);
        assert_eq!(revoked, [one.serial, two.serial]);
        assert!(revoked_serials(&lists[1]).is_empty());
    }

    #[test]
    fn an_ssldir_has_the_agents_layout_and_a_private_key() {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Ca::new().write_ssldir(directory.path(), "puppet");
        let key = directory.path().join("private_keys/puppet.pem");
        assert_eq!(
            fs::metadata(key)
                .expect("the key is there")
                .permissions()
                .mode()
                & 0o777,
            0o640
        );
        for name in ["certs/ca.pem", "certs/puppet.pem", "crl.pem"] {
            assert!(directory.path().join(name).is_file(), "{name}");
        }
    }

    fn revoked_serials(der: &[u8]) -> Vec<u64> {
        let (_, crl) = x509_parser::parse_x509_crl(der).expect("a CRL of ours parses");
        crl.iter_revoked_certificates()
            .map(|entry| {
                entry
                    .serial()
                    .to_u64_digits()
                    .first()
                    .copied()
                    .unwrap_or_default()
            })
            .collect()
    }
}
