//! A verified chain as data: its links for revocation and blocks, its anchor, and how long the verdict is valid.

use std::sync::Arc;

use identity::Agent;
use rustls_pki_types::UnixTime;

use crate::bundle::{Ca, Issuer};
use crate::certificate::Certificate;
use crate::fingerprint::{Fingerprint, fingerprint_of};

/// A verified path whose agent is not yet known.
pub(crate) struct Path {
    pub(crate) links: Arc<[Link]>,
    /// The certificates between the leaf and the anchor, the leaf's issuer first.
    pub(crate) intermediates: Arc<[Arc<[u8]>]>,
    pub(crate) anchor: Anchor,
    pub(crate) latest_begin: UnixTime,
    pub(crate) earliest_end: UnixTime,
    pub(crate) good_until: UnixTime,
}

/// One certificate on a path, for revocation checks.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) issuer: Arc<Issuer>,
    /// The serial in its shortest form.
    pub(crate) serial: Box<[u8]>,
    /// SHA-256 of the certificate.
    pub(crate) fingerprint: [u8; 32],
}

/// The CA at which a path ends. It is used for blocks. No CRL is looked up for it.
#[derive(Clone, Debug)]
pub(crate) struct Anchor {
    pub(crate) issuer: Arc<Issuer>,
    /// The serial of a root in its own certificate. None if another CA issued the certificate, because the bundle does not have
    /// that CA.
    pub(crate) serial: Option<Box<[u8]>>,
    pub(crate) fingerprint: [u8; 32],
}

/// A verified path with the data that is needed to verify it again.
#[derive(Debug)]
pub struct VerifiedChain {
    pub(crate) links: Arc<[Link]>,
    pub(crate) anchor: Anchor,
    /// The latest start of validity on the path, including the anchor. It is needed because a clock may be set back.
    pub(crate) latest_begin: UnixTime,
    /// The earliest end of validity on the path.
    pub(crate) earliest_end: UnixTime,
    /// The earliest end of validity, or an earlier time at which an expired CRL causes a refusal.
    pub(crate) good_until: UnixTime,
    /// Digest of the bundle and policy with which the path was built.
    pub(crate) paths: Fingerprint,
    pub(crate) agent: Arc<Agent>,
}

impl VerifiedChain {
    /// When the first certificate on the path expires.
    pub fn earliest_end(&self) -> UnixTime {
        self.earliest_end
    }

    /// SHA-256 of the client's own certificate. Every path of a client has one, so this is never `None`.
    pub fn fingerprint(&self) -> Option<&[u8; 32]> {
        self.links.last().map(|own| &own.fingerprint)
    }

    /// The CAs on the path.
    pub(crate) fn cas(&self) -> impl Iterator<Item = Fingerprint> {
        let links = self.links.iter().map(|link| link.issuer.id);
        links.chain([self.anchor.issuer.id])
    }

    /// The verified agent.
    pub fn agent(&self) -> &Arc<Agent> {
        &self.agent
    }
}

impl Link {
    pub(crate) fn new(issuer: Arc<Issuer>, certificate: &Certificate<'_>, der: &[u8]) -> Self {
        Self {
            issuer,
            serial: certificate.serial.into(),
            fingerprint: fingerprint_of(der),
        }
    }
}

impl Anchor {
    pub(crate) fn of(ca: &Ca) -> Self {
        let is_its_own = ca.issued_by == ca.issuer.name;
        let read = Certificate::read(&ca.der).ok().filter(|_| is_its_own);
        Self {
            issuer: Arc::clone(&ca.issuer),
            serial: read.map(|own| own.serial.into()),
            fingerprint: fingerprint_of(&ca.der),
        }
    }
}
