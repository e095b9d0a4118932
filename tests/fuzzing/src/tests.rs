use super::*;

#[test]
fn a_failure_is_found_and_reduced() {
    let check = |input: &[u8]| assert!(!input.windows(4).any(|part| part == b"\xff\xff\xff\xff"));
    let failed = catch_unwind(|| fuzz("own-test", &["\u{10ffff}"], check)).unwrap_err();
    let message = failed.downcast_ref::<String>().unwrap();
    assert!(message.contains("fails for the 4 bytes in "), "{message}");
}

#[test]
fn the_same_seed_gives_the_same_inputs() {
    let inputs = || {
        let seen = std::sync::Mutex::new(Vec::new());
        fuzz("own-test-of-seeds", &["word"], |input| seen.lock().unwrap().push(input.to_vec()));
        seen.into_inner().unwrap()
    };
    let (first, second) = (inputs(), inputs());
    assert!(first.len() as u64 >= ROUNDS && first == second);
}

#[test]
fn choices_end_with_their_bytes() {
    let mut choices = Choices::new(&[3, 1, 0, 255]);
    assert_eq!((choices.below(10), choices.below(300), choices.byte()), (3, 256, 255));
    assert!(
        choices.is_empty()
            && choices.below(7) == 0
            && !choices.one_in(2)
            && choices.text(&["a"], 9).is_empty()
    );
}
