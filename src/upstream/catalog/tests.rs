//! The catalogue as a whole.

use std::fs;
use std::sync::Arc;

use serde_json::json;

use super::*;
use crate::upstream::tool_doc::{About, ToolDoc};

fn tool(name: &str, description: &str) -> ToolDoc {
    ToolDoc {
        name: name.into(),
        description: description.into(),
        input_schema: json!({ "type": "object" }),
        ..ToolDoc::default()
    }
}

fn server(name: &str) -> ListedServer {
    ListedServer { name: name.into(), alias: name.replace('-', "_"), key: format!("key of {name}").into() }
}

fn names(found: &Found) -> Vec<String> {
    found.tools.iter().map(|found| found.docs.tools()[found.tool].name.to_string()).collect()
}

fn bakery() -> Vec<ToolDoc> {
    vec![tool("bake_bread", "Bakes a loaf of bread."), tool("sell_cake", "Sells a cake to a customer.")]
}

fn garage() -> Vec<ToolDoc> {
    vec![tool("change_tyre", "Changes a tyre of a car."), tool("wash_car", "Washes a car.")]
}

#[test]
fn a_search_finds_tools_of_all_known_servers_and_names_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let catalog = Catalog::at(folder.path().join(FOLDER));
    let servers = ["bakery", "garage", "florist"].map(server);
    catalog.keep(&servers[0].key, About::default(), bakery());
    catalog.keep(&servers[1].key, About::default(), garage());
    let found = catalog.search(&servers, "clean my car", 5);
    assert_eq!(names(&found)[0], "wash_car");
    assert_eq!(found.unknown, [2]);
    let item = found.tools[0].item(&servers, Detail::Summary).unwrap();
    assert_eq!((&*item.server, &*item.signature), ("garage", "wash_car()"));
    assert_eq!(names(&catalog.search(&servers[..1], "car", 5)), [""; 0]);
    assert_eq!(names(&catalog.search(&[], "car", 5)), [""; 0]);
}

#[test]
fn another_bridge_reads_what_one_wrote() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = [0, 1].map(|_| Catalog::at(folder.path().to_owned()));
    let servers = [server("bakery")];
    assert_eq!(other.search(&servers, "bread", 5).unknown, [0]);
    one.keep(&servers[0].key, About::default(), bakery());
    assert_eq!(names(&other.search(&servers, "bread", 5)), ["bake_bread"]);
    one.keep(&servers[0].key, About::default(), vec![tool("burn_bread", "Burns it.")]);
    assert_eq!(names(&other.search(&servers, "bread", 5)), ["burn_bread"]);
    fs::remove_dir_all(folder.path()).unwrap();
    assert_eq!(other.search(&servers, "bread", 5).unknown, [0]);
}

#[test]
fn the_index_is_built_again_only_when_something_changed() {
    let folder = tempfile::tempdir().unwrap();
    let catalog = Catalog::at(folder.path().to_owned());
    let servers = [server("bakery"), server("garage")];
    let first = catalog.keep(&servers[0].key, About::default(), bakery());
    assert!(Arc::ptr_eq(&first, &catalog.keep(&servers[0].key, About::default(), bakery())));
    assert!(catalog.docs(&servers[0].key).is_some_and(|docs| Arc::ptr_eq(&docs, &first)));
    assert_eq!(names(&catalog.search(&servers, "tyre", 5)), [""; 0]);
    catalog.keep(&servers[1].key, About::default(), garage());
    assert_eq!(names(&catalog.search(&servers, "tyre", 5)), ["change_tyre"]);
}

#[test]
fn a_damaged_file_is_an_unknown_server_until_it_is_asked_again() {
    let folder = tempfile::tempdir().unwrap();
    let catalog = Catalog::at(folder.path().to_owned());
    let servers = [server("bakery"), server("garage")];
    for server in &servers {
        catalog.keep(&server.key, About::default(), bakery());
    }
    let file = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let mut bytes = fs::read(&file).unwrap();
    bytes[30] ^= 0xff;
    fs::write(&file, bytes).unwrap();
    let found = catalog.search(&servers, "bread", 5);
    assert_eq!((found.unknown.len(), found.tools.len()), (1, 1));
    let lost = &servers[found.unknown[0]];
    catalog.keep(&lost.key, About::default(), bakery());
    assert_eq!(catalog.search(&servers, "bread", 5).tools.len(), 2);
}

#[test]
fn a_folder_that_cannot_be_written_costs_only_the_next_start() {
    let folder = tempfile::tempdir().unwrap();
    let in_the_way = folder.path().join("file");
    fs::write(&in_the_way, "").unwrap();
    let catalog = Catalog::at(in_the_way.join(FOLDER));
    let servers = [server("bakery")];
    catalog.keep(&servers[0].key, About::default(), bakery());
    assert_eq!(names(&catalog.search(&servers, "bread", 5)), ["bake_bread"]);
    assert!(catalog.prune(&servers).is_err());
}

#[test]
fn definitions_of_one_name_do_not_share_documentation() {
    let folder = tempfile::tempdir().unwrap();
    let catalog = Catalog::at(folder.path().to_owned());
    let before = server("bakery");
    let after = ListedServer { key: "another key".into(), ..before.clone() };
    catalog.keep(&before.key, About::default(), bakery());
    assert_eq!(catalog.search(std::slice::from_ref(&after), "bread", 5).unknown, [0]);
}

#[test]
fn ten_writers_at_once_leave_one_good_file() {
    let folder = tempfile::tempdir().unwrap();
    let key = server("bakery").key;
    std::thread::scope(|scope| {
        for number in 0..10 {
            let (catalog, key) = (Catalog::at(folder.path().to_owned()), key.clone());
            scope.spawn(move || {
                for round in 0..20 {
                    let name = format!("tool_{}", (number + round) % 3);
                    catalog.keep(&key, About::default(), vec![tool(&name, "One of three.")]);
                    assert_eq!(catalog.docs(&key).map(|docs| docs.tools().len()), Some(1));
                }
            });
        }
    });
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    assert!(Catalog::at(folder.path().to_owned()).docs(&key).is_some());
}
