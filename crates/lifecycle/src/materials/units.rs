//! Units of changed materials, each accepted or refused by itself: a chain with its key, a CA bundle, a CRL.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use config::{
    Config, CredentialFiles, LoadedMaterial, MaterialKind, MaterialName, MaterialReadError,
    Materials,
};

/// Materials that are accepted or refused together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    /// Units with CRLs are tried first, because a revocation must not wait for another file.
    holds_crl: bool,
    parts: Vec<Part>,
}

/// A material, or one file of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Part {
    path: PathBuf,
    /// The name of the file in a directory. `None` for the whole material.
    blob: Option<String>,
}

/// The accepted and refused units.
pub(crate) struct Selection<'u, T> {
    /// What was built with the accepted units. `None` if no unit was accepted.
    pub(crate) built: Option<T>,
    /// The refused units, each with the reason.
    pub(crate) refused: Vec<(&'u Unit, String)>,
}

impl Unit {
    /// The paths of the materials in it.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &PathBuf> {
        self.parts.iter().map(|part| &part.path)
    }
}

/// The units that differ between the active materials and those on disk, CRLs first.
pub(crate) fn changed(
    wanted: &[MaterialName],
    config: &Config,
    active: &Materials,
    found: &Materials,
) -> Vec<Unit> {
    let credentials = credential_groups(config);
    let mut units = Vec::new();
    let mut done = BTreeSet::new();
    for wanted in wanted {
        if done.contains(&wanted.path) {
            continue;
        }
        let group = credentials
            .iter()
            .find(|group| group.contains(&wanted.path));
        let paths = match group {
            Some(group) => group.clone(),
            None => BTreeSet::from([wanted.path.clone()]),
        };
        done.extend(paths.iter().cloned());
        if paths.iter().all(|path| active.get(path) == found.get(path)) {
            continue;
        }
        let holds_crl = wanted.kind == MaterialKind::Crl;
        let files = match group {
            Some(_) => None,
            None => changed_files(active.get(&wanted.path), found.get(&wanted.path)),
        };
        match files {
            Some(names) => units.extend(names.into_iter().map(|name| Unit {
                holds_crl,
                parts: vec![Part {
                    path: wanted.path.clone(),
                    blob: Some(name),
                }],
            })),
            None => units.push(Unit {
                holds_crl,
                parts: paths
                    .into_iter()
                    .map(|path| Part { path, blob: None })
                    .collect(),
            }),
        }
    }
    units.sort_by_key(|unit| !unit.holds_crl);
    units
}

/// The active materials with these units as they are on disk.
pub(crate) fn with(active: &Materials, found: &Materials, accepted: &[&Unit]) -> Materials {
    let mut materials = active.clone();
    for part in accepted.iter().flat_map(|unit| &unit.parts) {
        let Some(new) = found.get(&part.path) else {
            continue;
        };
        match (&part.blob, materials.get_mut(&part.path), new) {
            (Some(name), Some(Ok(material)), Ok(new)) => replace_file(material, new, name),
            _ => {
                materials.insert(part.path.clone(), new.clone());
            }
        }
    }
    materials
}

/// Finds which units can be accepted, by building with them. CRLs come first. A unit that is refused alone may be accepted
/// together with another one.
pub(crate) fn select<T>(
    units: &[Unit],
    mut build: impl FnMut(&[&Unit]) -> Result<T, String>,
) -> Selection<'_, T> {
    let all: Vec<_> = units.iter().collect();
    let whole = match build(&all) {
        Ok(built) => {
            return Selection {
                built: Some(built),
                refused: Vec::new(),
            };
        }
        Err(report) => report,
    };
    // Usually one file alone is invalid. CRLs are the last to be left out.
    for left_out in units.iter().rev().filter(|_| units.len() > 1) {
        let others: Vec<_> = units.iter().filter(|unit| *unit != left_out).collect();
        if let Ok(built) = build(&others) {
            return Selection {
                built: Some(built),
                refused: vec![(left_out, whole)],
            };
        }
    }
    let mut selection = Selection {
        built: None,
        refused: all.into_iter().map(|unit| (unit, whole.clone())).collect(),
    };
    if units.len() == 1 {
        return selection;
    }
    let mut accepted = Vec::new();
    for _ in 0..PASSES_MAX {
        let before = accepted.len();
        let remaining = std::mem::take(&mut selection.refused);
        for (unit, _) in remaining {
            accepted.push(unit);
            match build(&accepted) {
                Ok(built) => selection.built = Some(built),
                Err(report) => {
                    accepted.pop();
                    selection.refused.push((unit, report));
                }
            }
        }
        if accepted.len() == before {
            break;
        }
    }
    if selection.built.is_none() {
        // If no unit is accepted, the report about all of them together says the most.
        selection.refused = units.iter().map(|unit| (unit, whole.clone())).collect();
    }
    selection
}

