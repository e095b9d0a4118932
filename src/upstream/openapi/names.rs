//! Names of tools: those of operations in snake case.

use crate::upstream::alias::aliases;

/// Characters of a name.
const LONGEST: usize = 128;

/// Returns a name for each operation: its id, else its method and path. No name occurs twice.
pub(super) fn names<'a>(
    operations: impl IntoIterator<Item = (Option<&'a str>, &'a str, &'a str)>,
) -> Vec<String> {
    let name = |(id, method, path): (Option<&str>, &str, &str)| {
        let id = id.map(snake_case).filter(|id| id.bytes().any(|byte| byte != b'_'));
        let mut name = id.unwrap_or_else(|| {
            let path = snake_case(path);
            let path = path.trim_matches('_');
            if path.is_empty() {
                method.to_ascii_lowercase()
            } else {
                format!("{}_{path}", method.to_ascii_lowercase())
            }
        });
        name.truncate(LONGEST);
        name
    };
    let names: Vec<String> = operations.into_iter().map(name).collect();
    aliases(names.iter().map(String::as_str))
}

/// Returns an identifier in snake case: `listHTTPServers` becomes `list_http_servers`. It is ASCII.
fn snake_case(id: &str) -> String {
    let characters: Vec<char> = id.trim().chars().take(4 * LONGEST).collect();
    let mut snake = String::new();
    for (at, &c) in characters.iter().enumerate() {
        if !c.is_ascii_alphanumeric() && c != '_' {
            // A run of others is one separator.
            let in_run = at > 0 && !characters[at - 1].is_ascii_alphanumeric() && characters[at - 1] != '_';
            if !in_run {
                snake.push('_');
            }
            continue;
        }
        let before = at.checked_sub(1).map(|at| characters[at]);
        let begins_word = c.is_ascii_uppercase()
            && before.is_some_and(|before| {
                let next_is_small = characters.get(at + 1).is_some_and(char::is_ascii_lowercase);
                before.is_ascii_lowercase()
                    || before.is_ascii_digit()
                    || (before.is_ascii_uppercase() && next_is_small)
            });
        if begins_word {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_becomes_snake_case() {
        for (id, expected) in [
            ("getPet", "get_pet"),
            ("GetPetById", "get_pet_by_id"),
            ("repos/get-content", "repos_get_content"),
            ("listHTTPServers", "list_http_servers"),
            ("getV2Items", "get_v2_items"),
            ("read_items__item_id__get", "read_items__item_id__get"),
            ("already_snake", "already_snake"),
            ("apps.list - all", "apps_list_all"),
            ("PostAccountsAccount", "post_accounts_account"),
            ("ID", "id"),
            ("createOAuth2Token", "create_o_auth2_token"),
        ] {
            assert_eq!(snake_case(id), expected, "{id}");
        }
    }

    #[test]
    fn every_operation_has_a_name_of_its_own() {
        let operations = [
            (Some("getPet"), "GET", "/a"),
            (Some("get_pet"), "GET", "/b"),
            (None, "GET", "/pets/{petId}/toys"),
            (None, "DELETE", "/"),
            (Some("import"), "POST", "/c"),
            (Some("3dModel"), "POST", "/d"),
            (Some("日本"), "GET", "/e"),
        ];
        assert_eq!(
            names(operations),
            ["get_pet", "get_pet_2", "get_pets_pet_id_toys", "delete", "import_", "_3d_model", "get_e"]
        );
    }
}
