//! Which client a server's question goes to.

use super::over_http::Web;
use super::*;

/// A client that answers with its name.
#[derive(Debug)]
struct Named {
    client: ClientId,
    name: &'static str,
    asked: AtomicUsize,
}

impl Named {
    fn new(name: &'static str) -> Arc<Self> {
        Arc::new(Self { client: ClientId::next(), name, asked: AtomicUsize::new(0) })
    }
}

impl Answers for Named {
    fn client(&self) -> ClientId {
        self.client
    }

    fn offers(&self) -> Offers {
        Offers { elicitation: true, ..Offers::default() }
    }

    fn answer(&self, _: Question) -> Answering<'_> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move { Ok(json!({ "from": self.name })) })
    }
}

/// Has the server ask the client of this call.
async fn ask(bench: &Bench, client: &Arc<Named>) -> Value {
    let answers = Arc::clone(client) as Arc<dyn Answers>;
    let options = CallOptions { answers, ..CallOptions::new(&bench.cancel) };
    let arguments = json!({ "method": "elicitation/create", "params": {} });
    let outcome = bench.call_with("ask", arguments.as_object().cloned().unwrap(), options).await;
    outcome.unwrap().value().unwrap()
}

/// The answer as the server on pipes got it.
fn on_pipes(outcome: &Value) -> Value {
    serde_json::from_str(outcome["content"][0]["text"].as_str().unwrap()).unwrap()
}

#[tokio::test]
async fn over_pipes_a_question_is_refused_while_calls_of_two_clients_are_under_way() {
    let bench = Bench::with(&[]);
    let (first, second) = (Named::new("first"), Named::new("second"));
    assert_eq!(on_pipes(&ask(&bench, &first).await), json!({ "result": { "from": "first" } }));
    for other in [Arc::clone(&second) as Arc<dyn Answers>, Arc::new(NoAnswers(ClientId::next()))] {
        let options = CallOptions { answers: other, ..CallOptions::new(&bench.cancel) };
        let outcome = tokio::select! {
            biased;
            other = bench.call_with("never", Map::new(), options) => panic!("{other:?}"),
            outcome = ask(&bench, &first) => on_pipes(&outcome),
        };
        assert_eq!(outcome["error"]["code"], -32600, "{outcome}");
        let message = outcome["error"]["message"].as_str().unwrap();
        assert!(message.contains("calls of several clients are running on this connection"), "{message}");
    }
    assert_eq!((first.asked.load(Ordering::SeqCst), second.asked.load(Ordering::SeqCst)), (1, 0));
    assert_eq!(on_pipes(&ask(&bench, &second).await), json!({ "result": { "from": "second" } }));
    bench.upstream.shutdown().await;
}

#[tokio::test]
async fn over_pipes_the_only_client_is_asked_for_its_latest_call() {
    let bench = Bench::with(&[]);
    let earlier = Named::new("earlier");
    let later = Arc::new(Named { client: earlier.client, name: "later", asked: AtomicUsize::new(0) });
    let answers = Arc::clone(&earlier) as Arc<dyn Answers>;
    let options = CallOptions { answers, ..CallOptions::new(&bench.cancel) };
    let outcome = tokio::select! {
        biased;
        other = bench.call_with("never", Map::new(), options) => panic!("{other:?}"),
        outcome = async {
            // The server is being started for the first call.
            until("the server runs", || bench.state() == ServerState::Running).await;
            ask(&bench, &later).await
        } => on_pipes(&outcome),
    };
    assert_eq!(outcome, json!({ "result": { "from": "later" } }));
    bench.upstream.shutdown().await;
}

#[tokio::test]
async fn over_http_each_client_is_asked_for_its_own_call() {
    for path in ["/events", "/session"] {
        let web = Web::with(path, json!({})).await;
        let (first, second) = (Named::new("first"), Named::new("second"));
        // Both questions are open at once.
        let (of_first, of_second) = tokio::join!(ask(&web.bench, &first), ask(&web.bench, &second));
        for (outcome, name) in [(of_first, "first"), (of_second, "second")] {
            let answer = &outcome["structuredContent"]["arguments"]["result"];
            assert_eq!(*answer, json!({ "from": name }), "{path}: {outcome}");
        }
        web.end().await;
    }
}
