//! The other proxies' programs: those that this machine has, and those of Debian packages that were unpacked into a
//! folder.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::{debian, workspace};

/// A proxy that Proscenium is compared with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rival {
    Nginx,
    Haproxy,
}

impl Rival {
    pub(super) const ALL: &'static [Self] = &[Self::Nginx, Self::Haproxy];

    /// The name of its program and of its Debian package.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Nginx => "nginx",
            Self::Haproxy => "haproxy",
        }
    }

    /// The template of its configuration.
    pub(super) fn template(self) -> &'static str {
        match self {
            Self::Nginx => include_str!("../../../../bench/nginx.conf"),
            Self::Haproxy => include_str!("../../../../bench/haproxy.cfg"),
        }
    }

    /// The arguments before the path of the configuration.
    pub(super) fn arguments(self) -> &'static [&'static str] {
        match self {
            Self::Nginx => &["-c"],
            Self::Haproxy => &["-db", "-f"],
        }
    }
}

/// A program that can be started.
#[derive(Clone)]
pub(super) struct Program {
    pub(super) rival: Rival,
    /// The name with the version, such as `nginx-1.30.6`.
    pub(super) name: String,
    /// The words before the arguments.
    pub(super) command: Vec<String>,
}

impl Program {
    /// The program of this machine, if it is installed.
    pub(super) fn installed(rival: Rival) -> Result<Option<Self>> {
        let path = testkit::find_program(rival.name());
        path.map(|path| Self::of(rival, vec![path.display().to_string()]))
            .transpose()
    }

    /// The programs of this machine, and those of each root directory in the folder. Of two programs with the same version,
    /// the first is used.
    pub(super) fn all(folder: Option<&Path>) -> Result<Vec<Self>> {
        let mut programs = Vec::<Self>::new();
        let mut add = |program: Self| {
            if programs.iter().all(|known| known.name != program.name) {
                programs.push(program);
            }
        };
        for &rival in Rival::ALL {
            Self::installed(rival)?.into_iter().for_each(&mut add);
        }
        if let Some(folder) = folder {
            let unpacked = unpacked(folder)?;
            ensure!(
                !unpacked.is_empty(),
                "{} has no folder with usr/sbin/nginx or usr/sbin/haproxy: `cargo xtask bench peers` makes one",
                folder.display()
            );
            unpacked.into_iter().for_each(&mut add);
        }
        Ok(programs)
    }

    /// Asks the program for its version.
    fn of(rival: Rival, command: Vec<String>) -> Result<Self> {
        let output = Command::new(&command[0])
            .args(&command[1..])
            .arg("-v")
            .output()
            .with_context(|| format!("{} does not start", command[0]))?;
        // nginx prints it on standard error.
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        let version = version(&text)
            .with_context(|| format!("no version of {} in: {text}", command.join(" ")))?;
        Ok(Self {
            rival,
            name: format!("{}-{version}", rival.name()),
            command,
        })
    }
}

/// What to fetch, and where to put it.
#[derive(Args)]
pub(crate) struct Options {
    /// Debian release, whose name is also that of the folder with its root directory
    #[arg(long, default_value = "sid")]
    release: String,
    /// Folder for `bench table --peers` [default: target/peers]
    #[arg(long)]
    folder: Option<PathBuf>,
}

/// Fetches a release's packages of the other proxies with all that they depend on, and unpacks them.
pub(super) fn run(options: &Options) -> Result<()> {
    let default = || workspace::target().join("peers");
    let folder = options.folder.clone().unwrap_or_else(default);
    let packages: Vec<_> = Rival::ALL.iter().map(|rival| rival.name()).collect();
    debian::unpack(&options.release, &packages, &folder.join(&options.release))?;
    for program in unpacked(&folder)? {
        println!("{}", program.name);
    }
    println!(
        "Compare with them: cargo xtask bench table --peers {}",
        folder.display()
    );
    Ok(())
}

/// The programs of all root directories in this folder, by name.
fn unpacked(folder: &Path) -> Result<Vec<Program>> {
    let mut programs = Vec::new();
    for root in entries(folder)? {
        for &rival in Rival::ALL {
            let program = root.join("usr/sbin").join(rival.name());
            if program.is_file() {
                programs.push(Program::of(rival, command(&root, &program)?)?);
            }
        }
    }
    programs.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(programs)
}

