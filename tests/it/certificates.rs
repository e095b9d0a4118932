//! Servers over TLS whose certificates are not accepted: the user reads why, and nothing is sent to them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::harness::matrix::which;
use crate::harness::process::{Output, Running};
use crate::harness::{Suite, TestEnv};
use crate::tests;

const FAKE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fakes/mcp_http_server.py");
/// A certificate authority that takes any name and any time.
const AUTHORITY: &str = "\
[ca]\ndefault_ca = it\n[it]\nnew_certs_dir = .\ndatabase = index\nserial = serial\ndefault_md = sha256\npolicy = any\n\
unique_subject = no\ncopy_extensions = copy\n[any]\ncommonName = supplied\n";

pub(crate) fn register(suite: &mut Suite) {
    suite.once(
        "certificates",
        tests![
            a_certificate_that_is_not_accepted_is_named_and_nothing_is_sent,
            a_definition_names_whom_to_trust_and_who_we_are,
        ],
    );
}

/// Where the certificates of a test are made.
struct Authority<'a> {
    env: &'a TestEnv,
    folder: PathBuf,
}

impl<'a> Authority<'a> {
    fn new(env: &'a TestEnv) -> Self {
        env.write("home/tls/authority.conf", AUTHORITY);
        env.write("home/tls/index", "");
        env.write("home/tls/serial", "01\n");
        let authority = Self { env, folder: env.folder("home").join("tls") };
        authority.openssl(
            "req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 3650 -subj /CN=test-ca",
        );
        authority
    }

    fn openssl(&self, words: &str) {
        let mut command = self.env.command(which("openssl").unwrap());
        command.argv.extend(words.split(' ').map(Into::into));
        command.cwd = self.folder.clone();
        command.run(self.env.guard()).ok();
    }

    /// Makes a certificate for a name, valid until a year.
    fn certify(&self, name: &str, subject: &str, until: u32) -> PathBuf {
        self.openssl(&format!(
            "req -newkey rsa:2048 -nodes -keyout {name}.key -out {name}.csr -subj /CN={name} -addext subjectAltName={subject}"
        ));
        self.openssl(&format!(
            "ca -batch -notext -config authority.conf -cert ca.pem -keyfile ca.key -in {name}.csr -out {name}.pem \
             -startdate 20200101000000Z -enddate {until}0101000000Z"
        ));
        self.folder.join(format!("{name}.pem"))
    }

