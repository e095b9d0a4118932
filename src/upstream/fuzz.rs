//! Names of servers and tools, as servers and users write them.

use std::collections::HashSet;

use codebridge_fuzz::{Choices, fuzz};

use super::alias::{alias, aliases};

#[test]
fn aliases_are_unique_identifiers() {
    let parts = [
        "a", "B", "_", "-", "2", "_2", "class", " ", "\u{130}", "\u{df}", "\u{212a}", "None", "is", ".",
        "\u{65e5}",
    ];
    fuzz("aliases", &[], |bytes| {
        let mut choices = Choices::new(bytes);
        let names: Vec<String> = (0..choices.below(24)).map(|_| choices.text(&parts, 4)).collect();
        let given = aliases(names.iter().map(String::as_str));
        assert_eq!(given.len(), names.len());
        assert_eq!(given.iter().collect::<HashSet<_>>().len(), names.len(), "{names:?}: {given:?}");
        for (name, given) in names.iter().zip(&given) {
            let plain = alias(name);
            let follows = given == &plain
                || given
                    .strip_prefix(&format!("{plain}_"))
                    .is_some_and(|number| number.parse::<u32>().is_ok());
            assert!(follows, "{name:?} became {given:?}");
            let is_allowed = |byte: u8| byte == b'_' || byte.is_ascii_lowercase() || byte.is_ascii_digit();
            assert!(
                given.bytes().all(is_allowed) && !given.starts_with(|c: char| c.is_ascii_digit()),
                "{given:?}"
            );
            assert!(!matches!(given.as_str(), "" | "class" | "is" | "in" | "def"), "{given:?}");
            assert_eq!(alias(&plain), plain, "an alias has another alias");
        }
        // What comes later changes no alias.
        let fewer = choices.below(names.len() + 1);
        assert_eq!(aliases(names[..fewer].iter().map(String::as_str)), given[..fewer]);
    });
}
