//! Stop words: too common to say what a tool does.

/// English function words and polite phrases, sorted, without apostrophes.
const STOP_WORDS: &[&str] = &[
    "a", "able", "about", "according", "actually", "after", "afternoon", "again", "ago", "ahead", "all",
    "almost", "alone", "along", "already", "also", "although", "always", "am", "among", "an", "and",
    "another", "any", "anybody", "anymore", "anyone", "anything", "anyway", "anywhere", "apart", "appear",
    "appears", "april", "are", "around", "as", "asap", "aside", "ask", "asked", "asks", "at", "august",
    "away", "be", "became", "because", "become", "becomes", "been", "before", "being", "beside", "besides",
    "best", "better", "between", "beyond", "bit", "both", "bring", "brings", "brought", "but", "by", "came",
    "can", "cannot", "cant", "cases", "certain", "come", "comes", "coming", "could", "couldnt", "couple",
    "course", "december", "despite", "did", "didnt", "do", "does", "doesnt", "doing", "done", "dont", "down",
    "dozen", "dozens", "during", "each", "eight", "either", "eleven", "else", "elsewhere", "enough",
    "especially", "etc", "even", "evening", "ever", "every", "everybody", "everybodys", "everyone",
    "everything", "everywhere", "exactly", "fact", "far", "february", "few", "fifth", "fine", "five", "for",
    "four", "fourth", "from", "further", "gave", "get", "gets", "getting", "give", "given", "gives", "go",
    "goes", "going", "gone", "good", "got", "gotten", "great", "had", "half", "happen", "happened",
    "happens", "hard", "has", "hasnt", "have", "havent", "having", "he", "hello", "help", "her", "here",
    "hers", "hi", "him", "his", "honest", "how", "however", "hundred", "hundreds", "i", "id", "if", "ill",
    "im", "important", "in", "instead", "into", "is", "isnt", "it", "its", "itself", "ive", "january",
    "july", "june", "just", "keep", "keeps", "kept", "kind", "know", "known", "knows", "last", "later",
    "least", "less", "let", "lets", "like", "likely", "little", "look", "looking", "lot", "lots", "made",
    "make", "makes", "making", "many", "may", "maybe", "me", "mean", "means", "meanwhile", "might",
    "million", "mine", "moment", "more", "most", "much", "must", "my", "myself", "nearly", "need", "needed",
    "needs", "neither", "never", "new", "next", "nice", "nine", "no", "nobody", "none", "nor", "not",
    "nothing", "november", "now", "nowhere", "october", "of", "off", "often", "ok", "okay", "on", "once",
    "one", "ones", "only", "onto", "or", "other", "others", "our", "ours", "out", "over", "own", "perhaps",
    "please", "plenty", "plus", "possible", "put", "quick", "quickly", "quite", "rather", "real", "really",
    "remain", "remains", "right", "said", "same", "say", "says", "see", "seem", "seems", "seen", "september",
    "seven", "several", "shall", "she", "should", "simply", "since", "six", "so", "some", "somebody",
    "somehow", "someone", "something", "sometimes", "somewhere", "soon", "stay", "stayed", "stays", "still",
    "straight", "stuff", "such", "sudden", "suddenly", "sure", "take", "taken", "takes", "taking", "tell",
    "ten", "than", "thank", "thanks", "that", "thats", "the", "their", "theirs", "them", "then", "there",
    "therefore", "these", "they", "theyre", "thing", "things", "think", "third", "this", "those", "though",
    "thousand", "thousands", "three", "through", "throughout", "thus", "till", "to", "today", "together",
    "tomorrow", "tonight", "too", "took", "touched", "toward", "towards", "true", "try", "trying", "twelve",
    "twice", "two", "under", "unless", "until", "up", "upon", "us", "use", "used", "uses", "using", "usual",
    "usually", "various", "very", "via", "want", "wanted", "wants", "was", "wasnt", "way", "we", "well",
    "went", "were", "weve", "what", "whatever", "whats", "when", "whenever", "where", "wherever", "whether",
    "which", "whichever", "while", "who", "whoever", "whole", "whom", "whose", "why", "will", "wish", "with",
    "within", "without", "wonder", "wont", "world", "worth", "would", "yeah", "yes", "yesterday", "yet",
    "you", "your", "yours", "yourself", "zero",
];

/// Returns whether a word is left out of queries and of the index.
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
    fn words_that_tools_are_named_after_are_no_stop_words() {
        for word in ["list", "issue", "create", "time", "file", "set"] {
            assert!(!is_stop_word(word), "{word}");
        }
    }
}
