//! Asks a registry: one request at a time, each bounded in time and size.

use std::path::Path;
use std::time::Duration;

use http::header;
use reqwest::Url;

use super::cache::Cache;
use super::document::{Page, is_name, parse_page, plain};
use super::entry::Entry;
use super::error::RegistryError;
use crate::upstream::discovery::HttpOptions;
use crate::upstream::pool::{HttpError, http_client};

/// How long all requests of a search may take together.
const LIMIT: Duration = Duration::from_secs(15);
/// Bytes of a page.
const LONGEST_PAGE: usize = 4 << 20;
/// Pages that are read for a word, and entries of a page.
const MOST_PAGES: usize = 5;
const PAGE: &str = "100";
/// Words of a search that the registry is asked about, and bytes of each.
const MOST_WORDS: usize = 4;
const LONGEST_WORD: usize = 100;

/// A registry, and its answers of before.
#[derive(Debug)]
pub struct Registry {
    /// None if none is set.
    base: Option<Url>,
    cache: Cache,
    limit: Duration,
}

/// The servers that were found.
#[derive(Debug, Default)]
pub struct Found {
    /// The best first.
    pub entries: Vec<Entry>,
    /// How many entries of the registry were not understood.
    pub left_out: usize,
    /// Whether there are more.
    pub has_more: bool,
}

impl Registry {
    pub(in crate::upstream) fn new(base: Option<&Url>, state_dir: &Path) -> Self {
        Self { base: base.cloned(), cache: Cache::in_state(state_dir), limit: LIMIT }
    }

    /// Returns the servers that fit some words best.
    ///
    /// # Errors
    /// No registry is set, or it gives no list of servers.
    pub async fn find(&self, words: &str, limit: usize) -> Result<Found, RegistryError> {
        let base = self.base()?;
        let words: Vec<String> =
            words.split_whitespace().take(MOST_WORDS).map(|word| cut(word).to_lowercase()).collect();
        let asked = async {
            let mut found = Found::default();
            // Registries look for one text in names. No words: all servers.
            let searches = if words.is_empty() { vec![String::new()] } else { words.clone() };
            for word in &searches {
                self.search(base, word, &mut found, |entries| entries.len() >= limit.max(1) * 2).await?;
            }
            Ok(found)
        };
        let mut found = self.within(base, asked).await?;
        let score = |entry: &Entry| {
            let title = entry.title.as_deref().unwrap_or_default();
            let text = format!("{} {title} {}", entry.name, entry.description).to_lowercase();
            words.iter().filter(|word| text.contains(word.as_str())).count()
        };
        found.entries.sort_by_key(|entry| std::cmp::Reverse(score(entry)));
        found.has_more |= found.entries.len() > limit;
        found.entries.truncate(limit);
        Ok(found)
    }

    /// Returns the server of a name.
    ///
    /// # Errors
    /// No registry is set, it has no such server, or gives no list of servers.
    pub async fn get(&self, name: &str) -> Result<Entry, RegistryError> {
        let base = self.base()?;
        let unknown = || RegistryError::Unknown { host: host_of(base), name: plain(cut(name)) };
        if !is_name(name) {
            return Err(unknown());
        }
        let asked = async {
            let mut found = Found::default();
            let is_there = |entries: &[Entry]| entries.iter().any(|entry| entry.name == name);
            self.search(base, name, &mut found, is_there).await?;
            Ok(found)
        };
        let found = self.within(base, asked).await?;
        found.entries.into_iter().find(|entry| entry.name == name).ok_or_else(unknown)
    }

    fn base(&self) -> Result<&Url, RegistryError> {
        self.base.as_ref().ok_or(RegistryError::NotSet)
    }

    async fn within<T>(
        &self,
        base: &Url,
        asked: impl Future<Output = Result<T, RegistryError>>,
    ) -> Result<T, RegistryError> {
        let late = || RegistryError::TimedOut { host: host_of(base), limit: self.limit };
        tokio::time::timeout(self.limit, asked).await.unwrap_or_else(|_| Err(late()))
    }

