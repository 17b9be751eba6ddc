//! Finds the admin socket or the access log in a file, even if the file has errors.

use std::path::PathBuf;

use toml::de::{DeTable, DeValue};

/// The admin socket of a proxy that runs with this file.
///
/// Other settings are not checked: the commands that query a running proxy must be able to reach it while its file has
/// errors. If the file does not set the socket or cannot be parsed, the default is returned.
#[must_use]
pub fn admin_socket(text: &str) -> PathBuf {
    absolute_path(text, "admin", "socket")
        .unwrap_or_else(|| admin::settings::AdminSettings::default().socket)
}

/// The file of the access log, if it is a file. Other settings are not checked.
#[must_use]
pub fn access_log_file(text: &str) -> Option<PathBuf> {
    absolute_path(text, "access_log", "path")
}

/// The value of `[table] key` if it is an absolute path.
fn absolute_path(text: &str, table: &str, key: &str) -> Option<PathBuf> {
    let (root, _errors) = DeTable::parse_recoverable(text);
    let DeValue::Table(table) = root.get_ref().get(table)?.get_ref() else {
        return None;
    };
    match table.get(key)?.get_ref() {
        DeValue::String(path) if path.starts_with('/') => Some(PathBuf::from(&**path)),
        _ => None,
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

    #[test]
    fn the_access_log_is_a_file_or_not() {
        let file = |text| access_log_file(text).map(|path| path.display().to_string());
        assert_eq!(
            file("[access_log]\npath = \"/var/log/p.log\""),
            Some("/var/log/p.log".to_owned())
        );
        assert_eq!(file("[access_log]\npath = \"journal\""), None);
        assert_eq!(file(""), None);
    }
}
