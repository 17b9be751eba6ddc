//! Finds the admin socket or the access log in a file, even if the file has errors.

use std::path::PathBuf;

use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// The admin socket of a proxy that runs with this file. `None` if the file cannot be parsed and no socket is found in it.
///
/// Other settings are not checked: the commands that query a running proxy must be able to reach it while its file has
/// errors. If the file does not set the socket, the default is returned.
#[must_use]
pub fn admin_socket(text: &str) -> Option<PathBuf> {
    let (root, errors) = DeTable::parse_recoverable(text);
    let admin = root.get_ref().get("admin").map(Spanned::get_ref);
    let configured = match admin {
        Some(DeValue::Table(admin)) => absolute_path(admin, "socket"),
        _ => None,
    };
    let default = || {
        let is_parsed = errors.is_empty();
        is_parsed.then(|| admin::settings::AdminSettings::default().socket)
    };
    configured.or_else(default)
}

/// The access log that commands can read: the first file in format `json`, or else the first in format `combined`. Other
/// settings are not checked.
#[must_use]
pub fn access_log_file(text: &str) -> Option<PathBuf> {
    let (root, _errors) = DeTable::parse_recoverable(text);
    let logs = match root.get_ref().get("access_log")?.get_ref() {
        DeValue::Array(logs) => logs.iter().map(Spanned::get_ref).collect(),
        one => vec![one],
    };
    let files = logs.into_iter().filter_map(|log| {
        let DeValue::Table(log) = log else {
            return None;
        };
        let rank = match log.get("format").map(Spanned::get_ref) {
            None => 1,
            Some(DeValue::String(format)) if format == "combined" => 1,
            Some(DeValue::String(format)) if format == "json" => 0,
            Some(_) => return None,
        };
        Some((rank, absolute_path(log, "path")?))
    });
    files.min_by_key(|(rank, _)| *rank).map(|(_, path)| path)
}

/// The state directory that the file sets. Other settings are not checked.
#[must_use]
pub fn state_directory(text: &str) -> Option<PathBuf> {
    let (root, _errors) = DeTable::parse_recoverable(text);
    match root.get_ref().get("state")?.get_ref() {
        DeValue::Table(state) => absolute_path(state, "directory"),
        _ => None,
    }
}

/// The value of `key` if it is an absolute path.
fn absolute_path(table: &DeTable<'_>, key: &str) -> Option<PathBuf> {
    match table.get(key)?.get_ref() {
        DeValue::String(path) if path.starts_with('/') => Some(PathBuf::from(&**path)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_state_directory_is_found_if_it_is_set() {
        for (text, expected) in [
            ("", None),
            ("oops = [\n[state]\ndirectory = \"/s\"", None),
            ("[state]\ndirectory = \"/s\"\noops = ", Some("/s")),
        ] {
            let found = state_directory(text);
            assert_eq!(found, expected.map(PathBuf::from), "{text}");
        }
    }

    #[test]
    fn the_socket_is_found_in_a_file_with_errors() {
        let default = Some("/run/proscenium/admin.sock");
        let other = Some("/run/p.sock");
        for (text, expected) in [
            ("", default),
            ("[admin]\nsocket = \"/run/p.sock\"", other),
            (
                "admin.socket = '/run/p.sock'\n[pools.ca]\nnumbers = 1",
                other,
            ),
            // What is after the error may be the socket.
            (
                "[pools.ca]\nmembers = [\"a:1\",\n[admin]\nsocket = \"/run/p.sock\"",
                None,
            ),
            (
                "[pools.ca]\nmembers = oops\n[admin]\nsocket = \"/run/p.sock\"",
                other,
            ),
            ("[admin]\nsocket = 7", default),
            ("[admin]\nsocket = \"relative\"", default),
            ("admin = true", default),
        ] {
            let found = admin_socket(text);
            assert_eq!(found.as_deref(), expected.map(Path::new), "{text}");
        }
    }

    #[test]
    fn the_access_log_is_the_first_file_that_can_be_read() {
        let log = |path: &str, format: &str| {
            format!("[[access_log]]\npath = \"{path}\"\nformat = '{format}'\n")
        };
        for (text, expected) in [
            ("[access_log]\npath = \"/p.log\"".to_owned(), Some("/p.log")),
            ("[access_log]\npath = \"journal\"".to_owned(), None),
            (String::new(), None),
            (log("/apache.log", "%h %t \"%r\" %>s"), None),
            (
                log("/apache.log", "%h %>s") + &log("/combined.log", "combined"),
                Some("/combined.log"),
            ),
            (
                log("journal", "json") + "[[access_log]]\npath = \"/default.log\"\n",
                Some("/default.log"),
            ),
            (
                log("/combined.log", "combined") + &log("/json.log", "json") + &log("/2", "json"),
                Some("/json.log"),
            ),
            (
                log("/json.log", "json") + "[pools.ca]\nmembers = oops",
                Some("/json.log"),
            ),
            ("access_log = [1, {}]".to_owned(), None),
        ] {
            let expected = expected.map(PathBuf::from);
            assert_eq!(access_log_file(&text), expected, "{text}");
        }
    }
}
