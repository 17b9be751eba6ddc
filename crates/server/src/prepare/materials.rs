//! Materials made into what they are for. Lists that were fetched before stand in for those that files lack.

use std::path::PathBuf;

use config::{Config, Credential};
use pki::{Named, PkiProblem, TrustStore};

use crate::{files::KeptIn, lists};

/// The bytes of all materials by path.
pub(super) struct Materials<'a> {
    pub(super) by_path: &'a config::Materials,
    pub(super) kept: KeptIn,
}

/// Who is judged by a bundle and its lists.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    Clients,
    Members,
}

impl Materials<'_> {
    /// The store of a bundle and its lists. Where the CA is asked and the agent's copy is among the lists, a CA of which
    /// no file has a list has the one that was fetched last: copies that a crash has cut short are no reason to serve
    /// nobody.
    pub(super) fn trust(
        &self,
        config: &Config,
        (ca, crl): (&[PathBuf], &[PathBuf]),
        whose: Whose,
        previous: Option<&TrustStore>,
    ) -> Result<TrustStore, Vec<PkiProblem>> {
        let is_asked = config.trust.fetch.is_some();
        let copy = config.agents_copy().filter(|_| is_asked);
        // What the agent has been answered is held against what is in force as our own answer is.
        let is_held = |path: &&PathBuf| whose == Whose::Clients && copy.as_ref() == Some(*path);
        let (copied, files): (Vec<&PathBuf>, Vec<&PathBuf>) = crl.iter().partition(is_held);
        let unusable = crl
            .iter()
            .filter_map(|path| self.found(path)?.unusable.clone());
        let mut material = pki::Material {
            bundle: self.named(ca),
            crls: self.named(files),
            copied_crls: self.named(copied),
            warnings: unusable.collect(),
            ..pki::Material::default()
        };
        let build = |material: &pki::Material| {
            TrustStore::build(material, &config.trust.settings, &config.identity, previous)
        };
        let built = build(&material);
        if copy.is_some_and(|copy| crl.contains(&copy)) {
            material.kept_crls = self.kept_for(config, &built);
        }
        match material.kept_crls.is_empty() {
            true => built,
            false => build(&material).or(built),
        }
    }

    /// What was kept of the CAs that have no list, or of all where there are none.
    fn kept_for(
        &self,
        config: &Config,
        built: &Result<TrustStore, Vec<PkiProblem>>,
    ) -> Vec<Named<Vec<u8>>> {
        let directory = (self.kept)(&config.state_directory);
        let bytes_max = config.trust.fetch.map_or(0, |fetch| fetch.body_bytes_max);
        match built {
            Ok(store) => lists::kept(&directory, Some(&store.cas_without_crl()), bytes_max),
            Err(problems) if problems.iter().all(PkiProblem::is_about_crls) => {
                lists::kept(&directory, None, bytes_max)
            }
            Err(_) => Vec::new(),
        }
    }

    pub(super) fn credential(&self, files: &Credential) -> Result<pki::Credential, PkiProblem> {
        let one = |path: &PathBuf| {
            let name = path.display().to_string();
            let nothing = Named::new(name, Vec::new());
            self.named([path]).pop().unwrap_or(nothing)
        };
        pki::Credential::parse(&one(&files.chain), &one(&files.key))
    }

    fn found(&self, path: &PathBuf) -> Option<&config::Material> {
        self.by_path.get(path)?.as_ref().ok()
    }

    fn named<'p>(&self, paths: impl IntoIterator<Item = &'p PathBuf>) -> Vec<Named<Vec<u8>>> {
        let found = paths.into_iter().filter_map(|path| self.found(path));
        let blobs = found.flat_map(|material| &material.blobs);
        blobs
            .map(|blob| Named::new(&blob.name, blob.bytes.clone()))
            .collect()
    }
}
