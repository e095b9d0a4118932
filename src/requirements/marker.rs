//! The conditions of requirements: `python_version < "3.12" and extra == 'x'`.
//! <https://packaging.python.org/en/latest/specifications/dependency-specifiers/>

const VARIABLES: [&str; 12] = [
    "python_version",
    "python_full_version",
    "os_name",
    "sys_platform",
    "platform_release",
    "platform_system",
    "platform_version",
    "platform_machine",
    "platform_python_implementation",
    "implementation_name",
    "implementation_version",
    "extra",
];
const OPERATORS: [&str; 10] = ["===", "<=", "!=", "==", ">=", "~=", "<", ">", "in", "not in"];
/// Brackets in brackets. No real condition has more.
const DEEPEST: usize = 8;

/// Returns whether a text is a condition: comparisons, `and`, `or` and brackets.
pub(super) fn is_condition(text: &str) -> bool {
    after_any(text, 0).is_some_and(|rest| rest.trim().is_empty())
}

/// Reads comparisons with `and` and `or` between them; returns what is behind them.
fn after_any(text: &str, depth: usize) -> Option<&str> {
    let mut rest = after_one(text, depth)?;
    while let Some(next) = after_word(rest, "and").or_else(|| after_word(rest, "or")) {
        rest = after_one(next, depth)?;
    }
    Some(rest)
}

fn after_one(text: &str, depth: usize) -> Option<&str> {
    if let Some(inner) = text.trim_start().strip_prefix('(') {
        return (depth < DEEPEST).then(|| after_any(inner, depth + 1))??.trim_start().strip_prefix(')');
    }
    let (left_is_variable, rest) = after_value(text)?;
    let rest = after_operator(rest)?;
    let (right_is_variable, rest) = after_value(rest)?;
    (left_is_variable != right_is_variable).then_some(rest)
}

/// Reads a variable or a text in quotes; returns whether it is a variable.
fn after_value(text: &str) -> Option<(bool, &str)> {
    let text = text.trim_start();
    if let Some(quote) = text.chars().next().filter(|c| "'\"".contains(*c)) {
        return Some((false, text[1..].split_once(quote)?.1));
    }
    VARIABLES.iter().find_map(|name| Some((true, after_word(text, name)?)))
}

fn after_operator(text: &str) -> Option<&str> {
    OPERATORS.iter().find_map(|operator| match operator.split_once(' ') {
        Some((first, second)) => after_word(after_word(text, first)?, second),
        None if operator.starts_with('i') => after_word(text, operator),
        None => text.trim_start().strip_prefix(operator),
    })
}

fn after_word<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let rest = text.trim_start().strip_prefix(word)?;
    (!rest.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_')).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_compares_variables_with_texts() {
        for good in [
            "python_version < '3.12'",
            "python_full_version>=\"3.9\" and(os_name=='posix' or 'linux' in sys_platform)",
            "extra == 'x'",
            "platform_machine not in 'arm64 x86'",
            "(python_version ~= '3.9')",
        ] {
            assert!(is_condition(good), "{good}");
        }
        let deep = format!("{}os_name=='x'{}", "(".repeat(200), ")".repeat(200));
        for bad in [
            "",
            "import os",
            "os_name",
            "os_name == ",
            "'a' == 'b'",
            "os_name == nt",
            "os_name == 'x' and",
            "(os_name == 'x'",
            "os_name == 'x')",
            "os_name == 'x' os_name == 'y'",
            "os_name == 'x",
            "x == 'y'",
            &deep,
        ] {
            assert!(!is_condition(bad), "{bad}");
        }
    }
}
