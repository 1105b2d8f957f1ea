//! Plain tables with aligned columns: readable in a terminal, in a log and through a pipe.

/// On which side a column's cells line up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Words.
    Left,
    /// Numbers.
    Right,
}

/// A table that is filled row by row and rendered once.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// A table with these columns and no rows.
    pub fn new(columns: &[(&'static str, Align)]) -> Self {
        Table { columns: columns.to_vec(), rows: Vec::new() }
    }

    /// Appends a row. Missing cells stay empty, cells beyond the last column are dropped.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).take(self.columns.len()).collect());
    }

    /// The header, a rule and the rows, each line ended by a newline but the last.
    pub fn render(&self) -> String {
        let widths: Vec<usize> = (0..self.columns.len())
            .map(|column| {
                let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| width(cell));
                cells.max().unwrap_or(0).max(width(self.columns[column].0))
            })
            .collect();
        let mut lines = vec![
            self.line(&widths, |column| self.columns[column].0),
            widths.iter().map(|&w| "-".repeat(w)).collect::<Vec<_>>().join("  "),
        ];
        for row in &self.rows {
            lines.push(self.line(&widths, |column| row.get(column).map_or("", String::as_str)));
        }
        lines.join("\n")
    }

    fn line<'a>(&self, widths: &[usize], cell: impl Fn(usize) -> &'a str) -> String {
        let mut line = String::new();
        for (column, &(_, align)) in self.columns.iter().enumerate() {
            let text = cell(column);
            let pad = " ".repeat(widths[column].saturating_sub(width(text)));
            let between = if column == 0 { "" } else { "  " };
            line += between;
            match align {
                Align::Left => line.extend([text, &pad]),
                Align::Right => line.extend([&pad, text]),
            }
        }
        line.trim_end().to_owned()
    }
}

/// Columns that a text takes on a terminal: characters, colour sequences not counted.
fn width(text: &str) -> usize {
    let mut columns = 0;
    let mut rest = text.chars();
    while let Some(character) = rest.next() {
        if character == '\x1b' {
            for in_sequence in rest.by_ref() {
                if in_sequence == 'm' {
                    break;
                }
            }
        } else {
            columns += 1;
        }
    }
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_line_up_on_their_side() {
        let mut table = Table::new(&[("path", Align::Left), ("bytes", Align::Right)]);
        table.row(["shm", "8"]);
        table.row(["loopback", "65536"]);
        assert_eq!(table.render(), "path      bytes\n--------  -----\nshm           8\nloopback  65536");
    }

    #[test]
    fn colour_takes_no_width() {
        let mut table = Table::new(&[("a", Align::Right), ("b", Align::Left)]);
        table.row(["\x1b[32mok\x1b[0m", "x"]);
        table.row(["four", "y"]);
        assert_eq!(table.render(), "   a  b\n----  -\n  \x1b[32mok\x1b[0m  x\nfour  y");
    }

    #[test]
    fn short_rows_end_empty_and_long_rows_are_cut() {
        let mut table = Table::new(&[("a", Align::Left), ("b", Align::Left)]);
        table.row(["1"]);
        table.row(["1", "2", "3"]);
        assert_eq!(table.render(), "a  b\n-  -\n1\n1  2");
    }
}