/// Starts a program of another root directory with the loader and the libraries of that directory: this machine's may be
/// older.
fn command(root: &Path, program: &Path) -> Result<Vec<String>> {
    let mut libraries = Vec::new();
    // Packages of older releases have files in both.
    for parent in ["usr/lib", "lib"] {
        let folders = entries(&root.join(parent)).unwrap_or_default();
        libraries.extend(folders.into_iter().filter(|folder| folder.is_dir()));
    }
    let loader = libraries
        .iter()
        .flat_map(|folder| entries(folder).unwrap_or_default())
        .find(|file| {
            file.file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"ld-linux"))
        })
        .with_context(|| format!("{} has no loader of dynamic libraries", root.display()))?;
    // The libraries are beside the loader, or in the same folder of the other parent.
    let beside = loader.parent().and_then(Path::file_name);
    libraries.retain(|folder| folder.file_name() == beside);
    let libraries: Vec<_> = libraries
        .iter()
        .map(|folder| folder.display().to_string())
        .collect();
    Ok(vec![
        loader.display().to_string(),
        "--library-path".to_owned(),
        libraries.join(":"),
        program.display().to_string(),
    ])
}

/// The paths in a folder, sorted.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths = entries
        .map(|entry| Ok(fs::canonicalize(folder)?.join(entry?.file_name())))
        .collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// The version in what `nginx -v` or `haproxy -v` prints, without the revision of the package.
fn version(text: &str) -> Option<&str> {
    let words = text.lines().next()?.split([' ', '/']);
    let version = words
        .into_iter()
        .find(|word| word.starts_with(|first: char| first.is_ascii_digit()))?;
    version
        .split(|character: char| character != '.' && !character.is_ascii_digit())
        .next()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_version_has_no_revision_of_the_package() {
        for (text, expected) in [
            ("nginx version: nginx/1.30.6 (Debian)\n", Some("1.30.6")),
            ("nginx version: nginx/1.22.1\n", Some("1.22.1")),
            (
                "HAProxy version 2.6.12-1+deb12u3 2025/10/03 - https://haproxy.org/\nStatus: 3",
                Some("2.6.12"),
            ),
            ("HA-Proxy version 1.8.4-1deb90d 2018/02/08\n", Some("1.8.4")),
            ("cannot open shared object file\n", None),
            ("", None),
        ] {
            assert_eq!(version(text), expected, "{text:?}");
        }
    }

    #[test]
    fn an_unpacked_program_runs_with_its_own_loader_and_libraries() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            fs::write(&path, text).expect("a file");
            fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("rights");
            path
        };
        let of = |root: &str| folder.path().join(root).join("usr/sbin/nginx");
        assert!(
            Program::all(Some(folder.path())).is_err(),
            "an empty folder"
        );

        // The stand-in for a loader prints its arguments as a version.
        let loader = "#!/bin/sh\necho \"nginx version: nginx/1.30.6\"";
        file("new/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", loader);
        file("new/usr/lib/other/lib.so", "");
        file("new/usr/sbin/nginx", "not for this machine");
        file("old/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", loader);
        file("old/usr/lib/x86_64-linux-gnu/libssl.so.3", "");
        file("old/usr/sbin/nginx", "");
        file("notes.txt", "");
        let base = fs::canonicalize(folder.path()).expect("a path");
        let base = base.display();
        assert_eq!(
            command(&folder.path().join("new"), &of("new")).expect("a command")[..3],
            [
                format!("{base}/new/usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"),
                "--library-path".to_owned(),
                format!("{base}/new/usr/lib/x86_64-linux-gnu"),
            ]
        );
        assert_eq!(
            command(&folder.path().join("old"), &of("old")).expect("a command")[2],
            format!("{base}/old/usr/lib/x86_64-linux-gnu:{base}/old/lib/x86_64-linux-gnu")
        );
        let all = Program::all(Some(folder.path())).expect("programs");
        let with_name = all.iter().filter(|program| program.name == "nginx-1.30.6");
        assert_eq!(with_name.count(), 1, "one of two with the same version");

        file("none/usr/sbin/haproxy", "");
        let error = Program::all(Some(folder.path())).err().expect("no loader");
        assert!(format!("{error:#}").contains("no loader"), "{error:#}");
    }
}
