//! Named stores, store URLs and durability, as an operator sees them.

use crate::test_folder::TestFolder;

const TWO_STORES: &str = r#"
store = "main.db"

[stores.fast]
url = "fast.db"

[operation.email]
store = "fast"
tier = "email"

[operation.charge]
tier = "payment"
"#;

fn run(folder: &TestFolder, operation: &str, key: &str) {
    folder.onceward(&["run", "--operation", operation, "--key", key, "--", "echo", key]).says(0, &[]);
}

#[test]
fn commands_use_the_store_of_each_operation() {
    let folder = TestFolder::new();
    folder.write("onceward.toml", TWO_STORES);
    run(&folder, "charge", "1");
    run(&folder, "email", "1");
    run(&folder, "email", "2");
    let listed = folder.json(&["list", "--json"]);
    assert_eq!(listed["intents"].as_array().unwrap().len(), 3);
    let first = folder.json(&["list", "--json", "--limit", "1"]);
    assert_eq!(first["intents"][0]["operation"], "charge");
    let rest = folder.json(&["list", "--json", "--cursor", first["next"].as_str().unwrap()]);
    assert_eq!(rest["intents"].as_array().unwrap().len(), 2);
    let email = folder.json(&["get", "--operation", "email", "--key", "1", "--json"]);
    assert_eq!(email["store"]["durability"]["level"], "durable");
    assert!(email["store"]["url"].as_str().unwrap().ends_with("fast.db"), "{email}");
    let rows = |name: &str| -> i64 {
        let file = rusqlite::Connection::open(folder.path(name)).unwrap();
        file.query_row("SELECT count(*) FROM intent", [], |row| row.get(0)).unwrap()
    };
    assert_eq!((rows("main.db"), rows("fast.db")), (1, 2));
}

#[test]
fn a_server_refuses_an_operation_that_lives_in_another_store() {
    let folder = TestFolder::new();
    folder.write("onceward.toml", "store = \"main.db\"\n[operation.email]\ntier = \"email\"\n");
    run(&folder, "email", "1");
    folder.write("onceward.toml", TWO_STORES);
    folder
        .onceward(&["serve", "--listen", "127.0.0.1:0"])
        .says(69, &["email lives in it already", "would run again", "`onceward copy`"]);
}

#[test]
fn a_server_does_not_start_on_a_ledger_that_was_moved() {
    let folder = TestFolder::new();
    run(&folder, "email", "1");
    folder.onceward(&["copy", "--from", "onceward.db", "--to", "new.db"]).says(0, &[]);
    folder.onceward(&["serve", "--listen", "127.0.0.1:0"]).says(69, &["is sealed", "new.db"]);
}

#[test]
fn mistakes_in_stores_are_named() {
    let folder = TestFolder::new();
    for (file, message) in [
        ("[operation.a]\nstore = \"fats\"\n[stores.fast]\nurl = \"fast.db\"\n", "did you mean `fast`?"),
        ("[operation.a]\nstore = \"redis://127.0.0.1\"\n", "the name of a store"),
        ("[stores.default]\nurl = \"a.db\"\n", "choose another one"),
        ("[stores.fast]\nulr = \"a.db\"\n", "unknown field"),
        ("[stores.fast]\n", "url"),
    ] {
        folder.write("onceward.toml", file);
        folder.onceward(&["list"]).says(78, &[message]);
    }
}

#[test]
fn a_password_is_never_printed() {
    let folder = TestFolder::new();
    let url = "postgres://user:s3cret@127.0.0.1:1/db";
    folder
        .write("onceward.toml", &format!("store = \"{url}\"\n[stores.fast]\nurl = \"redis://:s3cret@127.0.0.1:1\"\n"));
    let commands: [&[&str]; 7] = [
        &["list"],
        &["get", "--operation", "a", "--key", "1"],
        &["run", "--operation", "a", "--key", "1", "--", "true"],
        &["resolve", "--operation", "a", "--key", "1", "--happened"],
        &["serve", "--listen", "127.0.0.1:0"],
        &["migrate"],
        &["accept"],
    ];
    for command in commands {
        let logged = folder.command(command).env("ONCEWARD_LOG", "trace").output().unwrap();
        let answer = crate::test_folder::CommandOutput::of(logged);
        assert_ne!(answer.code, 0, "{command:?}");
        assert!(!answer.stderr.contains("s3cret") && !answer.out().contains("s3cret"), "{command:?}: {answer:?}");
    }
}

