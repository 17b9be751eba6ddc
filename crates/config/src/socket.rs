//! Finds the admin socket in a file, even if the file has errors.

use std::path::PathBuf;

use toml::de::{DeTable, DeValue};

/// The admin socket of a proxy that runs with this file.
///
/// Other settings are not checked: the commands that query a running proxy must be able to reach it while its file has
/// errors. If the file does not set the socket or cannot be parsed, the default is returned.
#[must_use]
pub fn admin_socket(text: &str) -> PathBuf {
    let (table, _errors) = DeTable::parse_recoverable(text);
    let socket = match table.get_ref().get("admin").map(|admin| admin.get_ref()) {
        Some(DeValue::Table(admin)) => admin.get("socket").map(|socket| socket.get_ref()),
        _ => None,
    };
    match socket {
        Some(DeValue::String(path)) if path.starts_with('/') => PathBuf::from(&**path),
        _ => admin::settings::AdminSettings::default().socket,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_found_in_a_file_with_errors() {
        let default = "/run/proscenium/admin.sock";
        for (text, expected) in [
            ("", default),
            ("[admin]\nsocket = \"/run/p.sock\"", "/run/p.sock"),
            (
                "admin.socket = '/run/p.sock'\n[pools.ca]\nnumbers = 1",
                "/run/p.sock",
            ),
            (
                "[pools.ca]\nmembers = [\"a:1\",\n[admin]\nsocket = \"/run/p.sock\"",
                default,
            ),
            (
                "[pools.ca]\nmembers = oops\n[admin]\nsocket = \"/run/p.sock\"",
                "/run/p.sock",
            ),
            ("[admin]\nsocket = 7", default),
            ("[admin]\nsocket = \"relative\"", default),
            ("admin = true", default),
        ] {
            assert_eq!(admin_socket(text), PathBuf::from(expected), "{text}");
        }
    }
}
