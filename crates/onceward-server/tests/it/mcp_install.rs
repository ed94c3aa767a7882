//! `onceward mcp install`, on files as clients write them.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::place::{Answer, Place};

/// With what a person may have typed: tabs, escapes, a number that doubles cannot hold, an order of their own.
const CLAUDE: &str = "{\n\t\"numStartups\": 12345678901234567890123,\n\t\"mcpServers\": {\n\t\t\"mail\": {\n\t\t\t\"type\": \"stdio\",\n\t\t\t\"args\": [\n\t\t\t\t\"-y\",\n\t\t\t\t\"some-mail-server\"\n\t\t\t],\n\t\t\t\"command\": \"np\\u0078\",\n\t\t\t\"env\": {\"TOKEN\": \"sk-secret\"}\n\t\t}\n\t},\n\t\"projects\": {\n\t\t\"/projects/shop\": {\"allowed\": [], \"mcpServers\": {\"db\": {\"command\": \"db-server\", \"args\": [\"--read\"]}}},\n\t\t\"/projects/other\": {\"history\": [\"caf\\u00e9\"]}\n\t}\n}";

/// A folder that is home and project at once, and the binary on the path or not.
struct Desk(Place);

impl Desk {
    fn new() -> Self {
        Self(Place::new())
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        self.0.read(name)
    }

    fn value(&self, name: &str) -> Value {
        serde_json::from_str(&self.read(name)).unwrap()
    }

    fn install(&self, flags: &[&str]) -> Answer {
        let mut command = self.0.command(&[&["mcp", "install"], flags].concat());
        std::fs::create_dir_all(self.0.path("project")).unwrap();
        command.current_dir(self.0.path("project")).env("HOME", self.0.path("home"));
        // The whole path of `env`, which starts the binary here, is of no concern to it.
        command.env("PATH", std::env::join_paths([self.0.path("bin"), "/usr/bin".into(), "/bin".into()]).unwrap());
        for name in ["XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "APPDATA"] {
            command.env_remove(name);
        }
        Answer::of(command.output().unwrap())
    }

    /// The copies of old files beside a file.
    fn backups(&self, name: &str) -> Vec<PathBuf> {
        let path = self.0.path(name);
        let start = format!("{}.onceward-backup-", path.file_name().unwrap().to_str().unwrap());
        let entries = std::fs::read_dir(path.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
        let mut found: Vec<_> =
            entries.filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with(&start)).collect();
        found.sort();
        found
    }
}

/// Where programs with windows keep their settings on this system.
fn support() -> &'static str {
    if cfg!(target_os = "macos") { "home/Library/Application Support" } else { "home/.config" }
}

fn own() -> &'static str {
    env!("CARGO_BIN_EXE_onceward")
}

#[test]
fn without_write_the_change_is_shown_and_nothing_is_touched() {
    let desk = Desk::new();
    desk.write("home/.claude.json", CLAUDE);
    let answer = desk.install(&[]);
    answer.says(0, &[]);
    let out = answer.out();
    for text in [
        "Claude Code: ",
        "  mail:\n    - \"command\": \"npx\"\n    - \"args\": [\"-y\", \"some-mail-server\"]\n",
        &format!("    + \"command\": \"{}\"\n", own()),
        "    + \"args\": [\"mcp\", \"--server\", \"mail\", \"--here\", \"--\", \"npx\", \"-y\", \"some-mail-server\"]\n",
        "  db (project /projects/shop):\n",
        "Nothing was written. Add --write",
    ] {
        assert!(out.contains(text), "{text:?} is not in:\n{out}");
    }
    assert!(!out.contains("sk-secret"), "{out}");
    assert_eq!((desk.read("home/.claude.json"), desk.backups("home/.claude.json").len()), (CLAUDE.to_owned(), 0));
}

