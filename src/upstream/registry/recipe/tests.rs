//! Tests of recipes.

use super::*;

fn entry(value: Value) -> Entry {
    serde_json::from_value(value).unwrap()
}

fn only(value: Value) -> Result<Recipe, Unusable> {
    entry(value).recipes().remove(0)
}

#[test]
fn packages_become_command_lines() {
    let answers: BTreeMap<String, String> = [("variable.KEY".to_owned(), "k".to_owned())].into();
    for (package, command) in [
        (json!({ "registryType": "npm", "identifier": "@x/y", "version": "1.2" }), "npx -y @x/y@1.2"),
        (
            json!({ "registryType": "pypi", "identifier": "y", "version": "1.2", "runtimeHint": "sh" }),
            "uvx y@1.2",
        ),
        (
            json!({ "registryType": "npm", "identifier": "y", "runtimeArguments": [{ "type": "named", "name": "--yes" }],
                "packageArguments": [
                    { "type": "positional", "value": "serve" },
                    { "type": "named", "name": "--port", "default": "80" },
                    { "type": "named", "name": "-d", "value": "/a b" },
                    { "type": "named", "name": "--optional", "valueHint": "x" },
                    { "type": "named", "name": "--stdio" },
                ] }),
            "npx --yes y serve '--port=80' -d '/a b' --stdio",
        ),
        (
            json!({ "registryType": "oci", "identifier": "ghcr.example/a/b", "version": "1",
                "environmentVariables": [{ "name": "KEY", "isSecret": true }] }),
            "docker run -i --rm -e KEY ghcr.example/a/b:1",
        ),
        (
            json!({ "registryType": "oci", "identifier": "a/b@sha256:0a", "version": "1" }),
            "docker run -i --rm a/b@sha256:0a",
        ),
        (json!({ "registryType": "nuget", "identifier": "A.B", "version": "1" }), "dnx A.B@1 --yes"),
        (
            json!({ "registryType": "pypi", "identifier": "y", "registryBaseUrl": "https://pypi.example" }),
            "uvx y",
        ),
        (
            json!({ "registryType": "oci", "identifier": "c.example/a", "registryBaseUrl": "https://c.example" }),
            "docker run -i --rm c.example/a",
        ),
    ] {
        let recipe = only(json!({ "packages": [package] })).unwrap();
        let definition = recipe.definition(&answers);
        let words = [strings(&definition["command"]), strings(&definition["args"])].concat();
        assert_eq!(shlex::try_join(words.iter().map(String::as_str)).unwrap(), command);
        if command.contains("KEY") {
            assert_eq!(definition["env"], json!({ "KEY": "k" }));
        }
    }
}

#[test]
fn a_remote_server_has_its_url_and_headers_filled_in() {
    let recipe = only(json!({ "remotes": [{
        "type": "sse",
        "url": "https://{tenant}.example/mcp/{other}",
        "variables": { "tenant": { "isRequired": true } },
        "headers": [
            { "name": "Authorization", "value": "Bearer {token}", "variables": { "token": { "isRequired": true, "isSecret": true } } },
            { "name": "X-Optional" },
        ],
    }] }))
    .unwrap();
    let wanted: Vec<_> = recipe.wanted().into_iter().map(|it| (it.id.clone(), it.is_asked())).collect();
    assert_eq!(
        wanted,
        [
            ("url.tenant".into(), true),
            ("header.Authorization.token".into(), true),
            ("header.X-Optional".into(), false),
        ]
    );
    assert_eq!(recipe.shown(), "https://<tenant>.example/mcp/{other}");
    let answers = wanted.into_iter().map(|(id, _)| (id, "me".to_owned())).take(2).collect();
    assert_eq!(
        recipe.definition(&answers),
        json!({ "type": "sse", "url": "https://me.example/mcp/{other}", "headers": { "Authorization": "Bearer me" } })
    );
}

#[test]
fn a_recipe_that_could_do_something_else_is_refused() {
    for (value, why) in [
        (
            json!({ "packages": [{ "registryType": "mcpb", "identifier": "x" }] }),
            "unpack it, and add the command of its manifest with `codebridge servers add",
        ),
        (
            json!({ "packages": [{ "registryType": "npm", "identifier": "x",
                "registryBaseUrl": "https://npm.corp.example/" }] }),
            "in another registry, https://npm.corp.example/: install it from there",
        ),
        (json!({ "packages": [{ "registryType": "npm", "identifier": "--eval" }] }), "is invalid"),
        (json!({ "packages": [{ "registryType": "npm", "identifier": "a b" }] }), "is invalid"),
        (
            json!({ "packages": [{ "registryType": "npm", "identifier": "a", "version": "1;x" }] }),
            "is invalid",
        ),
        (
            json!({ "packages": [{ "registryType": "npm", "identifier": "a", "transport": { "type": "sse" } }] }),
            "speaks 'sse'",
        ),
        (
            json!({ "packages": [{ "registryType": "npm", "identifier": "a",
                "packageArguments": [{ "value": "--url=https://x/${AWS_SECRET}" }] }] }),
            "could refer to variables",
        ),
        (json!({ "remotes": [{ "url": "https://x.example/${HOME}" }] }), "could refer to variables"),
        (
            json!({ "remotes": [{ "url": "https://x.example/{a}{b}",
                "variables": { "a": { "value": "$" }, "b": { "value": "{HOME}" } } }] }),
            "could refer to variables",
        ),
        (json!({ "remotes": [{ "url": "file:///etc/passwd" }] }), "its URL is invalid"),
        (
            json!({ "remotes": [{ "url": "https://x", "headers": [{ "name": "A", "value": "a\r\nb" }] }] }),
            "control",
        ),
    ] {
        let refused = only(value.clone()).unwrap_err().to_string();
        assert!(refused.contains(why), "{value}: {refused}");
    }
}