    /// Adds the entries of pages until there are enough.
    async fn search(
        &self,
        base: &Url,
        word: &str,
        found: &mut Found,
        is_enough: impl Fn(&[Entry]) -> bool,
    ) -> Result<(), RegistryError> {
        let mut cursor: Option<String> = None;
        // Searches for several words may come across the same ones.
        let mut left_out_here = 0;
        for _ in 0..MOST_PAGES {
            let mut url = base.clone();
            {
                let mut query = url.query_pairs_mut();
                if !word.is_empty() {
                    query.append_pair("search", word);
                }
                query.append_pair("limit", PAGE).append_pair("version", "latest");
                if let Some(cursor) = &cursor {
                    query.append_pair("cursor", cursor);
                }
            }
            let Page { entries, left_out, next } = self.page(base, url).await?;
            left_out_here += left_out;
            found.left_out = found.left_out.max(left_out_here);
            for entry in entries {
                if !found.entries.iter().any(|known| known.name == entry.name) {
                    found.entries.push(entry);
                }
            }
            match next {
                // The same page again would come for ever.
                Some(next) if cursor.as_ref() != Some(&next) => cursor = Some(next),
                _ => return Ok(()),
            }
            if is_enough(&found.entries) {
                break;
            }
        }
        found.has_more = true;
        Ok(())
    }

    async fn page(&self, base: &Url, url: Url) -> Result<Page, RegistryError> {
        if let Some(page) = self.cache.get(url.as_str()).and_then(|answer| parse_page(&answer).ok()) {
            return Ok(page);
        }
        let answer = ask(base, url.clone()).await?;
        let page = parse_page(&answer);
        let page = page.map_err(|why| RegistryError::Unreadable { host: host_of(base), why })?;
        self.cache.put(url.as_str(), &answer);
        Ok(page)
    }
}

async fn ask(base: &Url, url: Url) -> Result<Vec<u8>, RegistryError> {
    let unreachable = |why: String| RegistryError::Unreachable { host: host_of(base), why: plain(&why) };
    let failed = |error: reqwest::Error| unreachable(HttpError::from(error).to_string());
    let client =
        http_client(url.as_str(), &HttpOptions::default()).map_err(|error| unreachable(error.to_string()))?;
    let mut response =
        client.get(url).header(header::ACCEPT, "application/json").send().await.map_err(failed)?;
    let status = response.status();
    if !status.is_success() {
        return Err(unreachable(format!("it responded with HTTP {status}")));
    }
    let mut answer = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if answer.len() + chunk.len() > LONGEST_PAGE {
            return Err(RegistryError::TooLong { host: host_of(base), most: LONGEST_PAGE });
        }
        answer.extend_from_slice(&chunk);
    }
    Ok(answer)
}

/// Returns the host of a URL, with its port.
fn host_of(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

fn cut(word: &str) -> &str {
    word.char_indices().nth(LONGEST_WORD).map_or(word, |(end, _)| &word[..end])
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_registry_that_never_answers_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dir = tempfile::tempdir().unwrap();
        let base = format!("http://{}/v0/servers", listener.local_addr().unwrap()).parse().unwrap();
        let mut registry = Registry::new(Some(&base), dir.path());
        registry.limit = Duration::from_millis(200);
        let error = registry.find("x", 5).await.unwrap_err();
        assert!(matches!(error, RegistryError::TimedOut { .. }), "{error}");
        drop(listener);
        let refused = registry.find("x", 5).await.unwrap_err();
        assert!(matches!(refused, RegistryError::Unreachable { .. }), "{refused}");
    }

    #[tokio::test]
    async fn without_a_registry_the_error_says_what_to_set() {
        let dir = tempfile::tempdir().unwrap();
        let error = Registry::new(None, dir.path()).find("x", 5).await.unwrap_err();
        assert!(error.hint().unwrap().contains("MCP_BRIDGE_REGISTRY"));
    }
}
