//! What a person types in a shell.

/// Returns the command that approves the definition of a server, to be typed in its folder.
pub fn trust_command(name: &str) -> String {
    format!("codebridge servers trust {}", shell_word(name))
}

/// Returns the command that logs in to a server.
pub fn login_command(name: &str) -> String {
    format!("codebridge servers login {}", shell_word(name))
}

/// Returns a name as it is typed in a shell.
pub fn shell_word(name: &str) -> String {
    shlex::try_quote(name).map_or_else(|_| name.to_owned(), |word| word.into_owned())
}
