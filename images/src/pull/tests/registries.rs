//! Which registry is asked, with which login, through which proxy.

use super::*;

#[tokio::test]
async fn a_password_serves_basic_and_bearer_logins() {
    for login in [Login::Basic("Basic dTpw".into()), Login::Bearer("Basic dTpw".into())] {
        let scene = Scene::new().await;
        scene.registry.image("a", Some("1"), &layers());
        scene.registry.require(login.clone());
        let tried = scene.refused("a:1").await;
        assert!(matches!(tried[0].why, Reason::Unauthorized { logged_in: false }), "{login:?}: {}", tried[0]);
        scene.login(r#"{"auths":{"HOST":{"auth":"eDp4"}}}"#);
        let tried = scene.refused("a:1").await;
        assert!(matches!(tried[0].why, Reason::Unauthorized { logged_in: true }), "{login:?}: {}", tried[0]);
        scene.login(r#"{"auths":{"HOST":{"auth":"dTpw"}}}"#);
        assert_eq!(what(&scene.pull("a:1").await.unwrap()), "image");
    }
}

#[tokio::test]
async fn an_identity_token_is_exchanged_for_an_access_token() {
    let scene = Scene::new().await;
    scene.registry.image("a", Some("1"), &layers());
    scene.registry.require(Login::Identity("refresh_token=r%2Fme".into()));
    scene.login(r#"{"auths":{"HOST":{"auth":"dTpw","identitytoken":"r/me"}}}"#);
    assert_eq!(what(&scene.pull("a:1").await.unwrap()), "image");
    scene.registry.image("b", Some("1"), &layers());
    scene.login(r#"{"auths":{"HOST":{"identitytoken":"other"}}}"#);
    let tried = scene.refused("b:1").await;
    assert!(matches!(tried[0].why, Reason::Unauthorized { logged_in: true }), "{}", tried[0]);
}

#[tokio::test]
async fn an_anonymous_token_needs_no_login() {
    let scene = Scene::new().await;
    scene.registry.image("a", Some("1"), &layers());
    scene.registry.require(Login::Bearer(String::new()));
    assert_eq!(what(&scene.pull("a:1").await.unwrap()), "image");
}

#[tokio::test]
async fn credentials_stay_with_the_registry_when_content_is_elsewhere() {
    let scene = Scene::new().await;
    let storage = FakeRegistry::start().await;
    let (_, digests) = scene.registry.image("a", Some("1"), &layers());
    storage.image("a", Some("1"), &layers());
    scene.registry.require(Login::Basic("Basic dTpw".into()));
    scene.login(r#"{"auths":{"HOST":{"auth":"dTpw"}}}"#);
    let path = blob_path("a", &digests[0]);
    // By another name, as a storage behind a registry has one.
    let port = storage.host.split(':').nth(1).unwrap();
    scene.registry.fault(&path, Fault::Elsewhere(format!("http://localhost:{port}{path}")));
    scene.pull("a:1").await.unwrap();
    let asked = storage.asked();
    assert_eq!(asked.len(), 1, "{asked:?}");
    assert!(!asked[0].contains("Basic"), "{asked:?}");
}

#[tokio::test]
async fn a_helper_that_fails_is_named() {
    let scene = Scene::new().await;
    scene.registry.image("a", Some("1"), &layers());
    scene.login(r#"{"credHelpers":{"HOST":"pass"}}"#);
    let tried = scene.refused("a:1").await;
    assert!(tried[0].to_string().contains("'pass for 127.0.0.1"), "{}", tried[0]);
    assert_eq!(scene.registry.asked().len(), 0, "nobody is asked without the credentials that there are");
}

#[tokio::test]
async fn mirrors_are_asked_first_and_the_registry_when_they_fail() {
    let scene = Scene::new().await;
    let mirror = FakeRegistry::start().await;
    scene.registry.image("a", Some("1"), &layers());
    mirror.image("hub/a", Some("1"), &layers());
    let conf = scene.dir.path().join("registries.conf");
    let text = "[[registry]]\nlocation = \"HOST\"\n[[registry.mirror]]\nlocation = \"MIRROR/hub\"\n";
    fs::write(&conf, text.replace("HOST", &scene.registry.host).replace("MIRROR", &mirror.host)).unwrap();
    let conf = conf.to_str().unwrap().to_string();
    let mut scene = scene;
    scene.puller = puller(&[("CONTAINERS_REGISTRIES_CONF", &conf)]);
    scene.pull("a:1").await.unwrap();
    assert_eq!(scene.fetched(), 0, "all of it comes from the mirror");
    scene.registry.image("b", Some("1"), &[Archive::new().file("usr/b", b"")]);
    scene.pull("b:1").await.unwrap();
    let tried = scene.refused("nowhere:1").await;
    let endpoints: Vec<_> = tried.iter().map(|tried| tried.endpoint.as_str()).collect();
    assert_eq!(endpoints, [format!("http://{}", mirror.host), format!("http://{}", scene.registry.host)]);
}

#[tokio::test]
async fn a_blocked_registry_is_not_asked() {
    let scene = Scene::new().await;
    let conf = scene.dir.path().join("registries.conf");
    fs::write(&conf, format!("[[registry]]\nlocation = \"{}\"\nblocked = true\n", scene.registry.host))
        .unwrap();
    let conf = conf.to_str().unwrap().to_string();
    let mut scene = scene;
    scene.puller = puller(&[("CONTAINERS_REGISTRIES_CONF", &conf)]);
    let error = scene.pull("a:1").await.map(|root| root.id().clone()).unwrap_err();
    assert!(matches!(error, ImageError::Pull(PullError::Blocked(_))), "{error}");
    assert_eq!(scene.registry.asked().len(), 0);
}

#[tokio::test]
async fn proxies_are_used_for_others_and_never_for_this_machine() {
    let proxy = FakeRegistry::start().await;
    proxy.image("a", Some("1"), &layers());
    let mut scene = Scene::new().await;
    scene.registry.image("a", Some("1"), &layers());
    let url = format!("http://{}", proxy.host);
    scene.puller = Puller { plain_http: true, ..puller(&[("HTTP_PROXY", &url), ("HTTPS_PROXY", &url)]) };
    scene.pull("a:1").await.unwrap();
    assert_eq!(proxy.asked().len(), 0);
    // A name that only the proxy knows.
    let name = "registry.invalid/a:1".parse().unwrap();
    let progress: Arc<dyn Progress> = Arc::new(());
    scene.puller.pull(&scene.store, &name, &progress).await.unwrap();
    let asked = proxy.asked();
    assert!(
        asked.iter().any(|line| line.starts_with("http://registry.invalid/v2/a/manifests/1")),
        "{asked:?}"
    );
}

#[tokio::test]
async fn plain_http_where_tls_is_expected_is_recognized() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let host = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
    });
    let endpoint = Endpoint { host, repository: "a".into(), scheme: Scheme::HttpsUnverified };
    let client = http::client(&endpoint, &Environment::default(), Timeouts::default()).unwrap();
    let url = format!("https://{}/v2/a/manifests/1", endpoint.host);
    let why = http::document(&client, &url, &oci_client::secrets::RegistryAuth::Anonymous, false)
        .await
        .unwrap_err();
    assert!(matches!(why, Reason::Unreachable { failure: ConnectionFailure::PlainHttp, .. }), "{why}");
}

#[tokio::test]
async fn an_unreachable_registry_is_reported_soon() {
    let started = Instant::now();
    let scene = Scene::new().await;
    let progress: Arc<dyn Progress> = Arc::new(());
    for name in ["127.0.0.1:1/x:1", "no-such-host.invalid/x:1"] {
        let error = scene.puller.pull(&scene.store, &name.parse().unwrap(), &progress).await;
        let error = error.map(|root| root.id().clone()).unwrap_err();
        let host = name.split('/').next().unwrap();
        assert_eq!(error.to_string(), format!("cannot pull {name}: {host} is unreachable"));
        assert_eq!(error.hint().unwrap(), "check your connection, or use --image host:");
    }
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

#[tokio::test]
async fn charts_and_other_artifacts_are_refused() {
    let scene = Scene::new().await;
    let config = scene.registry.blob("chart", "application/vnd.cncf.helm.config.v1+json", b"{}");
    let layer = scene.registry.blob("chart", "application/vnd.cncf.helm.chart.content.v1.tar+gzip", b"x");
    let manifest = json!({ "schemaVersion": 2, "config": config, "layers": [layer] });
    scene.registry.manifest("chart", Some("1"), "application/vnd.oci.image.manifest.v1+json", &manifest);
    let tried = scene.refused("chart:1").await;
    assert!(matches!(tried[0].why, Reason::Manifest(ManifestError::LayerType(_))), "{}", tried[0]);
}
