//! The options by which Puppet's commands find the CA server.

use std::fmt;

/// The options of Puppet's commands that name the CA server, each after a space; empty if its address is unknown. Without
/// them, an agent sends its request to `server` of its puppet.conf, which may be this proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CaOptions(String);

impl CaOptions {
    /// The options for an address with a port. There are none for a Unix socket.
    #[must_use]
    pub fn at(address: &str) -> Self {
        let Some((host, port)) = address.rsplit_once(':').filter(|(host, _)| *host != "unix")
        else {
            return Self::default();
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Self(match port {
            "8140" => format!(" --ca_server {host}"),
            port => format!(" --ca_server {host} --ca_port {port}"),
        })
    }
}

impl fmt::Display for CaOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_name_host_and_port() {
        for (address, expected) in [
            ("ca.example.com:8140", " --ca_server ca.example.com"),
            ("127.0.0.1:8141", " --ca_server 127.0.0.1 --ca_port 8141"),
            ("[2001:db8::1]:8140", " --ca_server 2001:db8::1"),
            ("unix:/run/ca.sock", ""),
            ("", ""),
        ] {
            assert_eq!(CaOptions::at(address).to_string(), expected);
        }
    }
}
