//! "CRL signature failure": a CRL file contains the CRLs of a former CA and of the present CA, which has the same name.
//! Apache refuses every client. The proxy uses each CRL for the CA whose key signed it.

use std::{
    fs,
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Stdio},
};

use tempfile::TempDir;
use testkit::{Ca, Client, HeldPort, StandIn, TestCredential, Tool, wait_until};

use crate::support::{self, LIMIT, paths::CATALOG};

const CA_NAME: &str = "/CN=Puppet CA: puppet.example.com";

#[test]
fn a_crl_from_a_former_ca_of_the_same_name_makes_apache_refuse_every_client() {
    // Checked before openssl, which many tests need: if both programs are missing, the skipped test is listed under
    // Apache.
    if Tool::Apache.command().is_none() {
        return;
    }
    let Some(cas) = TwoCas::new() else {
        return;
    };
    let apache = |crl: &str| Apache::start(&cas, crl);
    let agent = cas.agent("web01");
    // With the CRL of the CA alone Apache accepts the agent, and answers 404.
    let right = apache("new/crl.pem");
    let client = right.client(&cas, &agent);
    let answer = client.try_request("GET", CATALOG, &[], b"");
    assert!(matches!(answer.expect("an answer").status, 403 | 404));
    // With both CRLs, as with the old one only, Apache uses the newer CRL of this name.
    for crl in ["old/crl.pem", "both.pem"] {
        let wrong = apache(crl);
        let answer = wrong
            .client(&cas, &agent)
            .try_request("GET", CATALOG, &[], b"");
        assert!(answer.is_err(), "{crl}: {answer:?}");
        let log = wrong.log();
        let output = wait_until(LIMIT, || {
            let text = fs::read_to_string(&log).unwrap_or_default();
            text.contains("CRL signature failure").then_some(())
        });
        assert!(
            output.is_some(),
            "{}",
            fs::read_to_string(&log).unwrap_or_default()
        );
    }
}

#[test]
fn a_crl_from_a_former_ca_of_the_same_name_changes_nothing_here_and_is_logged() {
    let Some(cas) = TwoCas::new() else {
        return;
    };
    for crl in ["both.pem", "crl"] {
        let ca = Ca::new();
        let member = StandIn::builder("m").ca(&ca).start();
        let address = member.address();
        let file = |name: &str| cas.path(name).display().to_string();
        let proxy = support::proxy(&ca)
            .whole(&format!(
                "[listeners.agents]\naddress = \"127.0.0.1:{{port}}\"\n\
                 [tls]\ncertificates = [{{ chain = {:?}, key = {:?} }}]\n\
                 [trust]\nca = {:?}\ncrl = {:?}\ndepth = 0\n\
                 [pools.ca]\nscheme = \"http\"\nmembers = [{address:?}]\n\
                 [pools.compilers]\nscheme = \"http\"\nmembers = [{address:?}]\n\
                 [admin]\nsocket = \"{{dir}}/admin.sock\"\n",
                file("new/web01.pem"),
                file("new/web01.key"),
                file("new/ca.pem"),
                file(crl),
            ))
            .start();
        proxy.wait_for_members(&["ca", "compilers"]);
        proxy.wait_for_event(
            "is not signed by the CA CN=Puppet CA: puppet.example.com of the bundle but by another key of a CA with \
             that name (was the CA recreated?)",
        );
        let bundle = fs::read_to_string(cas.path("new/ca.pem")).expect("a CA");
        let ask = |certname: &str| {
            let agent = cas.agent(certname);
            let client = Client::new(proxy.address(), &bundle, Some(&agent));
            let target = CATALOG.replace("web01", certname);
            client.request("GET", &target, &[], b"").status
        };
        // The CA's own CRL is used: it revokes the second agent.
        assert_eq!((ask("web01"), ask("web02")), (200, 403), "{crl}");
    }
}

/// Two CAs with the same name, agents of the newer one, and the CRLs of both. OpenSSL makes them, because CRLs of that
/// time do not name the key of their CA (RFC 5280, 5.2.1). A modern CRL would be matched by its key identifier.
struct TwoCas(TempDir);

