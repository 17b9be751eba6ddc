//! Files that the soak replaces while agents work: CRLs, each of which revokes one client, and the served certificate.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use testkit::wait_until;

use super::{
    Options, Plant,
    enrolled_client::EnrolledClient,
    estate::SoakEstate,
    tally::{Count, Tally},
};

/// When each file is due, and which client is revoked next.
pub(super) struct Materials<'a> {
    estate: &'a SoakEstate,
    clients: Vec<Arc<EnrolledClient>>,
    turn: usize,
    patience: Duration,
    crl_interval: Duration,
    crl_due: Instant,
    certificate_interval: Duration,
    certificate_due: Instant,
}

impl<'a> Materials<'a> {
    pub(super) fn new(
        estate: &'a SoakEstate,
        clients: Vec<Arc<EnrolledClient>>,
        options: &Options,
    ) -> Self {
        let crl_interval = Duration::from_secs_f64(options.crl_every);
        let certificate_interval = Duration::from_secs_f64(options.certificate_every);
        Self {
            estate,
            clients,
            turn: 0,
            patience: options.patience(),
            crl_interval,
            crl_due: Instant::now() + crl_interval,
            certificate_interval,
            certificate_due: Instant::now() + certificate_interval,
        }
    }

    /// Writes the files that are due, and waits until they are active.
    pub(super) fn renew_what_is_due(&mut self, tally: &Tally) {
        let now = Instant::now();
        if self.crl_due <= now {
            self.crl_due = now + self.crl_interval;
            self.swap_crl(tally);
        }
        if self.certificate_due <= now {
            self.certificate_due = now + self.certificate_interval;
            self.replace_certificate(tally);
        }
    }

    /// Waits until every revoked client has a new certificate.
    pub(super) fn wait_for_all_enrolled(&self, tally: &Tally) {
        let revoked = || {
            self.clients
                .iter()
                .find(|client| client.revoked().is_some())
        };
        // An agent notices the revocation between two requests, and needs three requests to enrol.
        let limit = self.patience * 2;
        if wait_until(limit, || revoked().is_none().then_some(())).is_none()
            && let Some(client) = revoked()
        {
            tally.miss(format!(
                "{} is revoked, and was not refused",
                client.certname
            ));
        }
    }

    fn swap_crl(&mut self, tally: &Tally) {
        let ca = &self.estate.ca;
        self.wait_for_all_enrolled(tally);
        let client = &self.clients[self.turn % self.clients.len()];
        self.turn += 1;
        let begun = Instant::now();
        let credential = client.revoke();
        match self.estate.plant {
            Some(Plant::Revocation) => drop(ca.renew_crl()),
            Some(Plant::Stop) => self.estate.proxy.terminate(),
            _ => ca.revoke(&credential),
        }
        self.estate.proxy.write_crl();
        let number = ca.crl_number().to_string();
        self.expect(CRL_ACTIVE, begun, tally, || {
            let status = self.estate.proxy.status();
            let mut crls = status["trust"]["crls"].as_array().into_iter().flatten();
            crls.any(|crl| crl["number"] == *number)
        });
        tally.count(Count::Crls);
    }

    fn replace_certificate(&self, tally: &Tally) {
        let proxy = &self.estate.proxy;
        let credential = self.estate.ca.server("puppet");
        let begun = Instant::now();
        proxy.write("ssl/private_keys/puppet.pem", &credential.key_pem, 0o640);
        proxy.write("ssl/certs/puppet.pem", &credential.cert_pem, 0o644);
        let client = proxy.client(None);
        self.expect(SHOWN, begun, tally, || {
            // Only the served certificate is checked here. Agents check whether connections are accepted.
            let shown = client.clone().forgetful().connect();
            shown.is_ok_and(|connection| {
                connection.peer_certificates().first() == Some(&credential.cert_der)
            })
        });
        tally.count(Count::Certificates);
    }

    fn expect(&self, what: &'static str, begun: Instant, tally: &Tally, met: impl Fn() -> bool) {
        let seen = wait_until(self.patience, || {
            thread::sleep(LOOK_INTERVAL);
            met().then_some(())
        });
        match seen {
            Some(()) => tally.took(what, begun.elapsed(), self.patience),
            None => tally.miss(format!("not within {:?}: {what}", self.patience)),
        }
    }
}

/// The event that is awaited after the CRL file was written.
pub(super) const CRL_ACTIVE: &str = "a CRL was active";
pub(super) const SHOWN: &str = "a new certificate was shown";
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
