//! Serves repositories on loopback, signed with a throw-away key, and reads them as apt and dnf do.

use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, ensure};

use super::Root;
use crate::dist::{
    repository::{KEY, PROGRAMS as WRITERS},
    tools::{output, require},
};

/// A name for the throw-away key. rpm reads RSA keys in every version.
const NAME: &str = "throw-away@proscenium.example";

/// Fails if a program for the check is missing.
pub(super) fn require_programs() -> Result<()> {
    require(&WRITERS)?;
    require(&["curl", "python3", "rpmkeys"])
}

/// Writes the repositories twice, as for a second release, and installs from them in this root.
pub(super) fn check(root: &Root) -> Result<()> {
    let directory = tempfile::Builder::new().prefix("proscenium-").tempdir()?;
    let served = directory.path().join("served");
    let signer = directory.path().join("signer");
    make_key(&signer)?;
    let this = env::current_exe().context("no name of this program")?;
    for _ in 0..2 {
        let mut write = Command::new(&this);
        write
            .args(["dist", "--key", NAME, "--repository"])
            .arg(&served);
        output(write.env("GNUPGHOME", &signer))?;
    }
    let server = Server::start(&served)?;
    apt_installs(root, &server.url, &served.join(KEY))?;
    let client = directory.path().join("client");
    fs::create_dir(&client)?;
    rpm_is_verified(&client, &server.url)
}

/// Creates a key without a passphrase in a separate keyring.
fn make_key(home: &Path) -> Result<()> {
    make_private(home)?;
    let mut make = Command::new("gpg");
    make.args(["--batch", "--quiet", "--passphrase", ""]).args([
        "--quick-generate-key",
        NAME,
        "rsa3072",
        "sign",
        "never",
    ]);
    output(make.env("GNUPGHOME", home)).map(drop)
}

/// Makes the keyring private, because gpg warns if other accounts can read it.
fn make_private(home: &Path) -> Result<()> {
    output(Command::new("install").args(["-d", "-m", "0700"]).arg(home)).map(drop)
}

/// Checks that apt refuses the repository with another key, and installs the package with this one.
fn apt_installs(root: &Root, url: &str, key: &Path) -> Result<()> {
    fs::create_dir_all(root.path("/etc/apt/keyrings"))?;
    fs::copy(key, root.path("/etc/apt/keyrings/proscenium.asc"))?;
    let apt = |arguments: &[&str]| {
        let mut command = root.command("apt-get");
        output(
            command
                .args(["--quiet", "--yes", "--no-install-recommends"])
                .args(arguments),
        )
    };
    let list = |key: &str| {
        let line = format!("deb [signed-by={key}] {url}/apt stable main\n");
        fs::write(root.path("/etc/apt/sources.list"), line)
    };
    list("/usr/share/keyrings/debian-archive-keyring.gpg")?;
    let refused = apt(&["update", "--error-on=any"]);
    ensure!(
        refused.is_err_and(|error| error.to_string().contains("NO_PUBKEY")),
        "apt does not refuse a repository by another key"
    );
    list("/etc/apt/keyrings/proscenium.asc")?;
    apt(&["update", "--error-on=any"])?;
    apt(&["install", "proscenium"])?;
    let version = output(root.command("proscenium").arg("version"))?;
    let version = version.lines().next().unwrap_or_default();
    println!("  ✓ apt refuses another key, and installs the package by the right one: {version}");
    Ok(())
}

