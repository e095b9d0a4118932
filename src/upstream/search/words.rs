//! Splits text into words, in the same way for tool names, prose and queries.

use super::stem::stem;

/// A longer run of letters is not a word, but encoded data; only its beginning is used.
const LONGEST_RUN: usize = 48;

/// Product names with capitals inside, which are one word.
const ONE_WORD: [&str; 48] = [
    "appsync", "athenahealth", "bigquery", "bitbucket", "chatgpt", "circleci", "clickhouse", "clickup",
    "cloudflare", "cloudformation", "cloudfront", "cloudtrail", "cloudwatch", "cockroachdb", "devops",
    "dynamodb", "elasticsearch", "facetime", "github", "gitlab", "gitops", "graphql", "hubspot", "icloud",
    "influxdb", "ipad", "iphone", "javascript", "latex", "linkedin", "mariadb", "mongodb", "mysql", "nosql",
    "onedrive", "onenote", "openai", "openapi", "paypal", "postgresql", "powerpoint", "pubsub", "rabbitmq",
    "sharepoint", "typescript", "whatsapp", "wordpress", "youtube",
];

/// Calls `each` with every word of a text, in lower case.
///
/// Words end at any character that is not a letter or digit, and inside `camelCase` and `JSONPath`. An apostrophe joins,
/// and a possessive `'s` is dropped. Scripts without spaces are split into pairs of characters.
pub(super) fn for_each_word(text: &str, mut each: impl FnMut(&str)) {
    let mut run = Run::default();
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        let next = characters.peek().copied();
        if is_unspaced(c) {
            run.end(&mut each);
            let pair: String =
                [Some(c), next.filter(|next| is_unspaced(*next))].into_iter().flatten().collect();
            each(&pair);
        } else if c.is_alphanumeric() {
            run.push(c);
        } else if matches!(c, '\'' | '’')
            && run.last.is_some_and(char::is_alphabetic)
            && next.is_some_and(char::is_alphabetic)
        {
            run.apostrophe = Some(run.letters.len());
        } else {
            run.end(&mut each);
        }
    }
    run.end(&mut each);
}

/// Returns the words of a text.
pub(super) fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    for_each_word(text, |word| words.push(word.to_owned()));
    words
}

/// Returns the stems of the words of a text.
pub(super) fn stems(text: &str) -> Vec<String> {
    words(text).iter().map(|word| stem(word)).collect()
}

/// A run of letters and digits, in lower case, and the places where capitals split it.
#[derive(Default)]
struct Run {
    letters: String,
    length: usize,
    splits: Vec<usize>,
    /// The last two characters, as they were written.
    last: Option<char>,
    before_last: Option<char>,
    /// The position of an apostrophe.
    apostrophe: Option<usize>,
}

impl Run {
    fn push(&mut self, c: char) {
        self.length += 1;
        if self.length > LONGEST_RUN {
            return;
        }
        if let Some(last) = self.last {
            if c.is_uppercase() && last.is_lowercase() {
                self.splits.push(self.letters.len());
            } else if c.is_lowercase()
                && last.is_uppercase()
                && self.before_last.is_some_and(char::is_uppercase)
            {
                self.splits.push(self.letters.len() - last.len_utf8());
            }
        }
        self.before_last = self.last;
        self.last = Some(c);
        self.letters.extend(c.to_lowercase());
    }

    fn end(&mut self, each: &mut impl FnMut(&str)) {
        if self.length == 0 {
            return;
        }
        if self.apostrophe.is_some_and(|at| &self.letters[at..] == "s") {
            self.letters.pop();
        }
        let end = self.letters.len();
        if self.splits.is_empty() || ONE_WORD.binary_search(&self.letters.as_str()).is_ok() {
            each(&self.letters);
        } else {
            let mut start = 0;
            for split in self.splits.iter().copied().chain([end]) {
                // A single letter belongs to what follows it: OAuth.
                if split - start > 1 || split == end {
                    each(&self.letters[start..split]);
                    start = split;
                }
            }
        }
        self.letters.clear();
        self.splits.clear();
        (self.length, self.last, self.before_last, self.apostrophe) = (0, None, None, None);
    }
}

/// Returns whether a character is of a script without spaces: Thai, kana, Han, hangul.
fn is_unspaced(c: char) -> bool {
    matches!(c, '\u{0e00}'..='\u{0e7f}' | '\u{3040}'..='\u{30ff}' | '\u{3400}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_names_is_sorted() {
        assert!(ONE_WORD.is_sorted());
    }

    #[test]
    fn names_are_split_at_case_and_punctuation() {
        assert_eq!(words("create_pull-request.v2"), ["create", "pull", "request", "v2"]);
        assert_eq!(words("getHTTPResponseCode"), ["get", "http", "response", "code"]);
        assert_eq!(words("API-post-search"), ["api", "post", "search"]);
        assert_eq!(words("k8sPods OAuth2 S3"), ["k8s", "pods", "oauth2", "s3"]);
        assert_eq!(words("GitHub and MongoDB, PivotTable"), ["github", "and", "mongodb", "pivot", "table"]);
    }

    #[test]
    fn apostrophes_belong_to_a_word() {
        assert_eq!(
            words("the competitor's page, don’t 'quote' it"),
            ["the", "competitor", "page", "dont", "quote", "it"]
        );
    }

    #[test]
    fn scripts_without_spaces_become_pairs() {
        assert_eq!(words("文件検索 API"), ["文件", "件検", "検索", "索", "api"]);
        assert_eq!(words("Größe"), ["größe"]);
    }

    #[test]
    fn a_blob_is_one_short_word() {
        let words = words(&"x".repeat(1_000_000));
        assert_eq!(words.len(), 1);
        assert_eq!(words[0].len(), LONGEST_RUN);
    }
}
