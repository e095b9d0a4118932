//! Pages for a terminal, where the tables of Markdown are wider than the window.

/// Columns of a page.
const WIDTH: usize = 100;

/// Returns a page with its tables as aligned columns, or as indented paragraphs where those do not fit.
pub fn for_terminal(page: &str) -> String {
    let mut text = String::new();
    let mut table: Vec<Vec<&str>> = Vec::new();
    for line in page.lines() {
        match line.strip_prefix('|').and_then(|rest| rest.strip_suffix('|')) {
            Some(row) => table.push(row.split('|').map(str::trim).collect()),
            None => {
                write_table(&mut text, &std::mem::take(&mut table));
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    write_table(&mut text, &table);
    text
}

/// Writes the rows of a table, of which the second is a ruler.
fn write_table(text: &mut String, table: &[Vec<&str>]) {
    let [header, _, rows @ ..] = table else { return };
    let all = || std::iter::once(header).chain(rows);
    let width_of = |column| {
        all().map(|row| row.get(column).map_or(0, |cell: &&str| cell.chars().count())).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width_of).collect();
    if widths.iter().map(|width| width + 2).sum::<usize>() <= WIDTH {
        for row in all() {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("  {cell:<width$}"));
            text.push_str(cells.collect::<String>().trim_end());
            text.push('\n');
        }
        return;
    }
    for row in rows {
        let [first @ .., last] = row.as_slice() else { continue };
        write_paragraph(text, "  ", &first.join("  "));
        write_paragraph(text, "      ", last);
    }
}

/// Returns a text in lines of at most this many columns.
pub fn in_lines(words: &str, columns: usize) -> String {
    let mut text = String::new();
    write_lines(&mut text, "", words, columns);
    text.trim_end().to_owned()
}

fn write_paragraph(text: &mut String, indent: &str, words: &str) {
    write_lines(text, indent, words, WIDTH);
}

fn write_lines(text: &mut String, indent: &str, words: &str, columns: usize) {
    let mut line = indent.to_owned();
    for word in words.split(' ') {
        if line.chars().count() + word.chars().count() >= columns && line.len() > indent.len() {
            text.push_str(line.trim_end());
            text.push('\n');
            line = indent.to_owned();
        }
        line.push_str(word);
        line.push(' ');
    }
    text.push_str(line.trim_end());
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::help::TOPICS;

    #[test]
    fn a_table_that_fits_is_aligned_and_one_that_does_not_is_indented() {
        let words = "word ".repeat(30);
        let page = format!(
            "# T\n\n| a | b |\n|---|---|\n| 1 | long |\n\nend\n| c | d | e |\n|---|---|---|\n| x | y | {words}|\n"
        );
        let wide = format!("      {}", "word ".repeat(18).trim_end());
        let rest = format!("      {}", "word ".repeat(12).trim_end());
        assert_eq!(for_terminal(&page), format!("# T\n\n  a  b\n  1  long\n\nend\n  x  y\n{wide}\n{rest}\n"));
    }

    #[test]
    fn no_table_of_a_topic_is_wider_than_the_window() {
        for topic in &TOPICS {
            for line in for_terminal(topic.text).lines().filter(|line| line.starts_with("  ")) {
                assert!(line.chars().count() <= WIDTH + 10, "{}: {line}", topic.name);
            }
        }
    }
}
