//! Why a certificate of the proxy was not renewed, and what the operator can do.

use std::{net::IpAddr, path::Path, sync::Arc};

use config::CaOptions;
use http::StatusCode;

use crate::{
    certificates::{of_ssldir, renewal_by_hand},
    own_renewal::chain_file::ChainFileError,
};

/// Why a certificate was not renewed.
#[derive(Debug, thiserror::Error)]
pub enum RenewalFailure {
    /// The file cannot be replaced. Either the CA was not asked, or its response is lost.
    #[error(transparent)]
    File(#[from] ChainFileError),
    /// The proxy does not renew such a certificate.
    #[error("the proxy does not renew it: {0}")]
    NotRenewable(&'static str),
    /// No response of the CA arrived.
    #[error("{0}")]
    Unreached(String),
    /// The CA has no such endpoint.
    #[error(
        "the CA server {member} answered 404: it is older than Puppet Server 8.2.1, or its allow-auto-renewal is false"
    )]
    NotSupported {
        /// The CA server.
        member: Arc<str>,
    },
    /// The CA answered with another status.
    #[error("the CA server {member} answered {status} ({text})")]
    Refused {
        /// The CA server.
        member: Arc<str>,
        /// Status code.
        status: StatusCode,
        /// The beginning of the response text.
        text: String,
    },
    /// The response is not a usable renewed certificate.
    #[error("the answer of the CA server {member} is not used: {why}")]
    Unusable {
        /// The CA server.
        member: Arc<str>,
        /// What is wrong with the response.
        why: String,
    },
    /// The rules for changed files refuse the renewed certificate.
    #[error("the renewed certificate is refused: {0}")]
    NotActivated(String),
}

impl From<String> for RenewalFailure {
    fn from(why: String) -> Self {
        Self::NotActivated(why)
    }
}

impl RenewalFailure {
    /// The reason and what to do, for the event and the alarm.
    pub(crate) fn message(&self, chain: &Path, names: &[String], ca: &CaOptions) -> String {
        let first = match self {
            Self::File(error) => error.remedy(),
            Self::NotSupported { .. } => {
                return format!(
                    "the CA cannot renew it: {self}; set `allow-auto-renewal: true` on the CA server, or request a new certificate: {}",
                    request_command(chain, names, ca)
                );
            }
            Self::Refused { status, .. }
                if matches!(*status, StatusCode::BAD_REQUEST | StatusCode::FORBIDDEN) =>
            {
                "on the CA server, auth.conf must allow every certificate to request certificate_renewal, and allow-header-cert-info must be false"
                    .to_owned()
            }
            Self::Unreached(_) | Self::Refused { .. } => "the proxy tries again".to_owned(),
            Self::NotRenewable(_) | Self::Unusable { .. } | Self::NotActivated(_) => {
                return format!("its renewal failed: {self}; {}", renewal_by_hand(chain, ca));
            }
        };
        format!(
            "its renewal failed: {self}; {first}; otherwise {}",
            renewal_by_hand(chain, ca)
        )
    }
}

/// The command that requests a new certificate with these names. The new certificate needs another certname, because the CA
/// signs only one certificate for a certname, and cleaning the present certificate would revoke it.
fn request_command(chain: &Path, names: &[String], ca: &CaOptions) -> String {
    let spelled = |name: &String| match name.parse::<IpAddr>() {
        Ok(_) => format!("IP:{name}"),
        Err(_) => name.clone(),
    };
    let names: Vec<_> = names.iter().map(spelled).collect();
    let ssldir = of_ssldir(chain).map_or_else(
        || "DIRECTORY".to_owned(),
        |(ssldir, _)| ssldir.display().to_string(),
    );
    format!(
        "`puppet ssl bootstrap --ssldir {ssldir} --certname NEW_CERTNAME --dns_alt_names {}{ca}`",
        names.join(",")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_says_which_command_to_run() {
        let in_ssldir = Path::new("/etc/proscenium/ssl/certs/puppet.example.com.pem");
        let elsewhere = Path::new("/etc/pki/puppet.pem");
        let names = ["puppet".to_owned(), "192.0.2.5".to_owned()];
        let member: Arc<str> = "ca:8140".into();
        let renew = "`puppet ssl bootstrap --hostcert_renewal_interval 90d --ssldir /etc/proscenium/ssl --certname puppet.example.com`";
        let refused = |status| RenewalFailure::Refused {
            member: Arc::clone(&member),
            status,
            text: "no".to_owned(),
        };
        let unreached = || RenewalFailure::Unreached("no answer".to_owned());
        let not_supported = || RenewalFailure::NotSupported {
            member: Arc::clone(&member),
        };
        for (failure, chain, words) in [
            (
                unreached(),
                in_ssldir,
                &["no answer", "tries again", renew][..],
            ),
            (unreached(), elsewhere, &["replace both files"]),
            (
                refused(StatusCode::FORBIDDEN),
                in_ssldir,
                &["403", "auth.conf", renew],
            ),
            (
                refused(StatusCode::BAD_REQUEST),
                in_ssldir,
                &["400", "allow-header-cert-info"],
            ),
            (
                refused(StatusCode::SERVICE_UNAVAILABLE),
                in_ssldir,
                &["503", "tries again", renew],
            ),
            (
                not_supported(),
                in_ssldir,
                &[
                    "8.2.1",
                    "`puppet ssl bootstrap --ssldir /etc/proscenium/ssl --certname NEW_CERTNAME --dns_alt_names puppet,IP:192.0.2.5`",
                ],
            ),
            (not_supported(), elsewhere, &["--ssldir DIRECTORY"]),
            (
                RenewalFailure::NotRenewable("it has rights"),
                in_ssldir,
                &["it has rights", renew],
            ),
            (
                RenewalFailure::from("it lacks names".to_owned()),
                in_ssldir,
                &["it lacks names", renew],
            ),
        ] {
            let message = failure.message(chain, &names, &CaOptions::default());
            for word in words {
                assert!(message.contains(word), "{word}: {message}");
            }
        }
    }
}
