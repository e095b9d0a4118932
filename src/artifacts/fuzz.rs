//! Any text as the name of an artifact.

use std::path::{Component, Path};

use codebridge_fuzz::fuzz;

use super::mime::mime_of;
use super::name::check;

#[test]
fn names_of_artifacts_stay_in_their_folder() {
    fuzz(
        "names_of_artifacts",
        &["..", ".staging", "report.csv", "\u{ad}", "\u{e0041}", "\u{2028}"],
        |bytes| {
            let name = String::from_utf8_lossy(bytes);
            match check(&name) {
                Ok(()) => {
                    let mut parts = Path::new(&*name).components();
                    let first = parts.next();
                    assert!(
                        first == Some(Component::Normal((*name).as_ref())) && parts.next().is_none(),
                        "{name:?}"
                    );
                    let root = Path::new("/artifacts");
                    assert_eq!(root.join(&*name).parent(), Some(root), "{name:?}");
                    assert!(name.len() <= 200 && !name.contains(char::is_control), "{name:?}");
                    assert!(!name.starts_with('.') && name.trim() == name, "{name:?}");
                }
                Err(error) => {
                    let error = error.to_string();
                    assert!(error.len() < 1000 && !error.contains(char::is_control), "{error:?}");
                }
            }
            assert!(mime_of(&name).is_ascii());
        },
    );
}
