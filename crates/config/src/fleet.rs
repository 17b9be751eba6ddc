//! `[fleet]`: the store that several proxies share, the certificate towards it, and its key file.

use crate::{
    binding::{Base as _, Bound as _},
    config::{Fleet, MemberTls},
    keys,
    section::Section,
    trust::Naming,
};

/// Reads `[fleet]`, if the file has it. `agents` has the credential and the trust towards clients.
pub(crate) fn fleet(
    root: &Section<'_>,
    agents: Option<&MemberTls>,
    naming: &mut Naming<'_>,
) -> Option<Fleet> {
    if !root.is_set(keys::Root::fleet) {
        return None;
    }
    let section = root.table(keys::Root::fleet);
    let mut fleet = Fleet::base();
    keys::Fleet::read(&section, &mut fleet);
    naming.fleet_keys(&section);
    if let Some(agents) = agents {
        fleet.tls = agents.clone();
    }
    let names = [keys::Fleet::certificate, keys::Fleet::key, keys::Fleet::ca];
    naming.tls(&section, names, None, &mut fleet.tls);
    Some(fleet)
}