/// Verifies the metadata, the checksums and the package as dnf does with `repo_gpgcheck` and `gpgcheck`.
fn rpm_is_verified(client: &Path, url: &str) -> Result<()> {
    let fetch = |path: &str| {
        let file = client.join(path.rsplit('/').next().unwrap_or(path));
        let mut curl = Command::new("curl");
        curl.args(["--fail", "--silent", "--show-error", "--output"])
            .arg(&file);
        output(curl.arg(format!("{url}/{path}"))).map(|_| file)
    };
    let key = fetch(KEY)?;
    let home = client.join("keyring");
    make_private(&home)?;
    let gpg = |arguments: &[&Path]| {
        let mut gpg = Command::new("gpg");
        output(
            gpg.args(["--batch", "--homedir"])
                .arg(&home)
                .args(arguments),
        )
    };
    gpg(&[Path::new("--import"), &key])?;
    let metadata = fetch("yum/repodata/repomd.xml")?;
    let signature = fetch("yum/repodata/repomd.xml.asc")?;
    gpg(&[Path::new("--verify"), &signature, &metadata])?;

    let metadata = fs::read_to_string(metadata)?;
    let entry = after(&metadata, "<data type=\"primary\">")?;
    let primary = fetch(&format!("yum/{}", attribute(entry, "<location href=\"")?))?;
    has_checksum(&primary, entry, "<checksum type=\"sha256\">")?;
    let packages = output(
        Command::new("gzip")
            .args(["--decompress", "--stdout"])
            .arg(primary),
    )?;
    let database = format!("--dbpath={}", client.join("database").display());
    let rpmkeys =
        |arguments: &[&Path]| output(Command::new("rpmkeys").arg(&database).args(arguments));
    let mut names = Vec::new();
    let entries: Vec<_> = packages.split("<package type=\"rpm\">").skip(1).collect();
    let mut rpms = Vec::new();
    for entry in entries {
        names.push(format!(
            "{}.{}",
            value(entry, "<name>")?,
            value(entry, "<arch>")?
        ));
        let rpm = fetch(&format!("yum/{}", attribute(entry, "<location href=\"")?))?;
        has_checksum(&rpm, entry, "<checksum type=\"sha256\" pkgid=\"YES\">")?;
        ensure!(
            rpmkeys(&[Path::new("--checksig"), &rpm]).is_err(),
            "rpm accepts {} without the key",
            rpm.display()
        );
        rpms.push(rpm);
    }
    rpmkeys(&[Path::new("--import"), &key])?;
    for rpm in &rpms {
        rpmkeys(&[Path::new("--checksig"), rpm])?;
    }
    ensure!(
        names.iter().any(|name| name == "proscenium.x86_64"),
        "{names:?}"
    );
    println!(
        "  ✓ signatures and checksums of the YUM repository are right: {}",
        names.join(" ")
    );
    Ok(())
}

fn has_checksum(file: &Path, entry: &str, mark: &str) -> Result<()> {
    let sum = output(Command::new("sha256sum").arg(file))?;
    let expected = value(entry, mark)?;
    ensure!(
        sum.starts_with(expected),
        "{} is not {expected}",
        file.display()
    );
    Ok(())
}

/// The rest of a text after a mark.
fn after<'a>(text: &'a str, mark: &str) -> Result<&'a str> {
    let (_, rest) = text
        .split_once(mark)
        .with_context(|| format!("no {mark} in {text}"))?;
    Ok(rest)
}

/// The text of an element.
fn value<'a>(text: &'a str, mark: &str) -> Result<&'a str> {
    Ok(after(text, mark)?.split('<').next().unwrap_or_default())
}

fn attribute<'a>(text: &'a str, mark: &str) -> Result<&'a str> {
    Ok(after(text, mark)?.split('"').next().unwrap_or_default())
}

/// A server of files on loopback, which is killed when the value is dropped.
struct Server {
    process: Child,
    url: String,
}

impl Server {
    fn start(directory: &Path) -> Result<Self> {
        let mut process = Command::new("python3")
            .args(["-u", "-m", "http.server", "--bind", "127.0.0.1", "0"])
            .arg("--directory")
            .arg(directory)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("python3 does not start")?;
        let mut line = String::new();
        let stdout = process.stdout.take().context("a pipe")?;
        BufReader::new(stdout).read_line(&mut line)?;
        // "Serving HTTP on 127.0.0.1 port 40123 (http://127.0.0.1:40123/) ..."
        let url = after(&line, "(")?.split("/)").next().unwrap_or_default();
        Ok(Self {
            process,
            url: url.to_owned(),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
