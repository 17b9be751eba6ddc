//! A CA whose only purpose is that compilers accept the proxy and no other client.

use std::{
    fs::{self, DirBuilder},
    io::{self, ErrorKind},
    os::unix::fs::DirBuilderExt,
    path::Path,
};

use anyhow::{Context, bail};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer,
    DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, KeyIdMethod, KeyPair,
    KeyUsagePurpose, SerialNumber,
};
use time::{Duration, OffsetDateTime};

use crate::new_file::{self, Existing};

/// How long the CA, its CRL and the proxy's certificate are valid. All end together, so that one date has to be watched.
const VALIDITY: Duration = Duration::days(3650);
/// How far the clock of a compiler may be behind that of this machine.
const CLOCK_TOLERANCE: Duration = Duration::days(1);
/// The name in the proxy's certificate. Compilers read the names of agents from headers, so no rule refers to it.
const PROXY_NAME: &str = "proscenium";

/// Names of the files in the directory.
pub(super) mod names {
    /// The certificate of the CA, for compilers.
    pub(in super::super) use doctor::CA_FILE as CA;
    /// The CRL of the CA, for compilers.
    pub(in super::super) use doctor::CRL_FILE as CRL;
    /// The key of the CA. No machine needs it until the certificate is renewed.
    pub(in super::super) const CA_KEY: &str = "proxy-ca.key";
    /// The certificate that the proxy presents to compilers.
    pub(in super::super) const CERTIFICATE: &str = "to-compilers.pem";
    /// The key of that certificate.
    pub(in super::super) const KEY: &str = "to-compilers.key";
}

/// Mode of private keys.
const PRIVATE: u32 = 0o600;
/// Mode of the other files, which are copied to compilers.
const PUBLIC: u32 = 0o644;

/// The files of a new CA, as PEM.
#[derive(Debug)]
pub(super) struct CompilerCa {
    /// When the CA, the CRL and the certificate become valid.
    pub(super) not_before: OffsetDateTime,
    /// When they expire.
    pub(super) not_after: OffsetDateTime,
    /// Name, mode and text of each file.
    files: Vec<(String, u32, String)>,
}

impl CompilerCa {
    /// Creates the CA, its CRL and the proxy's certificate. `host` distinguishes this CA from those of other proxies.
    ///
    /// # Errors
    /// The random number generator fails.
    pub(super) fn create(host: &str, now: OffsetDateTime) -> anyhow::Result<Self> {
        // Certificates have no fractions of seconds.
        let now = now.replace_nanosecond(0)?;
        let (not_before, not_after) = (now - CLOCK_TOLERANCE, now + VALIDITY);
        let dated = |name: &str, names: Vec<String>| -> Result<_, rcgen::Error> {
            let mut params = CertificateParams::new(names)?;
            params.distinguished_name = DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, name);
            params.not_before = not_before;
            params.not_after = not_after;
            params.use_authority_key_identifier_extension = true;
            Ok(params)
        };
        let name = format!("Proscenium CA for compilers: {host} {}", now.date());
        let mut params = dated(&name, Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;

        let mut params = dated(PROXY_NAME, vec![PROXY_NAME.to_owned()])?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &ca)?;

        let crl = CertificateRevocationListParams {
            this_update: not_before,
            next_update: not_after,
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: Vec::new(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let crl = crl.signed_by(&ca)?.pem()?;
        let files = [
            (names::CA, PUBLIC, ca.pem()),
            (names::CRL, PUBLIC, crl),
            (names::CA_KEY, PRIVATE, ca.key().serialize_pem()),
            (names::CERTIFICATE, PUBLIC, certificate.pem()),
            (names::KEY, PRIVATE, key.serialize_pem()),
        ];
        let files = files.map(|(name, mode, text)| (name.to_owned(), mode, text));
        Ok(Self {
            not_before,
            not_after,
            files: files.into(),
        })
    }

    /// Adds a file that is not secret.
    pub(super) fn add(&mut self, name: &str, text: String) {
        self.files.push((name.to_owned(), PUBLIC, text));
    }

    pub(super) fn names(&self) -> Vec<&str> {
        self.files.iter().map(|(name, ..)| name.as_str()).collect()
    }

    /// Writes all files into a new directory, or none.
    ///
    /// # Errors
    /// The directory exists, or it cannot be written.
    pub(super) fn write(&self, directory: &Path) -> anyhow::Result<()> {
        let shown = directory.display();
        if directory.symlink_metadata().is_ok() {
            bail!(
                "{shown} exists, and a CA in it may be in use: name a directory that does not exist"
            );
        }
        let fresh = new_file::beside(directory);
        let written = self.write_new(&fresh).and_then(|()| {
            // An empty directory that was created meanwhile is replaced; one with files is an error.
            fs::rename(&fresh, directory)
        });
        if written.is_err() {
            let _ = fs::remove_dir_all(&fresh);
        }
        written.with_context(|| {
            match directory
                .parent()
                .is_some_and(|parent| parent == Path::new("") || parent.is_dir())
            {
                true => format!("cannot create {shown}"),
                false => format!("cannot create {shown}; create the directory above it first"),
            }
        })
    }

    fn write_new(&self, directory: &Path) -> io::Result<()> {
        match DirBuilder::new().mode(0o700).create(directory) {
            // A directory that an earlier process with the same ID has left.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                fs::remove_dir_all(directory)?;
                DirBuilder::new().mode(0o700).create(directory)?;
            }
            created => created?,
        }
        for (name, mode, text) in &self.files {
            new_file::write(&directory.join(name), text, *mode, Existing::Keep)?;
        }
        Ok(())
    }
}
