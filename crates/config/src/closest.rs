//! "Did you mean": the known word that a mistaken one is closest to.

/// The closest of the known words, if one is close at all.
pub(crate) fn closest<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let plain = |word: &str| word.to_lowercase().replace('_', "-");
    let word = plain(word);
    known
        .map(|known| (strsim::jaro_winkler(&word, &plain(known)), known))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, known)| known)
}
