//! Every configuration error as a person sees it.

use crate::place::Place;

/// The answer to a `run` under this configuration.
#[track_caller]
fn refused(toml: &str, said: &[&str]) {
    let place = Place::new();
    place.write("onceward.toml", toml);
    place.run(&["--key", "k"], "touch ran").says(78, said);
    assert!(!place.path("ran").exists() && !place.path("onceward.db").exists());
}

#[test]
fn an_unknown_field_is_an_error_with_a_suggestion() {
    refused(
        "store = \"a.db\"\n\n[operation.charge]\nretenton = \"30d\"\n",
        &["onceward: onceward.toml:4: operation.charge.retenton: there is no such field; did you mean `retention`?"],
    );
    refused(
        "[operations.charge]\n",
        &["onceward.toml:1: operations: there is no such field; did you mean `operation`?"],
    );
    refused(
        "[operation.charge]\ncolour = 1\n",
        &[
            "onceward.toml:2: operation.charge.colour: there is no such field; there are allow_volatile, deadline, dedup, effect",
        ],
    );
    refused(
        "[operation.\"POST /v1\"]\nkey = [\"/a\"]\nwindow = { of = \"/at\", evry = \"day\", every = \"day\" }\n",
        &["onceward.toml:3: operation.\"POST /v1\".window.evry: there is no such field; did you mean `every`?"],
    );
}

#[test]
fn all_unknown_fields_are_told_at_once_in_order() {
    let toml = "stoer = \"a\"\n[operation.a]\nteir = \"email\"\nwait = 5\n[operation.b]\nkee = []\n";
    let said = "onceward: onceward.toml has 4 mistakes; nothing was done.\n  \
                onceward.toml:1: stoer: there is no such field; did you mean `store`?\n  \
                onceward.toml:3: operation.a.teir: there is no such field; did you mean `tier`?\n  \
                onceward.toml:4: operation.a.wait: invalid type: integer `5`, expected a string\n  \
                onceward.toml:6: operation.b.kee: there is no such field; did you mean `key`?\n";
    refused(toml, &[said]);
}

#[test]
fn a_mistake_in_a_route_is_told_with_its_line() {
    let route = "[[gateway.route]]\nupstream = \"http://127.0.0.1:1\"\n";
    for (toml, says) in [
        ("[gateway]".to_owned(), "onceward.toml:1: gateway.route: a gateway needs at least one"),
        (
            format!("{route}pth = \"/\""),
            "onceward.toml:3: gateway.route[0].pth: there is no such field; did you mean `path`?",
        ),
        (
            format!("{route}operation = \"charge\""),
            "onceward.toml:3: gateway.route[0].operation: there is no such operation; there are none",
        ),
        (
            format!("{route}path = \"/*\"\nkey_mode = \"optional\"\n{route}path = \"/v1/charges\""),
            "onceward.toml:7: gateway.route[1].path: it is never reached: the route with \"/*\" stands before it",
        ),
        (format!("[gateway]\nlisten = \"here\"\n{route}"), "onceward.toml:2: gateway.listen: \"here\" is no address"),
    ] {
        refused(&toml, &[says]);
    }
}

