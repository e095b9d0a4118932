//! What is read, kept and compared, with an encoder that counts words.

#![cfg(feature = "search-model")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};

use serde_json::json;

use super::*;
use crate::upstream::tool_doc::{About, ToolDoc};

/// How many texts of tools were read.
type Count = Arc<AtomicUsize>;

fn server(key: &str, tools: &[&str]) -> Keyed {
    let doc = |name: &&str| ToolDoc {
        name: (*name).into(),
        input_schema: json!({ "type": "object" }),
        ..ToolDoc::default()
    };
    (key.into(), Arc::new(ServerDocs::new(About::default(), tools.iter().map(doc).collect())))
}

/// Starts an encoder that refuses texts with `garbled` in them, and waits for permission to read those with `slow`.
fn encoder(count: &Count, permission: Option<Receiver<()>>) -> Encoder {
    let count = Arc::clone(count);
    Encoder::on_thread(move || {
        Some(move |text: &str| {
            count.fetch_add(1, Ordering::SeqCst);
            if text.contains("slow") {
                permission.as_ref().unwrap().recv().unwrap();
            }
            let has = |word: &str| f32::from(u8::from(text.contains(word)));
            let vector = Vector::new(&[has("bread"), has("car"), 0.1]);
            vector.filter(|_| !text.contains("garbled")).ok_or_else(|| ModelError::Failed("garbled".into()))
        })
    })
}

fn meanings(folder: &Path, start: impl Fn(Priority) -> Encoder + Send + Sync + 'static) -> Arc<Meanings> {
    let meanings = Meanings::new("/no/model".into(), folder.into());
    let loaded = Loaded { id: [7; 32], encoder: start(Priority::Usual), start: Box::new(start) };
    meanings.loaded.set(Ok(loaded)).unwrap();
    Arc::new(meanings)
}

#[test]
fn a_text_that_the_model_refuses_is_left_out_and_not_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let count = Count::default();
    let reading = {
        let count = Arc::clone(&count);
        move |_| encoder(&count, None)
    };
    let servers = [server("bakery", &["garbled", "bake_bread"]), server("garage", &["wash_car"])];
    let first = meanings(folder.path(), reading.clone());
    let prepared = first.prepare_all(&servers, |_| true).unwrap();
    assert_eq!(prepared, Prepared { tools: 3, ready: 3 });
    assert_eq!(count.load(Ordering::SeqCst), 3);
    // Another process reads what this one has written.
    for meanings in [first, meanings(folder.path(), reading)] {
        count.store(0, Ordering::SeqCst);
        let found = meanings.nearest(&servers, "a car").unwrap();
        assert_eq!(found.tools, [(1, 0), (0, 1)]);
        assert_eq!([found.knows(0, 0), found.knows(0, 1), found.knows(1, 0)], [false, true, true]);
        assert!(!*lock(&meanings.is_preparing), "it is tried again");
        assert_eq!(count.load(Ordering::SeqCst), 1, "more than the query was read");
    }
}

#[test]
fn a_search_compares_what_is_ready_while_another_server_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let count = Count::default();
    let (permit, permission) = channel();
    let permission = Mutex::new(Some(permission));
    let meanings = meanings(folder.path(), move |priority| {
        encoder(&count, lock(&permission).take_if(|_| priority == Priority::Low))
    });
    let bakery = server("bakery", &["bake_bread"]);
    meanings.prepare_all(std::slice::from_ref(&bakery), |_| true).unwrap();
    let servers = [server("garage", &["slow_car"]), bakery];
    for _ in 0..2 {
        let found = meanings.nearest(&servers, "bread").unwrap();
        assert_eq!((&*found.tools, found.knows(0, 0)), (&[(1, 0)][..], false));
        assert!(*lock(&meanings.is_preparing));
    }
    permit.send(()).unwrap();
    while *lock(&meanings.is_preparing) {
        thread::yield_now();
    }
    let found = meanings.nearest(&servers, "car").unwrap();
    assert_eq!((&*found.tools, found.knows(0, 0)), (&[(0, 0), (1, 0)][..], true));
}
