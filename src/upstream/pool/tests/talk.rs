//! What servers say and ask, what they are given, and what is not shown of it.

use super::*;
use crate::upstream::LogMessage;

#[tokio::test]
async fn progress_and_words_of_a_server_are_passed_on() {
    let bench = Setup::args(&[]).entry("env", json!({ "API_TOKEN": "hunter2!" })).start();
    let mut events = bench.upstream.events();
    let (sender, mut progress) = mpsc::channel(100);
    let steps = json!({ "steps": 5 }).as_object().cloned().unwrap();
    bench.call_by("progress", steps, Some(sender), &bench.cancel).await.unwrap();
    let mut seen = Vec::new();
    while let Some(step) = progress.recv().await {
        seen.push((step.progress, step.total, step.message.unwrap()));
    }
    let expected: Vec<_> = (1..=5).map(|at| (f64::from(at), Some(5.0), format!("step {at}"))).collect();
    assert_eq!(seen, expected);
    let words = json!({ "level": "warning", "logger": "l", "data": { "b": 1, "a": "hunter2! said" } });
    bench.call("log", words).await.unwrap();
    let Event::Log(log) = events.recv().await.unwrap() else { panic!("no log") };
    let LogMessage { server, level, logger, data } = &*log;
    assert_eq!((&**server, level.as_str(), logger.as_deref()), ("fake", "warning", Some("l")));
    assert_eq!(data.to_string(), r#"{"b":1,"a":"[API_TOKEN] said"}"#);
    bench.call("log", json!({ "data": "x".repeat(1 << 20) })).await.unwrap();
    let Event::Log(log) = events.recv().await.unwrap() else { panic!("no log") };
    let LogMessage { level, data, .. } = &*log;
    assert_eq!((level.as_str(), data.as_str().unwrap().len() < 20_000), ("info", true));
    bench.upstream.shutdown().await;
}

#[tokio::test]
async fn questions_are_refused_unless_somebody_answers() {
    let bench = Bench::with(&[]);
    for method in ["elicitation/create", "sampling/createMessage", "roots/list", "x/y"] {
        let answer = bench.say("ask", json!({ "method": method, "params": { "message": 1 } })).await;
        assert_eq!(answer["error"]["code"], -32601, "{answer}");
        assert!(
            answer["error"]["message"].as_str().unwrap().contains(&format!("'{method}' is not supported"))
        );
    }
    assert_eq!(bench.say("ask", json!({ "method": "ping" })).await, json!({ "result": {} }));
    bench.upstream.shutdown().await;

    #[derive(Debug, Default)]
    struct Everything(AtomicUsize);
    impl Answers for Everything {
        fn client(&self) -> ClientId {
            ClientId::default()
        }
        fn offers(&self) -> Offers {
            Offers { elicitation: true, elicitation_by_url: false, sampling: true, roots: true }
        }
        fn answer(&self, question: Question) -> Answering<'_> {
            self.0.fetch_add(1, Ordering::SeqCst);
            Box::pin(async move {
                Ok(json!({ "of": question.method, "to": &*question.server, "with": question.params }))
            })
        }
    }
    let answers = Arc::new(Everything::default());
    let bench = Setup { answers: Some(Arc::clone(&answers) as Arc<dyn Answers>), ..Setup::default() }.start();
    let params = json!({ "z": 1, "message": { "odd": ["schema"] } });
    let answer = bench.say("ask", json!({ "method": "elicitation/create", "params": params })).await;
    assert_eq!(answer["result"], json!({ "of": "elicitation/create", "to": "fake", "with": params }));
    assert_eq!(answers.0.load(Ordering::SeqCst), 1);
    bench.upstream.shutdown().await;
}

#[tokio::test]
async fn a_server_gets_its_own_environment_and_no_credential_leaks() {
    let setup = Setup {
        environment: vec![
            ("HOME", "/h"),
            ("LANG", "C.UTF-8"),
            ("GITHUB_TOKEN", "not for all"),
            ("SECRET", "hunter3!"),
        ],
        ..Setup::args(&["--stderr", "starting with hunter2! and hunter3!", "--password", "x"])
    };
    let entry = json!({ "A_TOKEN": "hunter2!", "B_KEY": "${SECRET}", "LANG": "de" });
    let bench = setup.entry("env", entry).start();
    let error = bench.tools().await.unwrap_err();
    let text = format!("{error} {error:?}");
    assert!(text.contains("unrecognized arguments"), "{text}");
    assert!(!text.contains("hunter2") && !text.contains("hunter3"), "{text}");
    bench.upstream.shutdown().await;

    let setup = Setup {
        environment: vec![("HOME", "/h"), ("LANG", "C.UTF-8"), ("GITHUB_TOKEN", "not for all")],
        ..Setup::args(&["--stderr", "starting with hunter2!"])
    };
    let bench = setup
        .entry("env", json!({ "A_TOKEN": "hunter2!", "B_TOKEN": "hunter4!", "LANG": "de" }))
        .entry("cwd", json!("/usr"))
        .start();
    let said = bench.structured("environment").await;
    assert_eq!(said["cwd"], "/usr");
    let mut env = said["env"].as_object().unwrap().clone();
    env.remove("PATH").unwrap();
    env.remove("LC_CTYPE");
    assert_eq!(
        Value::Object(env),
        json!({ "A_TOKEN": "hunter2!", "B_TOKEN": "hunter4!", "HOME": "/h", "LANG": "de" })
    );
    // What `ps` shows.
    assert!(!said["argv"].to_string().contains("hunter4"));
    let error = bench.call("crash", json!({ "words": "hunter2! is to blame" })).await.unwrap_err();
    assert!(error.to_string().contains("[A_TOKEN] is to blame"), "{error}");
    assert!(!format!("{:?}", bench.upstream).contains("hunter2"));
    let error = bench.call("line", json!({ "text": "{\"id\":ID,\"error\":{\"code\":1,\"message\":\"no hunter2!\",\"data\":[\"hunter2!\"]}}\n" })).await;
    assert!(!format!("{:?}", error.unwrap_err()).contains("hunter2"));
    bench.upstream.shutdown().await;
}
