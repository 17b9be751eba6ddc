//! A simulated machine for tests. The name of a file determines what is wrong with it.

use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::OnceLock,
    time::{Duration, SystemTime},
};

use config::{
    Blob, ConfigReport, ConfigSource, Environment, LoadedConfig, LoadedMaterial, MaterialKind,
    MaterialName, MaterialReadError, MaterialReader, Overrides,
};

const DAY: Duration = Duration::from_secs(86_400);

/// Every file exists and is valid, except files whose path contains one of these words: `missing`, `denied`,
/// `world-readable`, `other` (a key that does not match the certificates), `garbage`, `empty-directory`.
pub(crate) struct Machine {
    /// Certificates in the ssldir.
    pub(crate) certnames: Vec<String>,
}

impl Machine {
    pub(crate) const fn with_agent() -> Self {
        Self {
            certnames: Vec::new(),
        }
    }

    pub(crate) fn load(
        &self,
        name: &str,
        text: &str,
        overrides: &Overrides,
    ) -> Result<LoadedConfig, ConfigReport> {
        let source = ConfigSource {
            name: name.into(),
            text: text.into(),
        };
        config::load(&source, overrides, &environment(), self)
    }
}

impl MaterialReader for Machine {
    fn certnames(&self, _ssldir: &Path) -> Vec<String> {
        self.certnames.clone()
    }

    fn read(&self, wanted: &MaterialName) -> Result<LoadedMaterial, MaterialReadError> {
        let path = wanted.path.to_string_lossy();
        let failure = |kind, message: &str| MaterialReadError {
            kind,
            message: message.into(),
            closed: None,
        };
        if path.contains("missing") {
            return Err(failure(
                ErrorKind::NotFound,
                "No such file or directory (os error 2)",
            ));
        }
        if path.contains("denied") {
            return Err(failure(
                ErrorKind::PermissionDenied,
                "Permission denied (os error 13)",
            ));
        }
        let blob = Blob {
            name: path.to_string(),
            bytes: contents(&path, wanted.kind).into_bytes(),
        };
        Ok(LoadedMaterial {
            blobs: if path.contains("empty-directory") {
                Vec::new()
            } else {
                vec![blob]
            },
            mode: match wanted.kind {
                _ if path.contains("world-readable") => 0o644,
                MaterialKind::FleetKeys => 0o600,
                _ => 0o640,
            },
            uid: 0,
            gid: 0,
            modified: Some(SystemTime::UNIX_EPOCH + 20_000 * DAY),
        })
    }
}

/// A machine with Puppet's own packages, three days after its files were written.
pub(crate) fn environment() -> Environment {
    Environment {
        ssldirs: vec![PathBuf::from(Environment::SSLDIRS[0])],
        hostname: Some("puppet.example.com".into()),
        cores: 2,
        now: Some(SystemTime::UNIX_EPOCH + 20_003 * DAY),
        ..Environment::default()
    }
}

fn contents(path: &str, kind: MaterialKind) -> String {
    let pair = pair();
    match kind {
        _ if path.contains("garbage") => "no PEM at all".into(),
        MaterialKind::Key if path.contains("other") => pair.other_key.clone(),
        _ if path.contains("world-readable") => pair.chain.clone() + &pair.key,
        MaterialKind::Key => pair.key.clone(),
        MaterialKind::Chain if path.contains("pp-cli-auth") => pair.with_extension.clone(),
        MaterialKind::Chain => pair.chain.clone(),
        MaterialKind::Ca => pair.ca.clone(),
        MaterialKind::Crl => pair.crl.clone(),
        MaterialKind::FleetKeys => pki::FleetKeys::generate().expect("random numbers"),
    }
}

struct Pair {
    chain: String,
    with_extension: String,
    key: String,
    other_key: String,
    ca: String,
    crl: String,
}

fn pair() -> &'static Pair {
    static PAIR: OnceLock<Pair> = OnceLock::new();
    PAIR.get_or_init(|| {
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut params =
            rcgen::CertificateParams::new(vec!["puppet.example.com".into()]).expect("names");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, "puppet.example.com");
        let chain = params.self_signed(&key).expect("a certificate").pem();
        // pp_cli_auth = UTF8String "true"
        let oid = [1, 3, 6, 1, 4, 1, 34380, 1, 3, 39];
        let mut value = vec![0x0c, 4];
        value.extend(b"true");
        params.custom_extensions = vec![rcgen::CustomExtension::from_oid_content(&oid, value)];
        let (ca, crl) = authority();
        Pair {
            ca,
            crl,
            with_extension: params.self_signed(&key).expect("a certificate").pem(),
            chain,
            key: key.serialize_pem(),
            other_key: rcgen::KeyPair::generate().expect("a key").serialize_pem(),
        }
    })
}

/// A CA and its CRL, both valid.
fn authority() -> (String, String) {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, "Puppet CA: example");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.key_usages = vec![
        rcgen::KeyUsagePurpose::KeyCertSign,
        rcgen::KeyUsagePurpose::CrlSign,
    ];
    let key = rcgen::KeyPair::generate().expect("a key");
    let ca = params.self_signed(&key).expect("a certificate").pem();
    let list = rcgen::CertificateRevocationListParams {
        this_update: rcgen::date_time_ymd(2020, 1, 1),
        next_update: rcgen::date_time_ymd(2040, 1, 1),
        crl_number: rcgen::SerialNumber::from(1_u64),
        issuing_distribution_point: None,
        revoked_certs: Vec::new(),
        key_identifier_method: rcgen::KeyIdMethod::Sha256,
    };
    let list = list.signed_by(&rcgen::Issuer::new(params, key));
    (ca, list.expect("a list").pem().expect("PEM"))
}