#[test]
fn mistakes_with_urls_do_not_show_their_passwords() {
    let folder = TestFolder::new();
    let url = "redis://:s3cret@127.0.0.1:1";
    for file in [
        format!("[stores]\nfast = \"{url}\"\n"),
        format!("stores = \"{url}\"\n"),
        format!("[operation]\na = \"{url}\"\n"),
        format!("[operation.a]\ntier = \"{url}\"\n"),
        format!("store = {url}\n"),
    ] {
        folder.write("onceward.toml", &file);
        let answer = folder.onceward(&["list"]);
        assert!(answer.code == 78 && !answer.stderr.contains("s3cret"), "{file}: {answer:?}");
    }
    folder.write("onceward.toml", &format!("[stores]\nfast = \"{url}\"\n"));
    folder.onceward(&["list"]).says(78, &["onceward.toml:2: stores.fast: ", "write `[stores.fast]`, and its `url = "]);
    std::fs::remove_file(folder.path("onceward.toml")).unwrap();
    let commands: [(&[&str], i32); 10] = [
        (&["migrate", url], 64),
        (&[url], 64),
        (&["list", "--limit", url], 64),
        (&["list", "--cursor=redis://:s3cret@h"], 64),
        (&["list", "--store", "redis:/:s3cret@127.0.0.1:1"], 69),
        (&["run", "--store", "redis:/:s3cret@127.0.0.1:1", "--operation", "a", "--key", "1", "--", "true"], 69),
        (&["list", "--store", "user:s3cret@127.0.0.1:1"], 69),
        (&["list", "--store", "postgres://user:a?s3cret@127.0.0.1:1/db"], 69),
        (&["list", "--store", "redis://:a?s3cret@127.0.0.1:1"], 69),
        (&["copy", "--from", "redis:/:s3cret@127.0.0.1:1", "--to", "a.db"], 69),
    ];
    for (command, code) in commands {
        let answer = folder.onceward(command);
        assert!(answer.code == code && !answer.stderr.contains("s3cret"), "{command:?}: {answer:?}");
    }
}

/// A configuration with a store that cannot be opened, and a record in each of the other two.
fn one_store_down() -> TestFolder {
    let folder = TestFolder::new();
    let stores = ["a", "b"]
        .map(|name| format!("[stores.{name}]\nurl = \"{name}.db\"\n[operation.in_{name}]\nstore = \"{name}\"\n"));
    folder.write("onceward.toml", &format!("store = \"main.db\"\n{}", stores.concat()));
    // The first claim of an operation asks every store; from then on one that is down does not matter.
    run(&folder, "charge", "1");
    run(&folder, "in_b", "1");
    for end in ["", "-wal", "-shm", "-owners", "-mark"] {
        let _ = std::fs::remove_file(folder.path(&format!("a.db{end}")));
    }
    folder.write("a.db", "not a ledger");
    folder
}

#[test]
fn commands_about_one_intent_do_not_need_the_other_stores() {
    let folder = one_store_down();
    for operation in ["charge", "in_b"] {
        folder.onceward(&["get", "--operation", operation, "--key", "1"]).says(0, &[]);
        let resolve = ["resolve", "--operation", operation, "--key", "1", "--did-not-happen"];
        folder.onceward(&resolve).says(1, &["nothing to settle"]);
    }
    folder.onceward(&["get", "--operation", "in_b", "--key", "2"]).says(1, &["not found in", "b.db"]);
    let get = ["get", "--operation", "in_a", "--key", "1"];
    folder.onceward(&get).says(69, &["stores.a: ", "is not an Onceward ledger"]);
    std::fs::remove_file(folder.path("a.db")).unwrap();
    folder.onceward(&get).says(69, &["stores.a: no ledger at a.db"]);
    assert!(!folder.path("a.db").exists());
    folder.write("a.db", "not a ledger");
    // A gateway may have recorded it in any store, so this answer is not certain.
    let get = ["get", "--operation", "other", "--key", "1"];
    folder.onceward(&get).says(69, &["stores.a was not searched: ", "not found in"]);
}

