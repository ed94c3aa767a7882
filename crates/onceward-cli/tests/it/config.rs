//! Every configuration error as the user sees it.

use crate::test_folder::TestFolder;

/// Runs a command with this configuration, and checks the error.
#[track_caller]
fn refused(toml: &str, said: &[&str]) {
    let folder = TestFolder::new();
    folder.write("onceward.toml", toml);
    folder.run(&["--key", "k"], "touch ran").says(78, said);
    assert!(!folder.path("ran").exists() && !folder.path("onceward.db").exists());
}

#[test]
fn an_unknown_field_is_an_error_with_a_suggestion() {
    refused(
        "store = \"a.db\"\n\n[operation.charge]\nretenton = \"30d\"\n",
        &["onceward: onceward.toml:4: operation.charge.retenton: unknown field; did you mean `retention`?"],
    );
    refused("[operations.charge]\n", &["onceward.toml:1: operations: unknown field; did you mean `operation`?"]);
    refused(
        "[operation.charge]\ncolour = 1\n",
        &[
            "onceward.toml:2: operation.charge.colour: unknown field; known names are allow_best_effort, allow_volatile, deadline, dedup, effect",
        ],
    );
    refused(
        "[operation.\"POST /v1\"]\nkey = [\"/a\"]\nwindow = { of = \"/at\", evry = \"day\", every = \"day\" }\n",
        &["onceward.toml:3: operation.\"POST /v1\".window.evry: unknown field; did you mean `every`?"],
    );
}

#[test]
fn all_unknown_fields_are_reported_at_once_in_order() {
    let toml = "stoer = \"a\"\n[operation.a]\nteir = \"email\"\nwait = 5\n[operation.b]\nkee = []\n";
    let said = "onceward: onceward.toml has 4 mistakes; nothing was done.\n  \
    onceward.toml:1: stoer: unknown field; did you mean `store`?\n  \
    onceward.toml:3: operation.a.teir: unknown field; did you mean `tier`?\n  \
    onceward.toml:4: operation.a.wait: invalid type: integer `5`, expected a string\n  \
    onceward.toml:6: operation.b.kee: unknown field; did you mean `key`?\n";
    refused(toml, &[said]);
}

#[test]
fn a_mistake_in_a_route_is_reported_with_its_line() {
    let route = "[[gateway.route]]\nupstream = \"http://127.0.0.1:1\"\n";
    for (toml, says) in [
        ("[gateway]".to_owned(), "onceward.toml:1: gateway.route: a gateway needs at least one"),
        (format!("{route}pth = \"/\""), "onceward.toml:3: gateway.route[0].pth: unknown field; did you mean `path`?"),
        (
            format!("{route}operation = \"charge\""),
            "onceward.toml:3: gateway.route[0].operation: unknown operation; none are known",
        ),
        (
            format!("{route}path = \"/*\"\nkey_mode = \"optional\"\n{route}path = \"/v1/charges\""),
            "onceward.toml:7: gateway.route[1].path: this route is never reached: the earlier route with \"/*\" matches",
        ),
        (format!("[gateway]\nlisten = \"here\"\n{route}"), "onceward.toml:2: gateway.listen: invalid address \"here\""),
    ] {
        refused(&toml, &[says]);
    }
}

#[test]
fn a_sink_that_does_not_exist_or_cannot_be_used_like_this_is_refused() {
    let sinks = "[sink.first]\ntype = \"pull\"\nfallback = \"second\"\n[sink.second]\ntype = \"pull\"\n";
    let honours =
        "[sink.first]\ntype = \"http\"\nhonours_key = true\nfallback = \"second\"\n[sink.second]\ntype = \"http\"\n";
    let itself = "[sink.first]\ntype = \"http\"\nfallback = \"first\"";
    let shared = "[sink.first]\ntype = \"http\"\npasses_key = true\n[operation.a]\nsink = \"first\"\n[operation.b]\nsink = \"first\"";
    for (toml, said) in [
        (shared, "onceward.toml:3: sink.first.passes_key: 2 operations deliver to this sink"),
        ("[operation.a]\nsink = \"stripe\"", "onceward.toml:2: operation.a.sink: unknown sink"),
        ("[sink.first]\ntype = \"http\"\nfallback = \"x\"", "onceward.toml:3: sink.first.fallback: unknown sink"),
        (itself, "onceward.toml:3: sink.first.fallback: a sink is not its own fallback"),
        (sinks, "onceward.toml:3: sink.first.fallback: `second`: workers take the entries of a `pull` sink"),
        (honours, "onceward.toml:4: sink.first.fallback: `second`: it does not honour keys, or not for as long"),
    ] {
        refused(toml, &[said]);
    }
}