#[test]
fn what_is_written_differs_in_nothing_else_and_undo_gives_the_same_bytes_back() {
    let desk = Desk::new();
    desk.write("home/.claude.json", CLAUDE);
    std::fs::set_permissions(desk.0.path("home/.claude.json"), PermissionsExt::from_mode(0o640)).unwrap();
    let answer = desk.install(&["--write"]);
    answer.says(0, &[]);
    assert!(answer.out().contains("Start the client anew"), "{}", answer.out());
    let lines = |first: &str| first.replace(", ", ",\n\t\t\t\t");
    let expected = CLAUDE
        .replace(
            "\"-y\"",
            &format!("{}\"-y\"", lines("\"mcp\", \"--server\", \"mail\", \"--here\", \"--\", \"np\\u0078\", ")),
        )
        .replace("\"command\": \"np\\u0078\"", &format!("\"command\": \"{}\"", own()))
        .replace("\"--read\"", "\"mcp\", \"--server\", \"db\", \"--here\", \"--\", \"db-server\", \"--read\"")
        .replace("\"command\": \"db-server\"", &format!("\"command\": \"{}\"", own()));
    assert_eq!(desk.read("home/.claude.json"), expected);
    let mode = |path: PathBuf| std::fs::metadata(path).unwrap().mode() & 0o777;
    let backups = desk.backups("home/.claude.json");
    assert_eq!(backups.len(), 1);
    assert_eq!(std::fs::read_to_string(&backups[0]).unwrap(), CLAUDE);
    let stamp = backups[0].to_str().unwrap().rsplit_once("backup-").unwrap().1.to_owned();
    assert!(stamp.len() == 15 && stamp.as_bytes()[8] == b'-', "{stamp}");
    assert_eq!((mode(desk.0.path("home/.claude.json")), mode(backups[0].clone())), (0o640, 0o640));
    // Nothing is left over, and a second time there is nothing to do.
    let names = std::fs::read_dir(desk.0.path("home")).unwrap().count();
    let again = desk.install(&["--write"]);
    again.says(0, &[]);
    assert!(again.out().contains("  mail: the gateway stands before it already"), "{}", again.out());
    assert_eq!((std::fs::read_dir(desk.0.path("home")).unwrap().count(), names), (2, 2));
    desk.install(&["--undo", "--write"]).says(0, &[]);
    assert_eq!(desk.read("home/.claude.json"), CLAUDE);
    let undone = desk.install(&["--undo"]);
    undone.says(0, &[]);
    assert!(undone.out().contains("  mail: no gateway stands before it"), "{}", undone.out());
}

#[test]
fn every_client_is_found_where_it_keeps_its_servers() {
    let desk = Desk::new();
    let servers = |table: &str| json!({ table: { "one": { "command": "x" } } }).to_string();
    let desktop = format!("{}/Claude/claude_desktop_config.json", support());
    let code = format!("{}/Code/User/mcp.json", support());
    let profile = format!("{}/Code/User/profiles/1a/mcp.json", support());
    let files = [
        ("claude-code", "project/.mcp.json", "mcpServers"),
        ("claude-code", "home/.claude.json", "mcpServers"),
        ("claude-desktop", &desktop, "mcpServers"),
        ("cursor", "project/.cursor/mcp.json", "mcpServers"),
        ("cursor", "home/.cursor/mcp.json", "mcpServers"),
        ("vscode", "project/.vscode/mcp.json", "servers"),
        ("vscode", &code, "servers"),
        ("vscode", &profile, "servers"),
    ];
    for (_, file, table) in files {
        desk.write(file, &servers(table));
    }
    desk.install(&["--client", "cursor", "--write"]).says(0, &[]);
    for (client, file, table) in files {
        let program = &desk.value(file)[table]["one"]["command"];
        assert_eq!(program == own(), client == "cursor", "{file}");
    }
    desk.install(&["--write"]).says(0, &[]);
    for (_, file, table) in files {
        let wanted = json!({ "command": own(), "args": ["mcp", "--server", "one", "--here", "--", "x"] });
        assert_eq!(desk.value(file)[table]["one"], wanted, "{file}");
    }
}