#[test]
fn commands_about_all_stores_go_on_and_report_the_one_that_is_down() {
    let folder = one_store_down();
    let listed = folder.onceward(&["list", "--json"]);
    listed.says(69, &["stores.a was not listed: ", "is not an Onceward ledger"]);
    let page: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    let operations: Vec<_> = page["intents"].as_array().unwrap().iter().map(|intent| &intent["operation"]).collect();
    assert_eq!(operations, ["charge", "in_b"]);
    folder.onceward(&["purge"]).says(69, &["stores.a was not purged: "]);
    folder.onceward(&["serve", "--listen", "127.0.0.1:0"]).says(69, &["stores.a: "]);
}

#[test]
fn a_store_with_two_names_is_refused() {
    let folder = TestFolder::new();
    let named = |name: &str, url: &str| format!("[stores.{name}]\nurl = \"{url}\"\n");
    for (file, said) in [
        (format!("store = \"main.db\"\n{}", named("fast", "./main.db")), "stores.fast and the store at the top level"),
        (named("fast", "file:onceward.db"), "stores.fast and the store at the top level"),
        (
            named("fast", "redis://:s3cret@h") + &named("mail", "redis://user:s3cret@h:6379/0"),
            "stores.mail and stores.fast are the same store",
        ),
    ] {
        folder.write("onceward.toml", &file);
        for command in [
            &["list"][..],
            &["serve", "--listen", "127.0.0.1:0"],
            &["run", "--operation", "a", "--key", "1", "--", "true"],
        ] {
            let answer = folder.onceward(command);
            answer.says(78, &[said]);
            assert!(!answer.stderr.contains("s3cret"), "{answer:?}");
        }
    }
    // A flag may name one of the stores, for a command about that one.
    folder.write("onceward.toml", &format!("store = \"main.db\"\n{}", named("fast", "fast.db")));
    folder.onceward(&["migrate", "--store", "fast.db"]).says(0, &[]);
    folder.onceward(&["list", "--store", "fast.db"]).says(78, &["stores.fast and the store at the top level"]);
}

/// The shell commands of docs/guides/stores.md, in their order.
#[test]
fn the_commands_of_the_guide_work() {
    let guide = include_str!("../../../../docs/guides/stores.md");
    let blocks: Vec<&str> = guide.split("```sh\n").skip(1).filter_map(|block| block.split("```").next()).collect();
    let lines: Vec<&str> = blocks.iter().flat_map(|block| block.lines()).collect();
    assert!(lines.len() >= 4, "the guide shows commands: {lines:?}");
    let folder = TestFolder::new();
    for line in lines {
        let command = line.split('#').next().unwrap_or_default();
        let words: Vec<&str> = command.split_whitespace().skip(1).collect();
        let answer = folder.onceward(&words);
        assert_eq!(answer.code, 0, "{line}: {answer:?}");
    }
    let moved = folder.json(&["list", "--store", "new.db", "--json"]);
    assert_eq!(moved["intents"].as_array().unwrap().len(), 1);
}

/// The configurations of the guide are accepted.
#[test]
fn the_configurations_of_the_guide_are_valid() {
    let guide = include_str!("../../../../docs/guides/stores.md");
    let mut count = 0;
    for block in guide.split("```toml\n").skip(1).filter_map(|block| block.split("```").next()) {
        onceward_runtime::config::checked(block).unwrap_or_else(|error| panic!("{block}\n{error}"));
        count += 1;
    }
    assert_eq!(count, 3);
}

#[test]
fn a_command_whose_operation_moves_to_another_store_is_not_run_again() {
    let folder = TestFolder::new();
    folder.write("onceward.toml", "store = \"main.db\"\n[stores.fast]\nurl = \"fast.db\"\n");
    run(&folder, "email", "1");
    folder.write("onceward.toml", TWO_STORES);
    let again = ["run", "--operation", "email", "--key", "1", "--", "sh", "-c", "echo again >>effects"];
    folder.onceward(&again).says(69, &["email lives in it already", "would run again"]);
    assert!(!folder.path("effects").exists());
}