#[test]
fn wrong_types_and_values_name_the_line_the_path_and_what_is_allowed() {
    for (line, said) in [
        (
            "tier = \"gold\"",
            "operation.op.tier: unknown variant `gold`, expected one of `payment`, `notification`, `email`, `standard`, `forever`",
        ),
        ("tier = 1", "operation.op.tier: "),
        (
            "in_doubt = \"ask\"",
            "operation.op.in_doubt: unknown variant `ask`, expected one of `hold`, `retry`, `probe`",
        ),
        (
            "on_error = \"ignore\"",
            "operation.op.on_error: unknown variant `ignore`, expected one of `classify`, `retry`, `doubt`, `keep`",
        ),
        ("effect = \"none\"", "operation.op.effect: unknown variant `none`, expected `external` or `transactional`"),
        ("store_down = \"ajar\"", "operation.op.store_down: unknown variant `ajar`, expected `closed` or `open`"),
        ("max_runtime = \"60\"", "operation.op.max_runtime: \"60\" has a number without a unit"),
        ("max_runtime = \"2d\"", "operation.op.max_runtime: the maximum is 24h"),
        ("retention = \"always\"", "operation.op.retention: \"always\" needs a whole number before each unit"),
        ("retention = \"always\"", "; or write forever"),
        ("tombstone = \"3min\"", "operation.op.tombstone: \"3min\" has the unknown unit \"min\""),
        ("wait = 20", "operation.op.wait: invalid type: integer `20`, expected a string"),
        ("honours_key_for = \"\"", "operation.op.honours_key_for: the duration is empty"),
        ("keep_limit = \"1GB\"", "operation.op.keep_limit: invalid size \"1GB\""),
        ("keep_limit = -1", "operation.op.keep_limit: a size cannot be negative"),
        ("keep_limit = \"9MiB\"", "operation.op.keep_limit: the maximum is 8MiB"),
        ("dedup = \"0s\"", "operation.op.dedup: 0s would hold no key at all"),
        ("dedup = \"10m\"\ntier = \"payment\"", "operation.op.tier: `dedup` already sets how long the key is held"),
        (
            "dedup = \"10m\"\nretention = \"1d\"",
            "operation.op.retention: `dedup` already sets how long the key is held",
        ),
        (
            "dedup = \"10m\"\ntombstone = \"1d\"",
            "operation.op.tombstone: `dedup` already sets how long the key is held",
        ),
        ("allow_volatile = \"yes\"", "operation.op.allow_volatile: invalid type: string \"yes\", expected a boolean"),
        ("key = \"/a\"", "operation.op.key: invalid type: string \"/a\", expected a sequence"),
        ("key = []", "operation.op.key: the recipe's key names no field"),
        ("key = [\"a\"]", "operation.op.key: in the recipe's key: the pointer \"a\" must begin with '/'"),
        (
            "key = [\"/request_id\"]",
            "operation.op.key: the recipe's key names \"/request_id\", which by its name changes",
        ),
        ("match = [\"/a\"]", "operation.op.match: this needs `key`"),
        ("key = [\"/a\"]\nnormalise = [\"upper\"]", "operation.op.normalise: unknown normaliser \"upper\""),
        (
            "key = [\"/a\"]\nmatch = [\"/a\"]",
            "operation.op.match: the recipe's match names \"/a\", which its key already",
        ),
        (
            "key = [\"/a\"]\nwindow = { of = \"now\", every = \"day\" }",
            "operation.op.window: the recipe's window is cut from the clock",
        ),
        (
            "key = [\"/a\"]\nwindow = { of = \"/at\", every = \"fortnight\" }",
            "operation.op.window: the recipe's window is cut every",
        ),
        (
            "key = [\"/a\"]\nwindow = { of = \"/at\", every = \"day\", zone = \"Mars\" }",
            "operation.op.window: unknown time zone \"Mars\"",
        ),
        ("key = [\"/a\"]\nwindow = { of = \"/at\" }", "operation.op.window: missing field `every`"),
    ] {
        let last = line.lines().count() + 2;
        refused(
            &format!("store = \"onceward.db\"\n[operation.op]\n{line}\n"),
            &[&format!("onceward: onceward.toml:{last}: "), said].map(|text| text),
        );
    }
}

#[test]
fn invalid_toml_and_unreadable_files_are_reported() {
    refused("store = \n", &["onceward.toml:1: invalid TOML: "]);
    refused("[operation.a\n", &["onceward.toml:1: invalid TOML: "]);
    refused("store = 1\n", &["onceward.toml:1: store: invalid type: integer `1`, expected a string"]);
    let folder = TestFolder::new();
    folder.run(&["--key", "k", "--config", "none.toml"], "true").says(78, &["cannot read none.toml: No such file"]);
}

#[test]
fn settings_that_do_not_work_for_a_command_are_refused() {
    refused("[operation.op]\nin_doubt = \"probe\"\n", &["in_doubt = \"probe\" needs a downstream that can be asked"]);
    refused("[operation.op]\neffect = \"transactional\"\n", &["effect = \"transactional\" is for code that commits"]);
}

