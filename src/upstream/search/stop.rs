//! Words that say nothing of what a tool does.

/// English function words, and what people say around a wish. Sorted, without apostrophes.
const STOP_WORDS: &[&str] = &[
    "a", "able", "about", "actually", "after", "again", "ago", "ahead", "all", "almost", "already", "also",
    "although", "always", "am", "among", "an", "and", "another", "any", "anybody", "anymore", "anyone",
    "anything", "anyway", "are", "around", "as", "ask", "asked", "asks", "at", "away", "be", "because",
    "been", "before", "being", "best", "better", "between", "both", "but", "by", "can", "cannot", "cant",
    "certain", "come", "comes", "coming", "could", "couldnt", "did", "didnt", "do", "does", "doesnt",
    "doing", "done", "dont", "down", "during", "each", "either", "else", "enough", "especially", "etc",
    "even", "ever", "every", "everybody", "everyone", "everything", "exactly", "few", "for", "from",
    "further", "get", "gets", "getting", "give", "given", "gives", "go", "goes", "going", "gone", "good",
    "got", "had", "has", "hasnt", "have", "havent", "having", "he", "hello", "help", "her", "here", "hers",
    "hi", "him", "his", "how", "however", "i", "id", "if", "ill", "im", "in", "instead", "into", "is",
    "isnt", "it", "its", "itself", "ive", "just", "kind", "know", "known", "knows", "last", "later", "least",
    "less", "let", "lets", "like", "likely", "look", "looking", "lot", "lots", "made", "make", "makes",
    "making", "many", "may", "maybe", "me", "mean", "means", "meanwhile", "might", "mine", "more", "most",
    "much", "must", "my", "myself", "need", "needed", "needs", "neither", "never", "new", "next", "no",
    "nobody", "none", "nor", "not", "nothing", "now", "of", "off", "often", "ok", "okay", "on", "once",
    "one", "ones", "only", "onto", "or", "other", "others", "our", "ours", "out", "over", "own", "perhaps",
    "please", "possible", "put", "quite", "rather", "really", "right", "said", "same", "say", "says", "see",
    "seem", "seems", "seen", "several", "shall", "she", "should", "since", "so", "some", "somebody",
    "somehow", "someone", "something", "sometimes", "soon", "still", "straight", "such", "sure", "take",
    "taken", "takes", "taking", "tell", "than", "thank", "thanks", "that", "thats", "the", "their", "theirs",
    "them", "then", "there", "therefore", "these", "they", "theyre", "thing", "things", "think", "this",
    "those", "though", "through", "thus", "to", "today", "together", "tomorrow", "too", "toward", "towards",
    "try", "trying", "under", "unless", "until", "up", "upon", "us", "use", "used", "uses", "using",
    "usually", "very", "via", "want", "wanted", "wants", "was", "wasnt", "way", "we", "well", "went", "were",
    "weve", "what", "whatever", "whats", "when", "whenever", "where", "wherever", "whether", "which",
    "whichever", "while", "who", "whoever", "whole", "whom", "whose", "why", "will", "wish", "with",
    "within", "without", "wont", "would", "yes", "yesterday", "yet", "you", "your", "yours", "yourself",
];

/// Whether a word is left out of queries and of what is looked for together.
pub(super) fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.binary_search(&word).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted_and_without_repeats() {
        let wrong = STOP_WORDS.windows(2).find(|pair| pair[0] >= pair[1]);
        assert_eq!(wrong, None);
    }

    #[test]
    fn words_of_the_field_are_kept() {
        for word in ["list", "issue", "create", "time", "file", "set"] {
            assert!(!is_stop_word(word), "{word}");
        }
    }
}
