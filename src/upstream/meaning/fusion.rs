//! Two rankings as one: reciprocal rank fusion (Cormack, Clarke and Büttcher, 2009).

use std::collections::HashMap;
use std::hash::Hash;

/// How many of the ranking by words count, and of that by meaning. Chosen on the development set, like what follows.
pub const MOST_BY_WORDS: usize = 20;
pub const MOST_BY_MEANING: usize = 50;
/// How fast the weight of a place falls.
const FALL: f32 = 5.0;
/// The weight of the ranking by meaning; the rest is that of words.
const WEIGHT: f32 = 0.4;

/// Returns the items that are best in both rankings, best first; equal ones as `words` has them.
///
/// Both have their best first, and have been cut to what counts. An item whose meaning is not known (`knows`) has the same place in
/// both.
pub fn fuse<T: Copy + Eq + Hash>(
    words: &[T],
    meaning: &[T],
    knows: impl Fn(&T) -> bool,
    limit: usize,
) -> Vec<T> {
    let mut scores: HashMap<T, (f32, usize)> = HashMap::new();
    for (ranking, weight) in [(words, 1.0 - WEIGHT), (meaning, WEIGHT)] {
        for (place, item) in ranking.iter().enumerate() {
            let next = scores.len();
            scores.entry(*item).or_insert((0.0, next)).0 += weight / (FALL + 1.0 + place as f32);
        }
    }
    for (place, item) in words.iter().enumerate().filter(|(_, item)| !knows(item)) {
        scores.entry(*item).and_modify(|(score, _)| *score += WEIGHT / (FALL + 1.0 + place as f32));
    }
    let mut fused: Vec<_> = scores.into_iter().collect();
    fused.sort_by(|(_, a), (_, b)| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    fused.into_iter().map(|(item, _)| item).take(limit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_both_rankings_is_first() {
        let fuse = |words: &[u8], meaning: &[u8], limit| fuse(words, meaning, |_| true, limit);
        assert_eq!(fuse(&[1, 2, 3], &[4, 3, 2], 10), [2, 3, 1, 4]);
        assert_eq!(fuse(&[1, 2], &[], 10), [1, 2]);
        assert_eq!(fuse(&[], &[7, 8], 1), [7]);
        assert!(fuse(&[], &[], 3).is_empty());
    }

    #[test]
    fn what_has_not_been_read_keeps_its_place_by_words() {
        assert_eq!(fuse(&[1, 2, 3], &[4, 3, 2], |item| *item != 1, 10), [1, 2, 3, 4]);
        assert_eq!(fuse(&[1, 2, 3], &[3], |item| *item != 2, 10), [2, 3, 1]);
    }
}