/// Chains and keys that belong together: two credentials that share a file are one unit.
fn credential_groups(config: &Config) -> Vec<BTreeSet<PathBuf>> {
    let listeners = config.listener_certificates.values().flatten();
    let members = config.pools.iter().filter_map(|pool| pool.tls.as_ref());
    let credentials = config
        .certificates
        .iter()
        .chain(listeners)
        .chain(members.map(|tls| &tls.credential));
    let mut groups: Vec<BTreeSet<PathBuf>> = Vec::new();
    for CredentialFiles { chain, key } in credentials {
        let mut group = BTreeSet::from([chain.clone(), key.clone()]);
        for other in groups
            .extract_if(.., |other| !other.is_disjoint(&group))
            .collect::<Vec<_>>()
        {
            group.extend(other);
        }
        groups.push(group);
    }
    groups
}

/// The names of the changed files of a directory. `None` if it is or was not a directory, or if it has so many changed files
/// that they are decided together.
fn changed_files(
    active: Option<&Result<LoadedMaterial, MaterialReadError>>,
    found: Option<&Result<LoadedMaterial, MaterialReadError>>,
) -> Option<Vec<String>> {
    let (Some(Ok(active)), Some(Ok(found))) = (active, found) else {
        return None;
    };
    let (before, after) = (by_name(active), by_name(found));
    let names: BTreeSet<_> = before.keys().chain(after.keys()).copied().collect();
    let changed = names
        .into_iter()
        .filter(|name| before.get(name) != after.get(name));
    let changed: Vec<_> = changed.map(str::to_owned).collect();
    // With one changed file, or only a changed mode, the material is decided as a whole.
    ((2..=FILES_MAX).contains(&changed.len())).then_some(changed)
}

fn by_name(material: &LoadedMaterial) -> BTreeMap<&str, &[u8]> {
    let blobs = material.blobs.iter();
    blobs
        .map(|blob| (blob.name.as_str(), blob.bytes.as_slice()))
        .collect()
}

/// Replaces one file of a directory in the active material, or removes it if it does not exist any more.
fn replace_file(material: &mut LoadedMaterial, new: &LoadedMaterial, name: &str) {
    material.blobs.retain(|blob| blob.name != name);
    let blobs = new.blobs.iter().filter(|blob| blob.name == name);
    material.blobs.extend(blobs.cloned());
    material.blobs.sort_by(|a, b| a.name.cmp(&b.name));
    material.modified = material.modified.max(new.modified);
}

/// Maximum number of changed files of one directory that are decided one by one. More are decided together, because each costs
/// a build.
const FILES_MAX: usize = 16;
/// How often refused units are tried again together with units accepted since.
const PASSES_MAX: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(name: &str) -> Unit {
        Unit {
            holds_crl: name.starts_with("crl"),
            parts: vec![Part {
                path: name.into(),
                blob: None,
            }],
        }
    }

    /// The accepted and the refused names, if `is_good` says which combinations can be built.
    fn selected(names: &[&str], is_good: impl Fn(&[&str]) -> bool) -> (Vec<String>, Vec<String>) {
        let units: Vec<_> = names.iter().copied().map(unit).collect();
        let name = |unit: &Unit| unit.parts[0].path.display().to_string();
        let selection = select(&units, |tried| {
            let tried: Vec<_> = tried.iter().map(|unit| name(unit)).collect();
            let named: Vec<_> = tried.iter().map(String::as_str).collect();
            match is_good(&named) {
                true => Ok(tried),
                false => Err(format!("refused: {tried:?}")),
            }
        });
        let refused = selection.refused.iter().map(|(unit, _)| name(unit));
        (selection.built.unwrap_or_default(), refused.collect())
    }

    #[test]
    fn each_unit_is_accepted_or_refused_by_itself() {
        let none_of =
            |bad: &'static [&str]| move |tried: &[&str]| !tried.iter().any(|t| bad.contains(t));
        let names = ["crl", "ca", "pair"];
        for (bad, accepted, refused) in [
            (&[][..], &["crl", "ca", "pair"][..], &[][..]),
            (&["pair"], &["crl", "ca"], &["pair"]),
            (&["crl"], &["ca", "pair"], &["crl"]),
            (&["ca", "pair"], &["crl"], &["ca", "pair"]),
            (&["crl", "pair"], &["ca"], &["crl", "pair"]),
            (&["crl", "ca", "pair"], &[], &["crl", "ca", "pair"]),
        ] {
            let found = selected(&names, none_of(bad));
            let expected =
                |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
            assert_eq!(found, (expected(accepted), expected(refused)), "{bad:?}");
        }
        // The pair is valid only with the new CA, which is tried after it.
        let names = ["crl", "pair", "ca", "bad"];
        let (accepted, refused) = selected(&names, |tried| {
            let has = |name| tried.contains(&name);
            !has("bad") && !has("crl") && (has("ca") || !has("pair"))
        });
        assert_eq!(accepted, ["ca", "pair"]);
        assert_eq!(refused, ["crl", "bad"]);
    }
}