#[test]
fn names_of_later_versions_say_so() {
    for (toml, path) in [
        ("[sink.stripe]\ntype = \"http\"", "onceward.toml:1: sink: this version of onceward does not have the outbox"),
        (
            "[operation.a]\nsink = \"stripe\"",
            "onceward.toml:2: operation.a.sink: this version of onceward does not have",
        ),
    ] {
        refused(toml, &[path, "; remove `"]);
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
        ("max_runtime = \"2d\"", "operation.op.max_runtime: it is at most 24h"),
        ("retention = \"always\"", "operation.op.retention: \"always\" needs a whole number before each unit"),
        ("retention = \"always\"", "; or write forever"),
        ("tombstone = \"3min\"", "operation.op.tombstone: \"3min\" has the unknown unit \"min\""),
        ("wait = 20", "operation.op.wait: invalid type: integer `20`, expected a string"),
        ("honours_key_for = \"\"", "operation.op.honours_key_for: the duration is empty"),
        ("keep_limit = \"1GB\"", "operation.op.keep_limit: \"1GB\" is no size"),
        ("keep_limit = -1", "operation.op.keep_limit: a size cannot be negative"),
        ("keep_limit = \"9MiB\"", "operation.op.keep_limit: it is at most 8MiB"),
        ("dedup = \"0s\"", "operation.op.dedup: 0s holds no key at all"),
        ("dedup = \"10m\"\ntier = \"payment\"", "operation.op.tier: `dedup` says how long the key holds"),
        ("dedup = \"10m\"\nretention = \"1d\"", "operation.op.retention: `dedup` says how long the key holds"),
        ("dedup = \"10m\"\ntombstone = \"1d\"", "operation.op.tombstone: `dedup` says how long the key holds"),
        ("allow_volatile = \"yes\"", "operation.op.allow_volatile: invalid type: string \"yes\", expected a boolean"),
        ("key = \"/a\"", "operation.op.key: invalid type: string \"/a\", expected a sequence"),
        ("key = []", "operation.op.key: the recipe's key names no field"),
        ("key = [\"a\"]", "operation.op.key: in the recipe's key: the pointer \"a\" must begin with '/'"),
        (
            "key = [\"/request_id\"]",
            "operation.op.key: the recipe's key names \"/request_id\", which by its name changes",
        ),
        ("match = [\"/a\"]", "operation.op.match: it needs `key`"),
        ("key = [\"/a\"]\nnormalise = [\"upper\"]", "operation.op.normalise: there is no normaliser \"upper\""),
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
            "operation.op.window: there is no time zone \"Mars\"",
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
fn what_is_no_toml_or_cannot_be_read_says_so() {
    refused("store = \n", &["onceward.toml:1: this is no TOML: "]);
    refused("[operation.a\n", &["onceward.toml:1: this is no TOML: "]);
    refused("store = 1\n", &["onceward.toml:1: store: invalid type: integer `1`, expected a string"]);
    let place = Place::new();
    place.run(&["--key", "k", "--config", "none.toml"], "true").says(78, &["none.toml cannot be read: No such file"]);
}

#[test]
fn what_a_command_cannot_do_is_refused() {
    refused(
        "[operation.op]\nin_doubt = \"probe\"\n",
        &["in_doubt = \"probe\" is for effects whose other side can be asked"],
    );
    refused("[operation.op]\neffect = \"transactional\"\n", &["effect = \"transactional\" is for code that commits"]);
}

#[test]
fn the_file_is_found_by_flag_then_environment_then_folder() {
    let place = Place::new();
    for name in ["flag", "environment", "onceward"] {
        place.write(&format!("{name}.toml"), &format!("store = \"{name}.db\"\n"));
    }
    let run = |flags: &[&str], variable: Option<&str>| {
        let mut command = place.run_command(&[&["--key", "k"], flags].concat(), "true");
        command.envs(variable.map(|value| ("ONCEWARD_CONFIG", value)));
        assert!(command.status().unwrap().success());
    };
    run(&[], None);
    assert!(place.path("onceward.db").exists());
    run(&[], Some("environment.toml"));
    assert!(place.path("environment.db").exists() && !place.path("flag.db").exists());
    run(&["--config", "flag.toml"], Some("environment.toml"));
    assert!(place.path("flag.db").exists());
    run(&[], Some(""));
}

#[test]
fn a_store_is_named_by_flag_then_environment_then_file() {
    let place = Place::new();
    place.write("onceward.toml", "store = \"file.db\"\n");
    let run = |flags: &[&str], variable: Option<&str>| {
        let mut command = place.run_command(&[&["--key", "k"], flags].concat(), "true");
        command.envs(variable.map(|value| ("ONCEWARD_STORE", value)));
        assert!(command.status().unwrap().success());
    };
    run(&["--store", "flag.db"], Some("environment.db"));
    assert!(place.path("flag.db").exists() && !place.path("environment.db").exists());
    run(&[], Some("environment.db"));
    assert!(place.path("environment.db").exists() && !place.path("file.db").exists());
    run(&[], None);
    assert!(place.path("file.db").exists() && !place.path("onceward.db").exists());
}

#[test]
fn one_configuration_means_one_ledger_wherever_a_job_starts() {
    let place = Place::new();
    std::fs::create_dir(place.path("etc")).unwrap();
    std::fs::create_dir(place.path("elsewhere")).unwrap();
    place.write("etc/onceward.toml", "store = \"ledger.db\"\n");
    place.run(&["--key", "k", "--config", "etc/onceward.toml"], "echo once").says(0, &[]);
    let mut again = place.run_command(&["--key", "k", "--config", "../etc/onceward.toml"], "echo once");
    let again = again.current_dir(place.path("elsewhere")).output().unwrap();
    assert!(String::from_utf8_lossy(&again.stderr).contains("repeat"));
    assert!(place.path("etc/ledger.db").exists());
}

/// What the guides say to write into `onceward.toml` can be written there.
#[test]
fn the_examples_of_the_guides_are_accepted() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let pages =
        ["guides/api.md", "guides/command.md", "guides/gateway.md", "guides/mcp.md", "concepts.md", "strategies.md"];
    for page in pages {
        let text = std::fs::read_to_string(format!("{docs}/{page}")).unwrap();
        let mut examples = 0;
        for block in text.split("```toml\n").skip(1) {
            let example = block.split("```").next().unwrap();
            if let Err(error) = onceward_server::checked(example) {
                panic!("{page}:\n{example}\n{error}");
            }
            examples += 1;
        }
        assert!(examples > 0, "{page} has no example");
    }
}

#[test]
fn a_tenant_secret_is_somewhere_else_and_long_enough() {
    let place = Place::new();
    let serve = |secret: &str, file: &str| {
        place.write("secret", file);
        let route = "[gateway]\nlisten = \"127.0.0.1:0\"\n[[gateway.route]]\nupstream = \"http://127.0.0.1:9\"\n";
        place.write("onceward.toml", &format!("tenant_secret = \"{secret}\"\n{route}"));
        place.onceward(&["serve"])
    };
    serve("hunter2-hunter2-hunter2", "").says(78, &["tenant_secret", "env:NAME"]);
    serve("file:secret", "short").says(78, &["tenant_secret", "16 characters"]);
    serve("file:nowhere", "").says(78, &["tenant_secret"]);
    let hash = format!("sha256:{}", "0".repeat(64));
    serve(&hash, "").says(78, &["tenant_secret", "its hash is not enough"]);
}

#[test]
fn a_quota_is_a_whole_number_above_zero() {
    refused(
        "[limits]\nrecords_per_tenant = 0\n",
        &["onceward.toml:2: limits.records_per_tenant: 0 would refuse every key"],
    );
    refused("[limits]\nrecords_per_tenant = -1\n", &["onceward.toml:2: limits.records_per_tenant:"]);
    refused("[limits]\nrecords_per_tenant = \"many\"\n", &["onceward.toml:2: limits.records_per_tenant:"]);
    refused("[limits]\nrecords = 5\n", &["onceward.toml:2: limits.records: there is no such field"]);
}