#[test]
fn the_file_is_found_by_flag_then_environment_then_folder() {
    let folder = TestFolder::new();
    for name in ["flag", "environment", "onceward"] {
        folder.write(&format!("{name}.toml"), &format!("store = \"{name}.db\"\n"));
    }
    let run = |flags: &[&str], variable: Option<&str>| {
        let mut command = folder.run_command(&[&["--key", "k"], flags].concat(), "true");
        command.envs(variable.map(|value| ("ONCEWARD_CONFIG", value)));
        assert!(command.status().unwrap().success());
    };
    run(&[], None);
    assert!(folder.path("onceward.db").exists());
    run(&[], Some("environment.toml"));
    assert!(folder.path("environment.db").exists() && !folder.path("flag.db").exists());
    run(&["--config", "flag.toml"], Some("environment.toml"));
    assert!(folder.path("flag.db").exists());
    run(&[], Some(""));
}

#[test]
fn a_store_is_named_by_flag_then_environment_then_file() {
    let folder = TestFolder::new();
    folder.write("onceward.toml", "store = \"file.db\"\n");
    let run = |flags: &[&str], variable: Option<&str>| {
        let mut command = folder.run_command(&[&["--key", "k"], flags].concat(), "true");
        command.envs(variable.map(|value| ("ONCEWARD_STORE", value)));
        assert!(command.status().unwrap().success());
    };
    run(&["--store", "flag.db"], Some("environment.db"));
    assert!(folder.path("flag.db").exists() && !folder.path("environment.db").exists());
    run(&[], Some("environment.db"));
    assert!(folder.path("environment.db").exists() && !folder.path("file.db").exists());
    run(&[], None);
    assert!(folder.path("file.db").exists() && !folder.path("onceward.db").exists());
}

#[test]
fn one_configuration_means_one_ledger_in_every_working_directory() {
    let folder = TestFolder::new();
    std::fs::create_dir(folder.path("etc")).unwrap();
    std::fs::create_dir(folder.path("elsewhere")).unwrap();
    folder.write("etc/onceward.toml", "store = \"ledger.db\"\n");
    folder.run(&["--key", "k", "--config", "etc/onceward.toml"], "echo once").says(0, &[]);
    let mut again = folder.run_command(&["--key", "k", "--config", "../etc/onceward.toml"], "echo once");
    let again = again.current_dir(folder.path("elsewhere")).output().unwrap();
    assert!(String::from_utf8_lossy(&again.stderr).contains("replay of a run"));
    assert!(folder.path("etc/ledger.db").exists());
}

/// The examples of `onceward.toml` in the guides are valid.
#[test]
fn the_examples_in_the_guides_are_accepted() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let pages = [
        "guides/api.md",
        "guides/command.md",
        "guides/gateway.md",
        "guides/mcp.md",
        "reference/gateway.md",
        "reference/mcp.md",
        "concepts.md",
        "strategies.md",
    ];
    for page in pages {
        let text = std::fs::read_to_string(format!("{docs}/{page}")).unwrap();
        let mut examples = 0;
        for block in text.split("```toml\n").skip(1) {
            let example = block.split("```").next().unwrap();
            if let Err(error) = onceward_runtime::config::checked(example) {
                panic!("{page}:\n{example}\n{error}");
            }
            examples += 1;
        }
        assert!(examples > 0, "{page} has no example");
    }
}

#[test]
fn a_tenant_secret_is_stored_elsewhere_and_long_enough() {
    let folder = TestFolder::new();
    let serve = |secret: &str, file: &str| {
        folder.write("secret", file);
        let route = "[gateway]\nlisten = \"127.0.0.1:0\"\n[[gateway.route]]\nupstream = \"http://127.0.0.1:9\"\n";
        folder.write("onceward.toml", &format!("tenant_secret = \"{secret}\"\n{route}"));
        folder.onceward(&["serve"])
    };
    serve("hunter2-hunter2-hunter2", "").says(78, &["tenant_secret", "env:NAME"]);
    serve("file:secret", "short").says(78, &["tenant_secret", "16 characters"]);
    serve("file:nowhere", "").says(78, &["tenant_secret"]);
    let hash = format!("sha256:{}", "0".repeat(64));
    serve(&hash, "").says(78, &["tenant_secret", "a hash is not enough"]);
}

#[test]
fn a_quota_is_an_integer_above_zero() {
    refused(
        "[limits]\nrecords_per_tenant = 0\n",
        &["onceward.toml:2: limits.records_per_tenant: 0 would refuse every key"],
    );
    refused("[limits]\nrecords_per_tenant = -1\n", &["onceward.toml:2: limits.records_per_tenant:"]);
    refused("[limits]\nrecords_per_tenant = \"many\"\n", &["onceward.toml:2: limits.records_per_tenant:"]);
    refused("[limits]\nrecords = 5\n", &["onceward.toml:2: limits.records: unknown field"]);
}
