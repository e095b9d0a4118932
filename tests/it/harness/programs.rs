//! Python that tests run in the sandbox, kept in files of that language: `tests/it/programs/`.

/// The program of a cell: `python!("limits", "children")` is what follows the line `# %% children` in `limits.py`, up to
/// the next cell. A cell that does not exist is an error of the compiler.
#[macro_export]
macro_rules! python {
    ($file:literal, $cell:literal) => {
        const {
            $crate::harness::programs::cell(
                include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/programs/", $file, ".py")),
                $cell,
            )
        }
    };
}

/// What a cell begins with, before its name.
const MARK: &[u8] = b"# %% ";

/// The text of a cell, without the empty lines around it.
pub(crate) const fn cell(file: &'static str, name: &str) -> &'static str {
    let (text, name) = (file.as_bytes(), name.as_bytes());
    let mut at = 0;
    while at < text.len() {
        let named = at + MARK.len();
        if is_at(text, at, MARK) && is_at(text, named, name) && is_at(text, named + name.len(), b"\n") {
            return until_next_cell(file, named + name.len() + 1);
        }
        at = next_line(text, at);
    }
    panic!("the file has no cell of this name")
}

const fn until_next_cell(file: &'static str, first: usize) -> &'static str {
    let text = file.as_bytes();
    let mut end = first;
    while end < text.len() && !is_at(text, end, MARK) {
        end = next_line(text, end);
    }
    while end > first && text[end - 1] == b'\n' {
        end -= 1;
    }
    file.split_at(end).0.split_at(first).1
}

const fn next_line(text: &[u8], mut at: usize) -> usize {
    while at < text.len() && text[at] != b'\n' {
        at += 1;
    }
    if at < text.len() { at + 1 } else { at }
}

const fn is_at(text: &[u8], at: usize, part: &[u8]) -> bool {
    let mut index = 0;
    while index < part.len() {
        if at + index >= text.len() || text[at + index] != part[index] {
            return false;
        }
        index += 1;
    }
    true
}
