//! OpenAPI documents as servers: their operations are tools, and requests go only where they may.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;

use serde_json::{Map, Value, json};

use crate::harness::bridge::Bridge;
use crate::harness::matrix::{Kind, which};
use crate::harness::process::{Output, Running};
use crate::harness::suite::ignore;
use crate::harness::{Runtime, Suite, TestEnv, eventually};
use crate::policy::write_policy;
use crate::server_access::{define, fake};
use crate::{python, tests};

const API: &str = include_str!("fakes/api_server.py");
const DOCUMENT: &str = include_str!("fakes/api.yaml");
/// Memory for an API with 5,000 operations: data of the process, without its program and its libraries.
const MOST_MEMORY: &str = "--data=402653184";
const KEY: &str = "shop-key-\"5\"-secret";

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "openapi",
        tests![
            operations_are_tools,
            arguments_go_where_the_document_says,
            credentials_are_sent_and_never_shown,
            tokens_are_issued_to_clients,
            only_allowed_hosts_are_called,
            a_document_that_cannot_be_used_is_an_error_of_its_server_alone,
            a_changed_document_is_read_again,
            policy_and_audit_hold,
            thousands_of_operations_and_circles_are_no_burden,
            real_documents_become_tools,
        ],
    );
    suite.on(
        &[Runtime::of_user(Kind::Crun)],
        "openapi",
        tests![results_are_python_values, a_call_that_is_given_up_ends_its_request],
    );
}

/// An API that runs, and its document.
struct Shop<'a> {
    env: &'a TestEnv,
    port: String,
    _server: Running,
}