#[test]
fn a_binary_that_the_path_finds_is_named_without_its_folder_except_where_there_is_no_path() {
    let desk = Desk::new();
    let desktop = format!("{}/Claude/claude_desktop_config.json", support());
    for file in [&desktop, "home/.cursor/mcp.json"] {
        desk.write(file, r#"{"mcpServers":{"one":{"command":"x"}}}"#);
    }
    desk.write("bin/other", "");
    symlink(own(), desk.0.path("bin/onceward")).unwrap();
    desk.install(&["--write"]).says(0, &[]);
    let program = |file: &str| desk.value(file)["mcpServers"]["one"]["command"].as_str().unwrap().to_owned();
    assert_eq!(program("home/.cursor/mcp.json"), "onceward");
    assert_eq!(program(&desktop), desk.0.path("bin/onceward").to_str().unwrap());
}

#[test]
fn another_onceward_on_the_path_is_not_taken_for_this_one() {
    let desk = Desk::new();
    desk.write("home/.cursor/mcp.json", r#"{"mcpServers":{"one":{"command":"x"}}}"#);
    desk.write("bin/onceward", "#!/bin/sh\n");
    desk.install(&["--write"]).says(0, &[]);
    assert_eq!(desk.value("home/.cursor/mcp.json")["mcpServers"]["one"]["command"], own());
}

#[test]
fn what_is_no_command_is_named_and_left_alone() {
    let desk = Desk::new();
    let text = json!({ "mcpServers": {
        "far": { "type": "http", "url": "https://host/mcp?key=sk-secret" },
        "typed": { "type": "sse", "command": "x" },
        "number": { "command": 7 },
        "args": { "command": "x", "args": ["a", 7] },
        "odd": "x",
        "ours": { "command": "/opt/bin/onceward", "args": ["--store", "s", "mcp", "--server", "z", "--", "x"] },
        "configured": { "command": "onceward", "args": ["mcp", "--server", "mail"] },
    }});
    desk.write("agent.json", &text.to_string());
    let path = desk.0.path("agent.json");
    let path = path.to_str().unwrap();
    let answer = desk.install(&["--file", path, "--write"]);
    answer.says(1, &[]);
    assert!(!answer.out().contains("Start the client anew"), "{}", answer.out());
    for text in [
        "  far: it is reached by HTTP. Run `onceward mcp --upstream URL",
        "  typed: left alone, because",
        "  number: left alone, because its command is not a text",
        "  args: left alone, because its args are not a list of texts",
        "  odd: left alone, because it has neither",
        "  ours: the gateway stands before it already",
        "  configured: the gateway stands before it already",
    ] {
        assert!(answer.out().contains(text), "{text:?} is not in:\n{}", answer.out());
    }
    assert!(!answer.out().contains("sk-secret"));
    assert_eq!(desk.value("agent.json"), text);
    assert!(desk.backups("agent.json").is_empty());
    desk.install(&["--file", path, "--write", "--undo"]).says(1, &[]);
    desk.install(&["--file", path, "--undo", "--server", "far"]).says(0, &[]);
    let mut undone = text;
    undone["mcpServers"]["ours"] = json!({ "command": "x", "args": [] });
    assert_eq!(desk.value("agent.json"), undone);
}

#[test]
fn only_the_servers_that_are_named_change() {
    let desk = Desk::new();
    desk.write("project/.mcp.json", r#"{"mcpServers":{"a":{"command":"x"},"b":{"command":"y"},"c":{"command":"z"}}}"#);
    desk.install(&["--server", "a", "--server", "c", "--write"]).says(0, &[]);
    let servers = desk.value("project/.mcp.json")["mcpServers"].clone();
    let changed = ["a", "b", "c"].map(|name| servers[name]["command"] == own());
    assert_eq!(changed, [true, false, true]);
    desk.install(&["--server", "nobody"]).says(64, &["no server is called nobody"]);
}

#[test]
fn different_servers_of_one_name_do_not_share_calls_and_equal_ones_do() {
    let desk = Desk::new();
    let mail = |account: &str| json!({ "command": "mail", "env": { "ACCOUNT": account } });
    let text = json!({
        "mcpServers": { "mail": mail("a") },
        "projects": { "/p": { "mcpServers": { "mail": mail("b") } }, "/q": { "mcpServers": { "mail": mail("a") } } },
    });
    desk.write("home/.claude.json", &text.to_string());
    desk.install(&["--write"]).says(0, &[]);
    let written = desk.value("home/.claude.json");
    let name = |server: &Value| server["mail"]["args"][2].as_str().unwrap().to_owned();
    let project = |path: &str| name(&written["projects"][path]["mcpServers"]);
    assert_eq!((name(&written["mcpServers"]), project("/q")), ("mail".to_owned(), "mail".to_owned()));
    assert!(project("/p").starts_with("mail-") && project("/p").len() == 11, "{}", project("/p"));
    // Another file later meets the names that are taken.
    desk.write("home/.cursor/mcp.json", &json!({ "mcpServers": { "mail": mail("b") } }).to_string());
    desk.install(&["--write"]).says(0, &[]);
    assert_eq!(name(&desk.value("home/.cursor/mcp.json")["mcpServers"]), project("/p"));
}

/// A name that the configuration has is one server everywhere; any other is that of the folder it is started in.
#[test]
fn a_configuration_is_found_from_anywhere_and_says_what_is_one_server() {
    let desk = Desk::new();
    let text = r#"{"mcpServers":{"mail":{"command":"x"},"files":{"command":"y"}}}"#;
    desk.write("project/.mcp.json", text);
    desk.write("project/own.toml", "[mcp.server.mail.tool.send]\nkey = [\"/to\"]\n");
    desk.install(&["--config", "own.toml", "--write"]).says(0, &[]);
    let servers = desk.value("project/.mcp.json")["mcpServers"].clone();
    let file = desk.0.path("project").canonicalize().unwrap().join("own.toml");
    let file = file.to_str().unwrap();
    assert_eq!(servers["mail"]["args"], json!(["mcp", "--config", file, "--server", "mail", "--", "x"]));
    assert_eq!(servers["files"]["args"], json!(["mcp", "--config", file, "--server", "files", "--here", "--", "y"]));
    desk.install(&["--config", "own.toml"]).says(0, &[]);
    desk.write("other.toml", "");
    let other = desk.install(&["--config", "../other.toml", "--write"]);
    other.says(1, &[]);
    assert!(other.out().contains("mail: left alone, because the gateway stands before it already, without this"));
    desk.install(&["--undo", "--write"]).says(0, &[]);
    assert_eq!(desk.value("project/.mcp.json")["mcpServers"]["mail"]["command"], "x");
    desk.install(&["--config", "none.toml"]).says(78, &["none.toml cannot be read"]);
}

#[test]
fn odd_names_reach_the_gateway_as_they_are() {
    let desk = Desk::new();
    let text = r#"{"mcpServers":{"-dash":{"command":"x"},"":{"command":"y"},"two words":{"command":"z"}}}"#;
    desk.write("project/.mcp.json", text);
    desk.install(&["--write"]).says(0, &[]);
    let servers = desk.value("project/.mcp.json")["mcpServers"].clone();
    assert_eq!(servers["-dash"]["args"], json!(["mcp", "--server=-dash", "--here", "--", "x"]));
    assert_eq!(servers[""]["args"], json!(["mcp", "--", "y"]));
    assert_eq!(servers["two words"]["args"], json!(["mcp", "--server", "two words", "--here", "--", "z"]));
}

#[test]
fn a_file_with_comments_is_shown_and_not_written() {
    let desk = Desk::new();
    let text = "{\n  // mine\n  \"servers\": { \"a\": { \"command\": \"x\", \"args\": [\"y\",] } }\n}\n";
    desk.write("project/.vscode/mcp.json", text);
    let shown = desk.install(&[]);
    shown.says(0, &[]);
    assert!(
        shown.out().contains("+ \"args\": [\"mcp\", \"--server\", \"a\", \"--here\", \"--\", \"x\", \"y\"]"),
        "{}",
        shown.out()
    );
    desk.write("home/.cursor/mcp.json", r#"{"mcpServers":{"b":{"command":"x"}}}"#);
    desk.install(&["--write"]).says(78, &["mcp.json: it has comments", "by hand"]);
    assert_eq!(desk.read("project/.vscode/mcp.json"), text);
    assert!(desk.backups("project/.vscode/mcp.json").is_empty());
    assert_eq!(desk.value("home/.cursor/mcp.json")["mcpServers"]["b"]["command"], own(), "the others are written");
}

#[test]
fn what_is_no_json_is_refused() {
    let desk = Desk::new();
    desk.write("project/.mcp.json", "{\n\"mcpServers\": {\n");
    desk.install(&["--write"]).says(78, &[".mcp.json: it is no JSON: line 3"]);
    desk.install(&["--file", "no-such.json"]).says(78, &["no-such.json: it cannot be read"]);
    desk.install(&["--client", "json"]).says(64, &["--file"]);
}

#[test]
fn nothing_found_is_an_answer() {
    let desk = Desk::new();
    let answer = desk.install(&[]);
    answer.says(1, &[]);
    assert!(answer.out().contains(".claude.json\n") && answer.out().contains("--file PATH"), "{}", answer.out());
    desk.write("project/.mcp.json", "{}");
    let answer = desk.install(&["--write"]);
    answer.says(1, &[]);
    assert!(answer.out().contains("It has no servers."), "{}", answer.out());
}

#[test]
fn a_link_stays_a_link() {
    let desk = Desk::new();
    desk.write("dotfiles/mcp.json", r#"{"mcpServers":{"a":{"command":"x"}}}"#);
    desk.write("home/.cursor/other", "");
    symlink("../../dotfiles/mcp.json", desk.0.path("home/.cursor/mcp.json")).unwrap();
    desk.install(&["--write"]).says(0, &[]);
    assert!(desk.0.path("home/.cursor/mcp.json").is_symlink());
    assert_eq!(desk.value("dotfiles/mcp.json")["mcpServers"]["a"]["command"], own());
    assert_eq!(desk.backups("home/.cursor/mcp.json").len(), 1);
}

#[test]
fn what_is_installed_runs() {
    let desk = Desk::new();
    desk.write("project/.mcp.json", r#"{"mcpServers":{"a":{"command":"sh","args":["-c","exit 7"]}}}"#);
    desk.install(&["--write"]).says(0, &[]);
    let server = desk.value("project/.mcp.json")["mcpServers"]["a"].clone();
    let arguments: Vec<&str> = server["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    let mut command = desk.0.command(&arguments);
    assert_eq!(Answer::of(command.env("HOME", desk.0.path("home")).output().unwrap()).code, 7);
}
