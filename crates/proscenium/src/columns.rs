//! Tables: aligned columns, with a header if standard output is a terminal.

use std::io::{self, IsTerminal};

/// Lays out rows below a header. A program that reads the output gets the rows alone.
pub(crate) fn columns<const N: usize>(
    header: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    laid_out(io::stdout().is_terminal().then_some(header), rows)
}

/// A table on a terminal, and elsewhere one line for each item, which scripts read.
pub(crate) fn table_or_lines<T, const N: usize>(
    header: [&str; N],
    items: &[T],
    cells: impl Fn(&T) -> [String; N],
    line: impl Fn(&T) -> String,
) -> String {
    if io::stdout().is_terminal() {
        laid_out(Some(header), items.iter().map(cells))
    } else {
        items.iter().map(line).collect::<Vec<_>>().join("\n")
    }
}

fn laid_out<const N: usize>(
    header: Option<[&str; N]>,
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let header = header.map(|names| names.map(str::to_owned));
    let rows: Vec<_> = header.into_iter().chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or(0));
    let lines = rows.iter().map(|row| {
        let cells = row
            .iter()
            .zip(widths)
            .map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = || {
            [
                ["a".to_owned(), "b".to_owned()],
                ["long".to_owned(), "c".to_owned()],
            ]
        };
        assert_eq!(laid_out(None, rows()), "a     b\nlong  c");
        assert_eq!(
            laid_out(Some(["N", "M"]), rows()),
            "N     M\na     b\nlong  c"
        );
    }
}