impl<'a> Shop<'a> {
    fn open(env: &'a TestEnv) -> Self {
        let program = env.write("api/api_server.py", API);
        let mut server = env.command(which("python3").unwrap());
        server.argv.extend(["-u".into(), program.into()]);
        let mut server = server.spawn(env.guard(), Stdio::piped(), Stdio::piped(), Stdio::null());
        let mut port = String::new();
        BufReader::new(server.child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        let shop = Self { env, port: port.trim().to_owned(), _server: server };
        env.write("api/api.yaml", DOCUMENT.replace("PORT", &shop.port));
        shop
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    fn document(&self) -> String {
        self.env.folder("api").join("api.yaml").to_str().unwrap().to_owned()
    }

    /// Defines the server `shop` with the document in the file, and what else is said of it.
    fn define(&self, more: Value) {
        let mut shop = json!({ "openapi": self.document() });
        shop.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        define(self.env, &json!({ "shop": shop }));
    }

    /// What was requested so far.
    fn requests(&self) -> Vec<Value> {
        let mut stream = TcpStream::connect(format!("127.0.0.1:{}", self.port)).unwrap();
        stream.write_all(b"GET /requests HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
    }
}

fn command(env: &TestEnv, words: &[&str]) -> Output {
    env.bridge().var("SHOP_KEY", KEY).args(words).command().run(env.guard())
}

/// The result of a call that succeeds.
fn call(env: &TestEnv, tool: &str, arguments: Value) -> Value {
    let said = command(env, &["call", tool, &arguments.to_string()]).ok();
    serde_json::from_str(&said).unwrap_or_else(|_| panic!("{said}"))
}

/// The JSON text in a result.
fn parsed(result: &Value) -> Value {
    serde_json::from_str(result["content"][0]["text"].as_str().unwrap()).unwrap()
}

fn operations_are_tools(env: &TestEnv) {
    let shop = Shop::open(env);
    shop.define(json!({}));
    let listed: Value = serde_json::from_str(&command(env, &["servers", "refresh", "--json"]).ok()).unwrap();
    assert_eq!(listed[0]["state"], "known", "{listed}");
    assert_eq!((&listed[0]["transport"], &listed[0]["tools"]), (&json!("openapi"), &json!(17)));
    assert_eq!(listed[0]["description"], "Sells pets");
    let shown = command(env, &["tools", "show", "shop"]).ok();
    for line in [
        "list_pets(page?: int, limit?: int) -> list[{id?: int, name, parent?: dict}]",
        "create_pet(name, parent?: dict)",
        "get_pet(petId) -> {id?: int, name, parent?: dict}",
        "delete_pet(petId)",
        "get_text()",
        "upload(file: ",
    ] {
        assert!(shown.contains(line), "{line} is not in:\n{shown}");
    }
    let found = command(env, &["tools", "search", "add a pet"]).ok();
    assert!(found.contains("create_pet"), "{found}");
    assert_eq!(parsed(&call(env, "shop.list_pets", json!({ "limit": 2 })))[1]["name"], "pet 2");
    let made = call(env, "shop.create_pet", json!({ "name": "Ada", "parent": { "name": "Eve" } }));
    assert_eq!(parsed(&made), json!({ "id": 99, "name": "Ada", "parent": { "name": "Eve" } }));
    let meta = &made["_meta"]["codebridge/http"];
    assert_eq!((&meta["status"], &meta["headers"]["location"]), (&json!(201), &json!("/pets/99")));
    assert!(!made.to_string().contains("sid=5"), "{made}");
    let gone = call(env, "shop.delete_pet", json!({ "petId": "7" }));
    assert_eq!(gone["structuredContent"], json!({ "result": null }));
    let refused = command(env, &["call", "shop.get_pet", r#"{"pet": 1}"#]);
    assert!(refused.stderr.contains("did you mean 'petId'?"), "{refused}");
    let head = call(env, "shop.head_text", json!({}));
    assert_eq!(head["structuredContent"]["status"], 200);
}

fn arguments_go_where_the_document_says(env: &TestEnv) {
    let shop = Shop::open(env);
    shop.define(json!({}));
    let arguments = json!({ "tags": ["a b", "c&d"], "where": { "age": { "gt": 3 } }, "X-Trace": "t-1" });
    let seen = parsed(&call(env, "shop.echo", arguments));
    assert_eq!(seen["query"], json!([["tags", "a b"], ["tags", "c&d"], ["where[age][gt]", "3"]]));
    assert_eq!(seen["headers"]["x-trace"], "t-1");
    let seen = parsed(&call(env, "shop.echo_form", json!({ "name": "ü", "sizes": [1, 2] })));
    assert_eq!(seen["headers"]["content-type"], "application/x-www-form-urlencoded");
    assert_eq!(seen["body"], "name=%C3%BC&sizes=1&sizes=2");
    let file = json!({ "data": "aGVsbG8=", "filename": "a.txt", "mimeType": "text/plain" });
    let seen = parsed(&call(env, "shop.upload", json!({ "note": "n", "file": file })));
    let body = seen["body"].as_str().unwrap();
    assert!(body.contains("name=\"note\"\r\n\r\nn\r\n"), "{body}");
    assert!(body.contains("filename=\"a.txt\"\r\nContent-Type: text/plain\r\n\r\nhello\r\n"), "{body}");
    let seen = parsed(&call(env, "shop.upload_raw", json!({ "body": "AP8=" })));
    assert_eq!((&seen["method"], &seen["body"]), (&json!("PUT"), &json!("\u{0}\u{ff}")));
    let pet = parsed(&call(env, "shop.get_pet", json!({ "petId": "../a b/ü?x=1#y" })));
    assert_eq!(pet["id"], "../a b/ü?x=1#y");
    assert_eq!(pet["big"].to_string(), "123456789012345678901234567890");
    for up in ["..", "."] {
        let refused = command(env, &["call", "shop.get_pet", &json!({ "petId": up }).to_string()]);
        assert!(
            refused.code() == Some(65) && refused.stdout.contains("would lead to another path"),
            "{refused}"
        );
    }
    let saved = env.folder("here").join("pixel.png");
    command(env, &["call", "shop.get_image", "-o", saved.to_str().unwrap()]).ok();
    assert!(fs::read(&saved).unwrap().starts_with(b"\x89PNG"));
    command(env, &["call", "shop.get_file", "-o", saved.to_str().unwrap()]).ok();
    assert_eq!(fs::read(&saved).unwrap(), b"PK\x03\x04");
    let large = command(env, &["call", "shop.get_large"]);
    assert!(large.code() == Some(65) && large.stdout.contains("longer than 32 MiB"), "{large}");
}

/// All that a command printed.
fn said(output: &Output) -> String {
    format!("{}{}", output.stdout, output.stderr)
}

fn credentials_are_sent_and_never_shown(env: &TestEnv) {
    let shop = Shop::open(env);
    for (auth, place, sent) in [
        (
            json!({ "type": "header", "name": "X-Api-Key", "value": "${SHOP_KEY}" }),
            "/headers/x-api-key",
            json!(KEY),
        ),
        (
            json!({ "type": "header", "name": "Authorization", "value": "Bearer ${SHOP_KEY}" }),
            "/headers/authorization",
            json!(format!("Bearer {KEY}")),
        ),
        (json!({ "type": "query", "name": "key", "value": "${SHOP_KEY}" }), "/query/0", json!(["key", KEY])),
        (
            json!({ "type": "basic", "name": "ann", "value": "${SHOP_KEY}" }),
            "/headers/authorization",
            json!("Basic YW5uOnNob3Ata2V5LSI1Ii1zZWNyZXQ="),
        ),
        (Value::Null, "/headers/x-key", json!(KEY)),
        (Value::Null, "/headers/x-shop", json!(format!("of {KEY}"))),
    ] {
        let mut headers = json!({ "X-Org": "acme" });
        match place {
            "/headers/x-key" => headers["X-Key"] = json!("${SHOP_KEY}"),
            "/headers/x-shop" => headers["X-Shop"] = json!("of ${SHOP_KEY}"),
            _ => {}
        }
        shop.define(json!({ "auth": auth, "headers": headers }));
        let echoed = env
            .bridge()
            .var("SHOP_KEY", KEY)
            .var("MCP_BRIDGE_LOG_LEVEL", "trace")
            .args(&["call", "shop.echo"])
            .command()
            .run(env.guard());
        assert_eq!(echoed.code(), Some(0), "{echoed}");
        let request = shop.requests().pop().unwrap();
        assert_eq!(request.pointer(place), Some(&sent), "{request}");
        assert_eq!(request["headers"]["x-org"], "acme");
        assert!(echoed.stdout.contains("[auth]"), "{echoed}");
        let failed = command(env, &["call", "shop.get_pet", r#"{"petId": "missing"}"#]);
        assert!(failed.code() == Some(65) && failed.stdout.contains("HTTP 404 Not Found"), "{failed}");
        let shown = command(env, &["tools", "show", "shop.echo"]);
        let listed = command(env, &["servers", "--json"]);
        let recorded = command(env, &["audit", "--json"]);
        for output in [&echoed, &failed, &shown, &listed, &recorded] {
            let said = said(output);
            for secret in ["shop-key", "YW5uOnNob3A"] {
                assert!(!said.contains(secret), "{output}");
            }
        }
        // What the definition fills in is no argument.
        assert_eq!(shown.stdout.contains("X-Api-Key"), place != "/headers/x-api-key", "{shown}");
    }
    let without = env.bridge().args(&["call", "shop.echo"]).command().run(env.guard());
    assert!(without.stderr.contains("environment variable 'SHOP_KEY' is not set"), "{without}");
}

fn tokens_are_issued_to_clients(env: &TestEnv) {
    let shop = Shop::open(env);
    let auth = |secret: &str| {
        json!({ "auth": { "type": "oauth2", "tokenUrl": shop.url("/token"), "clientId": "client-id",
                          "clientSecret": secret, "scopes": ["read", "write"] } })
    };
    shop.define(auth("client-secret-1"));
    let protected = call(env, "shop.get_protected", json!({}));
    assert_eq!(parsed(&protected), json!({ "token": "Bearer [auth]" }));
    let token = shop.requests().into_iter().find(|request| request["path"] == "/token").unwrap();
    assert_eq!(token["body"], "grant_type=client_credentials&scope=read+write");
    shop.define(auth("client-secret-2"));
    let refused = command(env, &["call", "shop.get_protected"]);
    assert!(
        refused
            .stdout
            .contains("could not get an access token: the issuer answered with HTTP 401: invalid_client"),
        "{refused}"
    );
    assert!(!said(&refused).contains("client-secret"), "{refused}");
}

fn only_allowed_hosts_are_called(env: &TestEnv) {
    let shop = Shop::open(env);
    let fetched = json!({
        "openapi": "3.1.0", "servers": [{ "url": "/" }],
        "paths": { "/text": { "get": { "operationId": "getText" } }, "/moved": { "get": { "operationId": "getMoved" } } },
    });
    env.write("api/fetched.json", fetched.to_string());
    let url = shop.url("/openapi.json");
    let of = |server: Value| {
        define(env, &json!({ "far": server }));
        command(env, &["call", "far.get_text"])
    };
    let private = of(json!({ "openapi": url }));
    assert_eq!((private.code(), private.stdout.as_str()), (Some(76), ""), "{private}");
    assert!(
        private
            .stderr
            .contains("the document was fetched, and the private host '127.0.0.1' in it is not allowed"),
        "{private}"
    );
    assert!(!shop.requests().iter().any(|request| request["path"] == "/text"));
    let named = of(json!({ "openapi": url, "baseUrl": shop.url("/") }));
    assert!(named.code() == Some(0) && named.stdout.contains("42 grüße"), "{named}");
    let moved = command(env, &["call", "far.get_moved"]);
    assert!(
        moved.code() == Some(65)
            && moved
                .stdout
                .contains("HTTP 302 Found: it redirects to '/text', and redirects are not followed"),
        "{moved}"
    );
    let texts = shop.requests().iter().filter(|request| request["path"] == "/text").count();
    assert_eq!(texts, 1, "the redirect was followed");
    let elsewhere = of(json!({ "openapi": shop.url("/moved.json"), "baseUrl": shop.url("/") }));
    assert!(
        elsewhere.code() == Some(76)
            && elsewhere.stderr.contains("redirects are not followed, so name its final URL"),
        "{elsewhere}"
    );
    let missing = of(json!({ "openapi": shop.url("/none.json"), "baseUrl": shop.url("/") }));
    assert!(missing.stderr.contains("it was answered with HTTP 404 Not Found"), "{missing}");
    let unreachable = of(json!({ "openapi": shop.document(), "baseUrl": "http://127.0.0.1:1" }));
    assert!(
        unreachable.code() == Some(65)
            && unreachable.stdout.contains("could not reach 127.0.0.1: could not connect"),
        "{unreachable}"
    );
}

fn a_document_that_cannot_be_used_is_an_error_of_its_server_alone(env: &TestEnv) {
    let mut servers = Map::from_iter([("good".to_owned(), fake(env, &["--few"]))]);
    let documents = [
        ("syntax", "{\"openapi\": \"3.0.0\",", "it is neither JSON nor YAML"),
        ("yaml", "openapi: 3.0.0\npaths: [", "it is neither JSON nor YAML: line "),
        ("nothing", "", "it is not an OpenAPI document"),
        ("swagger", "swagger: '2.0'\npaths: {}", "it is of version Swagger 2.0"),
        ("pathless", "openapi: 3.1.0\ninfo: {}", "it has no 'paths'"),
        ("empty", "openapi: 3.1.0\npaths: {}", "it describes no operation"),
        ("hostless", "openapi: 3.1.0\npaths: {/a: {get: {}}}", "set \"baseUrl\""),
        (
            "remote",
            "openapi: 3.1.0\npaths: {/a: {$ref: 'other.yaml#/a'}}",
            "it refers to another document, 'other.yaml#/a': bundle both into one",
        ),
    ];
    for (name, text, _) in documents {
        let path = env.write(&format!("api/{name}"), text);
        servers.insert(name.to_owned(), json!({ "openapi": path }));
    }
    servers.insert("lost".to_owned(), json!({ "openapi": "/nowhere/api.json" }));
    servers.insert("folder".to_owned(), json!({ "openapi": "/usr" }));
    define(env, &Value::Object(servers));
    let listed = command(env, &["servers", "refresh", "--json"]);
    let listed: Value = serde_json::from_str(&listed.stdout).unwrap_or_else(|_| panic!("{listed}"));
    let server =
        |name: &str| listed.as_array().unwrap().iter().find(|server| server["name"] == name).unwrap();
    assert_eq!(server("good")["state"], "known", "{listed}");
    let more = [("lost", "", "No such file or directory"), ("folder", "", "it is not a file")];
    for (name, _, expected) in documents.iter().chain(&more) {
        let error = server(name)["error"].as_str().unwrap_or_else(|| panic!("{name}: {listed}"));
        assert!(
            error.contains(expected) && error.starts_with("could not use the OpenAPI document '"),
            "{name}: {error}"
        );
    }
    let failed = command(env, &["call", "remote.a"]);
    assert!(
        failed.code() == Some(76) && failed.stderr.contains("could not start server 'remote'"),
        "{failed}"
    );
    call(env, "good.echo", json!({ "z": 1 }));
}

fn a_changed_document_is_read_again(env: &TestEnv) {
    let shop = Shop::open(env);
    shop.define(json!({}));
    assert!(command(env, &["tools", "show", "shop"]).ok().contains("get_pet(petId)"));
    let document = fs::read_to_string(shop.document()).unwrap();
    env.write("api/api.yaml", document.replace("operationId: getPet", "operationId: findOnePet"));
    let shown = command(env, &["tools", "search", "find one pet"]).ok();
    assert!(shown.contains("find_one_pet(petId)"), "{shown}");
    assert_eq!(parsed(&call(env, "shop.find_one_pet", json!({ "petId": "3" })))["id"], "3");
}

fn policy_and_audit_hold(env: &TestEnv) {
    let shop = Shop::open(env);
    shop.define(json!({}));
    write_policy(
        env,
        "[[rule]]\nannotations = { readOnlyHint = true }\neffect = 'allow'\n\
         [[rule]]\nannotations = { destructiveHint = true }\neffect = 'deny'\nreason = 'pets stay'\n",
    );
    call(env, "shop.get_pet", json!({ "petId": "1" }));
    for (tool, arguments) in
        [("shop.delete_pet", r#"{"petId": "1"}"#), ("shop.create_pet", r#"{"name": "x"}"#)]
    {
        let denied = command(env, &["call", tool, arguments]);
        assert_eq!(denied.code(), Some(77), "{denied}");
    }
    let methods: Vec<Value> = shop.requests().iter().map(|request| request["method"].clone()).collect();
    assert_eq!(methods, ["GET"], "a denied call reached the API");
    let recorded = command(env, &["audit", "--json"]).ok();
    for tool in ["get_pet", "delete_pet"] {
        assert!(recorded.contains(tool), "{recorded}");
    }
}

fn thousands_of_operations_and_circles_are_no_burden(env: &TestEnv) {
    let node = json!({ "type": "object", "properties": {
        "left": { "$ref": "#/components/schemas/Node" }, "right": { "$ref": "#/components/schemas/Node" },
        "all": { "type": "array", "items": { "$ref": "#/components/schemas/Pair" } },
    }});
    let pair = json!({ "allOf": [{ "$ref": "#/components/schemas/Node" }, { "$ref": "#/components/schemas/Pair" }] });
    let media =
        json!({ "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Node" } } } });
    let path = |at: usize| {
        // Each name occurs twice.
        let operation = json!({ "operationId": format!("op{}", at / 2), "requestBody": media, "responses": { "200": media } });
        (format!("/p{at}"), json!({ "post": operation }))
    };
    let document = json!({
        "openapi": "3.0.0", "servers": [{ "url": "http://127.0.0.1:1" }],
        "paths": Map::from_iter((0..5_000).map(path)),
        "components": { "schemas": { "Node": node, "Pair": pair } },
    });
    let path = env.write("api/large.json", document.to_string());
    define(env, &json!({ "large": { "openapi": path } }));
    // Beyond the limit an allocation fails, and with it the command.
    let refresh = env.bridge().args(&["servers", "refresh", "--json"]).behind(["prlimit", MOST_MEMORY, "--"]);
    let listed: Value = serde_json::from_str(&refresh.command().run(env.guard()).ok()).unwrap();
    assert_eq!(listed[0]["tools"], 5_000, "{listed}");
    let shown = command(env, &["tools", "show", "large.op2499_2"]).ok();
    assert!(shown.contains("op2499_2(left?: dict, right?: dict, all?: list"), "{shown}");
}

/// The documents of large APIs, as they were published.
fn real_documents_become_tools(env: &TestEnv) {
    let Ok(folder) = std::env::var("CODEBRIDGE_TEST_DOCUMENTS") else {
        assert!(std::env::var_os("CODEBRIDGE_TEST_CACHE").is_none(), "run tests/host/prepare");
        ignore("no documents were prepared, see tests/check")
    };
    let folder = Path::new(&folder);
    let at = |name: &str, base: &str| json!({ "openapi": folder.join(name), "baseUrl": base });
    let shop = Shop::open(env);
    define(
        env,
        &json!({
            "github": at("github.json", &shop.url("/echo")),
            "stripe": at("stripe.json", &shop.url("/echo")),
            "kubernetes": at("kubernetes.json", &shop.url("/echo")),
        }),
    );
    let listed: Value = serde_json::from_str(&command(env, &["servers", "refresh", "--json"]).ok()).unwrap();
    for server in listed.as_array().unwrap() {
        assert_eq!(server["state"], "known", "{listed}");
        assert!(server["tools"].as_u64().unwrap() > 300, "{listed}");
    }
    let shown = |tool: &str| command(env, &["tools", "show", tool]).ok();
    let issue = shown("github.issues_create");
    assert!(issue.contains("issues_create(owner, repo, title: "), "{issue}");
    let pods = shown("kubernetes.list_core_v1_namespaced_pod");
    assert!(pods.contains("list_core_v1_namespaced_pod(namespace, "), "{pods}");
    let found = command(env, &["tools", "search", "create a payment intent"]).ok();
    assert!(found.contains("post_payment_intents"), "{found}");
    // Their requests are as the documents say.
    let sent = parsed(&call(
        env,
        "github.issues_create",
        json!({ "owner": "a", "repo": "b", "title": "t", "labels": ["x"] }),
    ));
    assert_eq!(
        (&sent["path"], &sent["body"]),
        (&json!("/echo/repos/a/b/issues"), &json!(r#"{"title":"t","labels":["x"]}"#))
    );
    let arguments =
        json!({ "amount": 5, "currency": "eur", "metadata": { "order": "7" }, "expand": ["customer"] });
    let sent = parsed(&call(env, "stripe.post_payment_intents", arguments));
    assert_eq!(sent["body"], "amount=5&currency=eur&metadata[order]=7&expand[0]=customer");
    let arguments = json!({ "namespace": "default", "labelSelector": "app=x", "limit": 5 });
    let sent = parsed(&call(env, "kubernetes.list_core_v1_namespaced_pod", arguments));
    assert_eq!(sent["path"], "/echo/api/v1/namespaces/default/pods");
    assert_eq!(sent["query"], json!([["labelSelector", "app=x"], ["limit", "5"]]));
}

fn run(bridge: &Bridge<'_>, code: &str) -> String {
    bridge.call(json!({ "code": code, "servers": ["shop"] })).ok()
}

fn results_are_python_values(env: &TestEnv) {
    let shop = Shop::open(env);
    shop.define(json!({ "auth": { "type": "header", "name": "X-Api-Key", "value": "${SHOP_KEY}" } }));
    let bridge = env.bridge().var("SHOP_KEY", KEY).start();
    assert_eq!(
        run(&bridge, python!("openapi", "values")),
        "Rex 99 None '42 grüße'\n<image/png, 40 bytes> <application/zip, 4 bytes> True\n\
         404 no such pet [auth] shop.get_pet: HTTP 404 Not Found:\nFalse"
    );
    assert_eq!(run(&bridge, python!("openapi", "pages")), "[3, 3, 1] pet 7");
    bridge.close();
}

fn a_call_that_is_given_up_ends_its_request(env: &TestEnv) {
    let shop = Shop::open(env);
    shop.define(json!({}));
    let bridge = env.bridge().start();
    let begun = || shop.requests().iter().any(|request| request["path"] == "/slow");
    let ended = || shop.requests().iter().any(|request| request["path"] == "/slow/ended");
    let call = bridge.start_call(json!({ "code": "await mcp_shop.get_slow()", "servers": ["shop"] }));
    eventually("the request arrives", env.guard().left(), || begun().then_some(()));
    assert!(!ended());
    call.0.cancel();
    eventually("the request is ended", env.guard().left(), || ended().then_some(()));
    // The connection to the server goes on.
    assert_eq!(run(&bridge, "(await mcp_shop.get_pet(petId='1')).name"), "'Rex'");
    bridge.close();
}