    /// Starts a server with this certificate, and more arguments; returns it and its port.
    fn serve(&self, certificate: &Path, more: &[PathBuf]) -> (Running, String) {
        let mut server = self.env.command(which("python3").unwrap());
        server.argv.extend(["-u", FAKE].map(Into::into));
        let key = certificate.with_extension("key");
        server.argv.extend([certificate.to_path_buf(), key, self.folder.join("seen")].map(Into::into));
        server.argv.extend(more.iter().map(Into::into));
        let mut server = server.spawn(self.env.guard(), Stdio::piped(), Stdio::piped(), Stdio::null());
        let mut port = String::new();
        BufReader::new(server.child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        (server, port.trim().to_owned())
    }

    /// Calls a server that is trusted with these certificates.
    fn call(&self, port: &str, trusted: &str, older: bool) -> Output {
        self.call_with(port, trusted, older, &json!({}))
    }

    /// The same, with more in its definition.
    fn call_with(&self, port: &str, trusted: &str, older: bool, more: &Value) -> Output {
        let kind = if older { "sse" } else { "http" };
        let path = if older { "older" } else { "json" };
        let url = format!("https://127.0.0.1:{port}/{path}");
        let mut web = json!({ "type": kind, "url": url, "headers": { "X-Key": "hunter2!" } });
        web.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.env.write("home/MCPs/web.json", json!({ "mcpServers": { "web": web } }).to_string());
        let mut call = self.env.command(self.env.binary());
        call.argv.extend(["call", "web.echo", r#"{"z": 1}"#].map(Into::into));
        call.cwd = self.env.folder("home");
        call.env.insert("SSL_CERT_FILE".into(), self.folder.join(trusted).into());
        call.run(self.env.guard())
    }
}

fn a_certificate_that_is_not_accepted_is_named_and_nothing_is_sent(env: &TestEnv) {
    let authority = Authority::new(env);
    let good = authority.certify("good", "IP:127.0.0.1", 2099);
    let expired = authority.certify("expired", "IP:127.0.0.1", 2021);
    let other = authority.certify("other", "DNS:example.org", 2099);
    authority.openssl("req -x509 -newkey rsa:2048 -nodes -keyout own.key -out own.pem -days 3650 -subj /CN=own -addext subjectAltName=IP:127.0.0.1 -addext basicConstraints=critical,CA:FALSE");
    let own = authority.folder.join("own.pem");
    for (certificate, trusted, why, has_hint) in [
        (&expired, "ca.pem", "it has expired", false),
        (&other, "ca.pem", "it is for another host name", false),
        (&own, "ca.pem", "its issuer is unknown", true),
        (&authority.folder.join("ca.pem"), "ca.pem", "it is that of an authority", false),
        (&good, "own.pem", "its issuer is unknown", true),
    ] {
        let (server, port) = authority.serve(certificate, &[]);
        for older in [false, true] {
            let refused = authority.call(&port, trusted, older);
            let path = if older { "older" } else { "json" };
            let told = format!(
                "could not reach server 'web' at https://127.0.0.1:{port}/{path}: its TLS certificate is not accepted: {why}"
            );
            assert!(refused.code() == Some(76) && refused.stderr.contains(&told), "{refused}");
            assert_eq!(
                refused.stderr.contains("hint: if you trust the server, set \"caFile\" in its definition"),
                has_hint,
                "{refused}"
            );
        }
        drop(server);
    }
    assert!(!authority.folder.join("seen").exists(), "a request was sent");
    // What the system trusts is named by a variable.
    for (certificate, trusted) in [(&good, "ca.pem"), (&own, "own.pem")] {
        let (server, port) = authority.serve(certificate, &[]);
        let called = authority.call(&port, trusted, false);
        assert_eq!(called.code(), Some(0), "{called}");
        drop(server);
    }
    assert!(fs::read_to_string(authority.folder.join("seen")).unwrap().contains("request"));
}

fn a_definition_names_whom_to_trust_and_who_we_are(env: &TestEnv) {
    let authority = Authority::new(env);
    let (server, ours) =
        (authority.certify("server", "IP:127.0.0.1", 2099), authority.certify("us", "DNS:us", 2099));
    authority.openssl("req -x509 -newkey rsa:2048 -nodes -keyout own.key -out own.pem -days 3650 -subj /CN=own -addext basicConstraints=critical,CA:FALSE");
    let ca = authority.folder.join("ca.pem");
    let (running, port) = authority.serve(&server, std::slice::from_ref(&ca));
    let call = |older, more| authority.call_with(&port, "own.pem", older, &more);
    let refused = |more, why: &str| {
        let output = call(false, more);
        assert!(output.code() == Some(76) && output.stderr.contains(why), "{output}");
        assert!(!output.stderr.contains("PRIVATE"), "{output}");
    };
    let key = ours.with_extension("key");
    let known = json!({ "caFile": "tls/ca.pem", "clientCert": ours, "clientKey": key });
    refused(json!({ "clientCert": ours, "clientKey": key }), "its issuer is unknown");
    refused(json!({ "caFile": ca }), "the connection failed");
    refused(json!({ "caFile": "nowhere.pem" }), "('caFile' of its definition): No such file");
    refused(json!({ "caFile": key }), "('caFile' of its definition) has no certificate in PEM");
    refused(
        json!({ "caFile": ca, "clientCert": ours }),
        "('clientCert' of its definition) has no certificate with a key",
    );
    assert!(!authority.folder.join("seen").exists(), "a request was sent");
    for older in [false, true] {
        let called = call(older, known.clone());
        assert_eq!(called.code(), Some(0), "{called}");
    }
    // Both in one file, as some tools write them.
    let both = [fs::read(&ours).unwrap(), fs::read(&key).unwrap()].concat();
    let both = env.write("home/tls/both.pem", both);
    assert_eq!(call(false, json!({ "caFile": ca, "clientCert": both })).code(), Some(0));
    // The same for an API: whatever it answers, it was reached.
    let api = json!({ "openapi": "3.1.0", "paths": { "/none": { "get": { "operationId": "getNone" } } } });
    let api = env.write("home/api.json", api.to_string());
    let call = |more: Value| {
        let mut web = json!({ "openapi": api, "baseUrl": format!("https://127.0.0.1:{port}") });
        web.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        env.write("home/MCPs/web.json", json!({ "mcpServers": { "web": web } }).to_string());
        let mut call = env.command(env.binary());
        call.argv.extend(["call", "web.get_none"].map(Into::into));
        call.cwd = env.folder("home");
        call.run(env.guard())
    };
    for (more, code, said) in [
        (known, 65, "HTTP 405 Method Not Allowed"),
        (json!({ "caFile": ca }), 65, "the connection failed"),
        (json!({ "clientCert": ours, "clientKey": key }), 65, "could not connect"),
        (json!({ "caFile": "nowhere.pem" }), 76, "('caFile' of its definition): No such file"),
    ] {
        let output = call(more);
        assert!(output.code() == Some(code) && output.to_string().contains(said), "{output}");
        assert!(!output.to_string().contains("PRIVATE"), "{output}");
    }
    drop(running);
}
