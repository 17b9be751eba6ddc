//! Permissions of the admin socket.

use admin::settings::AdminSettings;

/// Permissions of the admin socket if only root and the account of the proxy may use it.
const PRIVATE: u32 = 0o600;
/// Permissions if groups may use it: every account can connect, and the proxy checks the account of each connection.
const CHECKED: u32 = 0o666;

pub(crate) fn socket_mode(settings: &AdminSettings) -> u32 {
    match settings.read_group.is_some() || settings.operate_group.is_some() {
        true => CHECKED,
        false => PRIVATE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_account_can_connect_if_groups_may_use_the_socket() {
        let nothing = AdminSettings::default();
        let read = AdminSettings {
            read_group: Some("4711".to_owned()),
            ..AdminSettings::default()
        };
        assert_eq!(socket_mode(&nothing), 0o600);
        assert_eq!(socket_mode(&read), 0o666);
    }
}
