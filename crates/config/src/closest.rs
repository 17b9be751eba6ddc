//! "Did you mean": the known word closest to a misspelled one.

/// The closest of the known words, if one is close enough.
pub(crate) fn closest<'k>(word: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let plain = |word: &str| word.to_lowercase().replace('_', "-");
    let word = plain(word);
    known
        .map(|known| (strsim::jaro_winkler(&word, &plain(known)), known))
        .filter(|(likeness, _)| *likeness > 0.8)
        .max_by(|(one, _), (other, _)| one.total_cmp(other))
        .map(|(_, known)| known)
}
