//! Other front ends on this machine, configured for Puppet as their manuals and Puppet's recommend.

use std::path::Path;

use rustix::process::Signal;

use super::front::Maker;
use crate::workspace;

/// Another front end.
pub(super) struct Peer {
    pub(super) name: &'static str,
    pub(super) program: &'static str,
    pub(super) http2: bool,
    /// The signal that makes it reload its files.
    pub(super) reload: Signal,
    pub(super) arguments: fn(&Path, &Path) -> Vec<String>,
    pub(super) config: fn(&Places<'_>) -> String,
}

/// The directory and addresses for a peer's configuration.
pub(super) struct Places<'a> {
    pub(super) directory: &'a Path,
    pub(super) port: u16,
    pub(super) ca_server: String,
    pub(super) compilers: [String; 2],
}

/// The peers that are installed.
pub(super) fn installed() -> Vec<Maker> {
    let peers = [&NGINX, &HAPROXY, &APACHE];
    let there = peers.into_iter().filter(|peer| {
        let there = workspace::is_installed(peer.program);
        if !there {
            println!("{} is not installed", peer.name);
        }
        there
    });
    there.map(Maker::Peer).collect()
}

static NGINX: Peer = Peer {
    name: "nginx",
    program: "nginx",
    http2: true,
    reload: Signal::HUP,
    arguments: |config, place| {
        let (config, place) = (config.display(), place.display());
        vec![
            "-c".to_owned(),
            config.to_string(),
            "-p".to_owned(),
            place.to_string(),
            "-e".to_owned(),
            format!("{place}/error"),
        ]
    },
    config: |places| {
        let Places {
            directory,
            port,
            ca_server,
            compilers: [first, second],
        } = places;
        let dir = directory.display();
        let identity = "proxy_set_header X-Client-Verify $ssl_client_verify; proxy_set_header X-Client-DN $ssl_client_s_dn; \
                        proxy_set_header X-Client-Cert $ssl_client_escaped_cert; proxy_set_header Host $http_host;";
        format!(
            "daemon off; worker_processes 1; pid {dir}/pid; error_log {dir}/error;\n\
             events {{ worker_connections 256; }}\n\
             http {{\n\
             access_log off; client_body_temp_path {dir}/a; proxy_temp_path {dir}/b; fastcgi_temp_path {dir}/c;\n\
             uwsgi_temp_path {dir}/d; scgi_temp_path {dir}/e; keepalive_timeout 300s;\n\
             upstream compilers {{ server {first}; server {second}; }}\n\
             server {{\n\
             listen 127.0.0.1:{port} ssl http2;\n\
             ssl_certificate {dir}/cert.pem; ssl_certificate_key {dir}/key.pem;\n\
             ssl_client_certificate {dir}/ca.pem; ssl_crl {dir}/crl.pem;\n\
             ssl_verify_client optional; ssl_verify_depth 3; ssl_session_cache shared:SSL:4m;\n\
             location /puppet-ca/ {{ {identity} proxy_pass http://{ca_server}; }}\n\
             location / {{ {identity} proxy_pass http://compilers; }}\n\
             }} }}\n"
        )
    },
};

static HAPROXY: Peer = Peer {
    name: "haproxy",
    program: "haproxy",
    http2: true,
    reload: Signal::USR2,
    arguments: |config, _| {
        vec![
            "-W".to_owned(),
            "-f".to_owned(),
            config.display().to_string(),
        ]
    },
    config: |places| {
        let Places {
            directory,
            port,
            ca_server,
            compilers: [first, second],
        } = places;
        let dir = directory.display();
        format!(
            "global\n  nbthread 1\n  maxconn 256\n\
             defaults\n  mode http\n  timeout connect 5s\n  timeout client 300s\n  timeout server 60s\n\
             frontend agents\n\
             \x20 bind 127.0.0.1:{port} ssl crt {dir}/both.pem ca-file {dir}/ca.pem crl-file {dir}/crl.pem verify optional alpn h2,http/1.1\n\
             \x20 http-request del-header X-Client-Verify\n  http-request del-header X-Client-DN\n  http-request del-header X-Client-Cert\n\
             \x20 http-request set-header X-Client-Verify SUCCESS if {{ ssl_c_used }} {{ ssl_c_verify 0 }}\n\
             \x20 http-request set-header X-Client-Verify NONE unless {{ ssl_c_used }}\n\
             \x20 http-request set-header X-Client-DN CN=%[ssl_c_s_dn(CN)] if {{ ssl_c_used }}\n\
             \x20 use_backend ca if {{ path_beg /puppet-ca/ }}\n  default_backend compilers\n\
             backend ca\n  server ca {ca_server}\n\
             backend compilers\n  server c1 {first}\n  server c2 {second}\n"
        )
    },
};

static APACHE: Peer = Peer {
    name: "apache",
    program: "apache2",
    http2: false,
    reload: Signal::USR1,
    arguments: |config, _| {
        vec![
            "-DFOREGROUND".to_owned(),
            "-f".to_owned(),
            config.display().to_string(),
        ]
    },
    config: |places| {
        let Places {
            directory,
            port,
            ca_server,
            compilers: [first, second],
        } = places;
        let dir = directory.display();
        let modules: String = [
            "mpm_event",
            "authz_core",
            "ssl",
            "socache_shmcb",
            "headers",
            "proxy",
            "proxy_http",
            "proxy_balancer",
            "lbmethod_byrequests",
            "slotmem_shm",
        ]
        .iter()
        .map(|name| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n"))
        .collect();
        format!(
            "ServerRoot {dir}\nPidFile {dir}/pid\nErrorLog {dir}/error\nServerName puppet\nDefaultRuntimeDir {dir}\n{modules}\
             Listen 127.0.0.1:{port}\nKeepAliveTimeout 300\nSSLSessionCache shmcb:{dir}/sessions(512000)\n\
             SSLEngine on\nSSLCertificateFile {dir}/cert.pem\nSSLCertificateKeyFile {dir}/key.pem\n\
             SSLCACertificateFile {dir}/ca.pem\nSSLCARevocationFile {dir}/crl.pem\nSSLCARevocationCheck chain\n\
             SSLVerifyClient optional\nSSLVerifyDepth 3\nSSLOptions +StdEnvVars\n\
             RequestHeader set X-Client-Verify %{{SSL_CLIENT_VERIFY}}s\nRequestHeader set X-Client-DN %{{SSL_CLIENT_S_DN}}s\n\
             RequestHeader unset X-Client-Cert\n\
             <Proxy balancer://compilers>\nBalancerMember http://{first}\nBalancerMember http://{second}\n</Proxy>\n\
             ProxyPreserveHost On\nProxyPass /puppet-ca/ http://{ca_server}/puppet-ca/\nProxyPass / balancer://compilers/\n"
        )
    },
};
