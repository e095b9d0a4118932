//! The tokens of the state folder, and what is known of them: a token whose file cannot be read now is not one that was revoked.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::tokens::{Kept, TokenError, TokenId, Tokens};

/// Tokens that cannot be read and are counted.
const MOST_UNREAD: usize = 1_000;

/// The tokens of the state folder.
#[derive(Debug)]
pub(super) struct KnownTokens {
    tokens: Tokens,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// As they were read last.
    known: HashMap<TokenId, Kept>,
    /// Those that cannot be read.
    unread: HashSet<TokenId>,
}

impl KnownTokens {
    pub(super) fn new(tokens: Tokens) -> Self {
        Self { tokens, state: Mutex::default() }
    }

    /// Returns a token by its id; None if there is none that holds. One that cannot be read now holds as it was read last.
    ///
    /// # Errors
    /// It cannot be read, and never was.
    pub(super) fn get(&self, id: &TokenId) -> Result<Option<Kept>, TokenError> {
        let read = self.tokens.get(id);
        let mut state = self.lock();
        match read {
            Ok(kept) => {
                if state.unread.remove(id) {
                    tracing::info!(token = %id, "a token can be read again");
                }
                match &kept {
                    Some(kept) if state.known.get(id) != Some(kept) => {
                        drop(state.known.insert(id.clone(), kept.clone()));
                    }
                    Some(_) => {}
                    None => drop(state.known.remove(id)),
                }
                Ok(kept)
            }
            Err(error) => {
                if state.unread.len() < MOST_UNREAD && state.unread.insert(id.clone()) {
                    tracing::warn!(token = %id, %error, "a token cannot be read: what is known of it holds");
                }
                match state.known.get(id) {
                    Some(kept) => Ok(Some(kept.clone()).filter(Kept::is_valid)),
                    None => Err(error),
                }
            }
        }
    }

    /// Returns how many tokens could not be read when they were looked at last.
    pub(super) fn unread(&self) -> usize {
        self.lock().unread.len()
    }

    /// Looks again at those that could not be read.
    pub(super) fn look_again(&self) {
        let unread: Vec<TokenId> = self.lock().unread.iter().cloned().collect();
        for id in unread {
            // The state says what came of it.
            let _ = self.get(&id);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::tokens::{NewToken, Scopes};

    #[test]
    fn a_token_holds_while_it_cannot_be_read_and_not_when_it_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let on_disk = Tokens::at(folder.path());
        let add = || {
            let new = NewToken { principal: "a".parse().unwrap(), scopes: Scopes::mcp(), lifetime: None };
            TokenId::of(&on_disk.add(new).unwrap())
        };
        let (used, other) = (add(), add());
        let tokens = KnownTokens::new(on_disk.clone());
        assert!(tokens.get(&used).unwrap().is_some());
        // What nobody can read, root neither.
        let files: Vec<_> = fs::read_dir(folder.path().join("tokens")).unwrap().flatten().collect();
        for file in &files {
            fs::remove_file(file.path()).unwrap();
            fs::create_dir(file.path()).unwrap();
        }
        assert!(tokens.get(&used).unwrap().is_some(), "it is known");
        assert!(tokens.get(&other).is_err(), "nobody knows whether there is one");
        assert_eq!(tokens.unread(), 2);
        for file in &files {
            fs::remove_dir(file.path()).unwrap();
        }
        tokens.look_again();
        assert_eq!(tokens.unread(), 0);
        assert_eq!(tokens.get(&used).unwrap(), None, "it is gone");
    }
}