impl TwoCas {
    fn new() -> Option<Self> {
        Tool::Openssl.command()?;
        let cas = Self(TempDir::new().expect("a directory"));
        for (name, number) in [("new", "01"), ("old", "05")] {
            cas.write(&format!("{name}/index.txt"), "");
            cas.write(&format!("{name}/serial"), "01");
            cas.write(&format!("{name}/crlnumber"), number);
            cas.write(&format!("{name}/ca.cnf"), CONFIGURATION);
            let key = ["-newkey", "rsa:2048", "-nodes", "-config", "ca.cnf"];
            let own = [
                "-x509", "-keyout", "ca.key", "-out", "ca.pem", "-days", "3650",
            ];
            let request = ["req", "-extensions", "authority", "-subj", CA_NAME];
            cas.openssl(name, &[&request[..], &key, &own].concat());
        }
        for certname in ["web01", "web02"] {
            let [key, request, certificate] =
                ["key", "csr", "pem"].map(|kind| format!("{certname}.{kind}"));
            let subject = format!("/CN={certname}");
            cas.openssl(
                "new",
                &[
                    "req", "-newkey", "rsa:2048", "-nodes", "-config", "ca.cnf", "-keyout", &key,
                    "-out", &request, "-subj", &subject,
                ],
            );
            let sign = [
                "ca", "-batch", "-notext", "-config", "ca.cnf", "-in", &request,
            ];
            cas.openssl("new", &[&sign[..], &["-out", &certificate]].concat());
        }
        cas.openssl("new", &["ca", "-config", "ca.cnf", "-revoke", "web02.pem"]);
        // OpenSSL uses the newer of two CRLs that it cannot tell apart.
        let lists = [
            "ca",
            "-config",
            "ca.cnf",
            "-gencrl",
            "-out",
            "crl.pem",
            "-crl_lastupdate",
        ];
        for (name, updated) in [("new", "20250101000000Z"), ("old", "20250601000000Z")] {
            cas.openssl(
                name,
                &[&lists[..], &[updated, "-crl_nextupdate", "20490101000000Z"]].concat(),
            );
        }
        let [new, old] = ["new", "old"]
            .map(|name| fs::read_to_string(cas.path(&format!("{name}/crl.pem"))).expect("a CRL"));
        cas.write("both.pem", &format!("{old}{new}"));
        cas.write("crl/old.pem", &old);
        cas.write("crl/new.pem", &new);
        Some(cas)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("is made");
        fs::write(path, text).expect("is written");
    }

    #[track_caller]
    fn openssl(&self, directory: &str, arguments: &[&str]) {
        let mut command = Tool::Openssl.command().expect("as before");
        let made = command
            .args(arguments)
            .current_dir(self.path(directory))
            .output();
        let made = made.expect("openssl starts");
        let said = String::from_utf8_lossy(&made.stderr);
        assert!(made.status.success(), "openssl {arguments:?}: {said}");
    }

    fn agent(&self, certname: &str) -> TestCredential {
        let read = |kind: &str| fs::read_to_string(self.path(&format!("new/{certname}.{kind}")));
        let [certificate, key] = ["pem", "key"].map(|kind| read(kind).expect("a file"));
        TestCredential::from_pem(certname, &certificate, &key)
    }
}

const CONFIGURATION: &str = "\
[ca]
default_ca = own
[own]
database = index.txt
serial = serial
crlnumber = crlnumber
certificate = ca.pem
private_key = ca.key
new_certs_dir = .
default_md = sha256
default_days = 3650
policy = policy
x509_extensions = agent
crl_extensions = list
[list]
[policy]
commonName = supplied
[agent]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature, keyEncipherment
extendedKeyUsage = serverAuth, clientAuth
subjectAltName = DNS:puppet, DNS:localhost
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[req]
distinguished_name = subject
[subject]
";

/// Apache as Debian packages it, with the document's directives about clients.
struct Apache {
    process: Child,
    port: HeldPort,
    directory: TempDir,
}

impl Apache {
    #[track_caller]
    fn start(cas: &TwoCas, crl: &str) -> Self {
        let mut command = Tool::Apache.command().expect("as before");
        let directory = TempDir::new().expect("a directory");
        let port = HeldPort::take();
        let modules: String = ["mpm_event", "ssl", "authz_core"]
            .map(|name| {
                format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n")
            })
            .concat();
        let (at, file) = (directory.path().display(), |name: &str| {
            cas.path(name).display().to_string()
        });
        let text = format!(
            "{modules}ServerRoot {at}\nServerName puppet\nPidFile {at}/pid\nMutex pthread\nListen 127.0.0.1:{port}\n\
             User www-data\nGroup www-data\nErrorLog {at}/error.log\nLogLevel info\nDocumentRoot {at}\n\
             SSLEngine on\nSSLCertificateFile {}\nSSLCertificateKeyFile {}\nSSLCACertificateFile {}\n\
             SSLCARevocationFile {}\nSSLCARevocationCheck chain\nSSLVerifyClient require\nSSLVerifyDepth 1\n",
            file("new/web01.pem"),
            file("new/web01.key"),
            file("new/ca.pem"),
            file(crl),
        );
        let configuration = directory.path().join("apache.conf");
        fs::write(&configuration, text).expect("is written");
        command.args(["-D", "FOREGROUND", "-f"]).arg(&configuration);
        let process = command.stdout(Stdio::null()).spawn();
        let apache = Self {
            process: process.expect("apache2 starts"),
            port,
            directory,
        };
        let listens = wait_until(LIMIT, || apache.port.is_listened_on().then_some(()));
        let log = || fs::read_to_string(apache.log()).unwrap_or_default();
        assert!(listens.is_some(), "{}", log());
        apache
    }

    fn client(&self, cas: &TwoCas, agent: &TestCredential) -> Client {
        let bundle = fs::read_to_string(cas.path("new/ca.pem")).expect("a CA");
        let address: SocketAddr = self.port.address();
        Client::new(address, &bundle, Some(agent))
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("error.log")
    }
}

impl Drop for Apache {
    fn drop(&mut self) {
        // Apache's child processes exit with it.
        let pid = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.process.wait();
    }
}
