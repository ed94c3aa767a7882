//! `onceward mcp install`, with files as clients write them.

use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::test_folder::{CommandOutput, TestFolder};

/// As a user may have typed it: tabs, escapes, a number that does not fit a double, an arbitrary order.
const CLAUDE: &str = "{\n\t\"numStartups\": 12345678901234567890123,\n\t\"mcpServers\": {\n\t\t\"mail\": {\n\t\t\t\"type\": \"stdio\",\n\t\t\t\"args\": [\n\t\t\t\t\"-y\",\n\t\t\t\t\"some-mail-server\"\n\t\t\t],\n\t\t\t\"command\": \"np\\u0078\",\n\t\t\t\"env\": {\"TOKEN\": \"sk-secret\"}\n\t\t}\n\t},\n\t\"projects\": {\n\t\t\"/projects/shop\": {\"allowed\": [], \"mcpServers\": {\"db\": {\"command\": \"db-server\", \"args\": [\"--read\"]}}},\n\t\t\"/projects/other\": {\"history\": [\"caf\\u00e9\"]}\n\t}\n}";

/// A folder that is home and project at once, with or without the binary in PATH.
struct HomeFolder(TestFolder);

impl HomeFolder {
    fn new() -> Self {
        Self(TestFolder::new())
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

    fn install(&self, flags: &[&str]) -> CommandOutput {
        let mut command = self.0.command(&[&["mcp", "install"], flags].concat());
        std::fs::create_dir_all(self.0.path("project")).unwrap();
        command.current_dir(self.0.path("project")).env("HOME", self.0.path("home"));
        // The binary is started through `env`, whose own PATH does not matter to it.
        command.env("PATH", std::env::join_paths([self.0.path("bin"), "/usr/bin".into(), "/bin".into()]).unwrap());
        for name in ["XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "APPDATA"] {
            command.env_remove(name);
        }
        CommandOutput::of(command.output().unwrap())
    }

    /// The backups next to a file.
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

/// The settings folder of desktop programs on this system.
fn support() -> &'static str {
    if cfg!(target_os = "macos") { "home/Library/Application Support" } else { "home/.config" }
}

fn own() -> &'static str {
    env!("CARGO_BIN_EXE_onceward")
}

#[test]
fn without_write_the_change_is_shown_and_nothing_is_touched() {
    let home = HomeFolder::new();
    home.write("home/.claude.json", CLAUDE);
    let answer = home.install(&[]);
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
    assert_eq!((home.read("home/.claude.json"), home.backups("home/.claude.json").len()), (CLAUDE.to_owned(), 0));
}

#[test]
fn writing_changes_nothing_else_and_undo_restores_the_same_bytes() {
    let home = HomeFolder::new();
    home.write("home/.claude.json", CLAUDE);
    std::fs::set_permissions(home.0.path("home/.claude.json"), PermissionsExt::from_mode(0o640)).unwrap();
    let answer = home.install(&["--write"]);
    answer.says(0, &[]);
    assert!(answer.out().contains("Restart the client"), "{}", answer.out());
    let lines = |first: &str| first.replace(", ", ",\n\t\t\t\t");
    let expected = CLAUDE
        .replace(
            "\"-y\"",
            &format!("{}\"-y\"", lines("\"mcp\", \"--server\", \"mail\", \"--here\", \"--\", \"np\\u0078\", ")),
        )
        .replace("\"command\": \"np\\u0078\"", &format!("\"command\": \"{}\"", own()))
        .replace("\"--read\"", "\"mcp\", \"--server\", \"db\", \"--here\", \"--\", \"db-server\", \"--read\"")
        .replace("\"command\": \"db-server\"", &format!("\"command\": \"{}\"", own()));
    assert_eq!(home.read("home/.claude.json"), expected);
    let mode = |path: PathBuf| std::fs::metadata(path).unwrap().mode() & 0o777;
    let backups = home.backups("home/.claude.json");
    assert_eq!(backups.len(), 1);
    assert_eq!(std::fs::read_to_string(&backups[0]).unwrap(), CLAUDE);
    let stamp = backups[0].to_str().unwrap().rsplit_once("backup-").unwrap().1.to_owned();
    assert!(stamp.len() == 15 && stamp.as_bytes()[8] == b'-', "{stamp}");
    assert_eq!((mode(home.0.path("home/.claude.json")), mode(backups[0].clone())), (0o640, 0o640));
    // No temporary file is left, and a second run changes nothing.
    let names = std::fs::read_dir(home.0.path("home")).unwrap().count();
    let again = home.install(&["--write"]);
    again.says(0, &[]);
    assert!(again.out().contains("  mail: already has the gateway in front of it"), "{}", again.out());
    assert_eq!((std::fs::read_dir(home.0.path("home")).unwrap().count(), names), (2, 2));
    home.install(&["--undo", "--write"]).says(0, &[]);
    assert_eq!(home.read("home/.claude.json"), CLAUDE);
    let undone = home.install(&["--undo"]);
    undone.says(0, &[]);
    assert!(undone.out().contains("  mail: has no gateway in front of it"), "{}", undone.out());
}

#[test]
fn the_configuration_of_every_client_is_found() {
    let home = HomeFolder::new();
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
        home.write(file, &servers(table));
    }
    home.install(&["--client", "cursor", "--write"]).says(0, &[]);
    for (client, file, table) in files {
        let program = &home.value(file)[table]["one"]["command"];
        assert_eq!(program == own(), client == "cursor", "{file}");
    }
    home.install(&["--write"]).says(0, &[]);
    for (_, file, table) in files {
        let wanted = json!({ "command": own(), "args": ["mcp", "--server", "one", "--here", "--", "x"] });
        assert_eq!(home.value(file)[table]["one"], wanted, "{file}");
    }
}

#[test]
fn a_binary_in_the_path_is_named_without_its_folder_except_where_there_is_no_path() {
    let home = HomeFolder::new();
    let desktop = format!("{}/Claude/claude_desktop_config.json", support());
    for file in [&desktop, "home/.cursor/mcp.json"] {
        home.write(file, r#"{"mcpServers":{"one":{"command":"x"}}}"#);
    }
    home.write("bin/other", "");
    symlink(own(), home.0.path("bin/onceward")).unwrap();
    home.install(&["--write"]).says(0, &[]);
    let program = |file: &str| home.value(file)["mcpServers"]["one"]["command"].as_str().unwrap().to_owned();
    assert_eq!(program("home/.cursor/mcp.json"), "onceward");
    assert_eq!(program(&desktop), home.0.path("bin/onceward").to_str().unwrap());
}

#[test]
fn another_onceward_in_the_path_is_not_used() {
    let home = HomeFolder::new();
    home.write("home/.cursor/mcp.json", r#"{"mcpServers":{"one":{"command":"x"}}}"#);
    home.write("bin/onceward", "#!/bin/sh\n");
    home.install(&["--write"]).says(0, &[]);
    assert_eq!(home.value("home/.cursor/mcp.json")["mcpServers"]["one"]["command"], own());
}

#[test]
fn servers_that_are_not_commands_are_named_and_skipped() {
    let home = HomeFolder::new();
    let text = json!({ "mcpServers": {
        "far": { "type": "http", "url": "https://host/mcp?key=sk-secret" },
        "typed": { "type": "sse", "command": "x" },
        "number": { "command": 7 },
        "args": { "command": "x", "args": ["a", 7] },
        "odd": "x",
        "ours": { "command": "/opt/bin/onceward", "args": ["--store", "s", "mcp", "--server", "z", "--", "x"] },
        "configured": { "command": "onceward", "args": ["mcp", "--server", "mail"] },
    }});
    home.write("agent.json", &text.to_string());
    let path = home.0.path("agent.json");
    let path = path.to_str().unwrap();
    let answer = home.install(&["--file", path, "--write"]);
    answer.says(1, &[]);
    assert!(!answer.out().contains("Restart the client"), "{}", answer.out());
    for text in [
        "  far: is reached over HTTP. Run `onceward mcp --upstream URL",
        "  typed: skipped, because",
        "  number: skipped, because its command is not a string",
        "  args: skipped, because its args are not a list of strings",
        "  odd: skipped, because it has neither",
        "  ours: already has the gateway in front of it",
        "  configured: already has the gateway in front of it",
    ] {
        assert!(answer.out().contains(text), "{text:?} is not in:\n{}", answer.out());
    }
    assert!(!answer.out().contains("sk-secret"));
    assert_eq!(home.value("agent.json"), text);
    assert!(home.backups("agent.json").is_empty());
    home.install(&["--file", path, "--write", "--undo"]).says(1, &[]);
    home.install(&["--file", path, "--undo", "--server", "far"]).says(0, &[]);
    let mut undone = text;
    undone["mcpServers"]["ours"] = json!({ "command": "x", "args": [] });
    assert_eq!(home.value("agent.json"), undone);
}

#[test]
fn only_the_named_servers_change() {
    let home = HomeFolder::new();
    home.write("project/.mcp.json", r#"{"mcpServers":{"a":{"command":"x"},"b":{"command":"y"},"c":{"command":"z"}}}"#);
    home.install(&["--server", "a", "--server", "c", "--write"]).says(0, &[]);
    let servers = home.value("project/.mcp.json")["mcpServers"].clone();
    let changed = ["a", "b", "c"].map(|name| servers[name]["command"] == own());
    assert_eq!(changed, [true, false, true]);
    home.install(&["--server", "absent"]).says(64, &["unknown server absent"]);
}

#[test]
fn different_servers_with_one_name_do_not_share_calls_and_equal_ones_do() {
    let home = HomeFolder::new();
    let mail = |account: &str| json!({ "command": "mail", "env": { "ACCOUNT": account } });
    let text = json!({
        "mcpServers": { "mail": mail("a") },
        "projects": { "/p": { "mcpServers": { "mail": mail("b") } }, "/q": { "mcpServers": { "mail": mail("a") } } },
    });
    home.write("home/.claude.json", &text.to_string());
    home.install(&["--write"]).says(0, &[]);
    let written = home.value("home/.claude.json");
    let name = |server: &Value| server["mail"]["args"][2].as_str().unwrap().to_owned();
    let project = |path: &str| name(&written["projects"][path]["mcpServers"]);
    assert_eq!((name(&written["mcpServers"]), project("/q")), ("mail".to_owned(), "mail".to_owned()));
    assert!(project("/p").starts_with("mail-") && project("/p").len() == 11, "{}", project("/p"));
    // A file that is installed later gets names that are not taken.
    home.write("home/.cursor/mcp.json", &json!({ "mcpServers": { "mail": mail("b") } }).to_string());
    home.install(&["--write"]).says(0, &[]);
    assert_eq!(name(&home.value("home/.cursor/mcp.json")["mcpServers"]), project("/p"));
}

/// A name in the configuration is one server everywhere; any other server is separate in each folder.
#[test]
fn the_configuration_is_passed_as_an_absolute_path_and_names_shared_servers() {
    let home = HomeFolder::new();
    let text = r#"{"mcpServers":{"mail":{"command":"x"},"files":{"command":"y"}}}"#;
    home.write("project/.mcp.json", text);
    home.write("project/own.toml", "[mcp.server.mail.tool.send]\nkey = [\"/to\"]\n");
    home.install(&["--config", "own.toml", "--write"]).says(0, &[]);
    let servers = home.value("project/.mcp.json")["mcpServers"].clone();
    let file = home.0.path("project").canonicalize().unwrap().join("own.toml");
    let file = file.to_str().unwrap();
    assert_eq!(servers["mail"]["args"], json!(["mcp", "--config", file, "--server", "mail", "--", "x"]));
    assert_eq!(servers["files"]["args"], json!(["mcp", "--config", file, "--server", "files", "--here", "--", "y"]));
    home.install(&["--config", "own.toml"]).says(0, &[]);
    home.write("other.toml", "");
    let other = home.install(&["--config", "../other.toml", "--write"]);
    other.says(1, &[]);
    assert!(other.out().contains("mail: skipped, because the gateway is already in front of it, without this"));
    home.install(&["--undo", "--write"]).says(0, &[]);
    assert_eq!(home.value("project/.mcp.json")["mcpServers"]["mail"]["command"], "x");
    home.install(&["--config", "none.toml"]).says(78, &["cannot read none.toml"]);
}

#[test]
fn odd_names_reach_the_gateway_unchanged() {
    let home = HomeFolder::new();
    let text = r#"{"mcpServers":{"-dash":{"command":"x"},"":{"command":"y"},"two words":{"command":"z"}}}"#;
    home.write("project/.mcp.json", text);
    home.install(&["--write"]).says(0, &[]);
    let servers = home.value("project/.mcp.json")["mcpServers"].clone();
    assert_eq!(servers["-dash"]["args"], json!(["mcp", "--server=-dash", "--here", "--", "x"]));
    assert_eq!(servers[""]["args"], json!(["mcp", "--", "y"]));
    assert_eq!(servers["two words"]["args"], json!(["mcp", "--server", "two words", "--here", "--", "z"]));
}

#[test]
fn a_file_with_comments_is_shown_and_not_written() {
    let home = HomeFolder::new();
    let text = "{\n  // mine\n  \"servers\": { \"a\": { \"command\": \"x\", \"args\": [\"y\",] } }\n}\n";
    home.write("project/.vscode/mcp.json", text);
    let shown = home.install(&[]);
    shown.says(0, &[]);
    assert!(
        shown.out().contains("+ \"args\": [\"mcp\", \"--server\", \"a\", \"--here\", \"--\", \"x\", \"y\"]"),
        "{}",
        shown.out()
    );
    home.write("home/.cursor/mcp.json", r#"{"mcpServers":{"b":{"command":"x"}}}"#);
    home.install(&["--write"]).says(78, &["mcp.json: it has comments", "by hand"]);
    assert_eq!(home.read("project/.vscode/mcp.json"), text);
    assert!(home.backups("project/.vscode/mcp.json").is_empty());
    assert_eq!(home.value("home/.cursor/mcp.json")["mcpServers"]["b"]["command"], own(), "the others are written");
}

#[test]
fn invalid_json_is_refused() {
    let home = HomeFolder::new();
    home.write("project/.mcp.json", "{\n\"mcpServers\": {\n");
    home.install(&["--write"]).says(78, &[".mcp.json: it is not JSON: line 3"]);
    home.install(&["--file", "no-such.json"]).says(78, &["no-such.json: it cannot be read"]);
    home.install(&["--client", "json"]).says(64, &["--file"]);
}

#[test]
fn an_empty_search_is_reported() {
    let home = HomeFolder::new();
    let answer = home.install(&[]);
    answer.says(1, &[]);
    assert!(answer.out().contains(".claude.json\n") && answer.out().contains("--file PATH"), "{}", answer.out());
    home.write("project/.mcp.json", "{}");
    let answer = home.install(&["--write"]);
    answer.says(1, &[]);
    assert!(answer.out().contains("  no servers"), "{}", answer.out());
}

#[test]
fn a_symbolic_link_stays_a_link() {
    let home = HomeFolder::new();
    home.write("dotfiles/mcp.json", r#"{"mcpServers":{"a":{"command":"x"}}}"#);
    home.write("home/.cursor/other", "");
    symlink("../../dotfiles/mcp.json", home.0.path("home/.cursor/mcp.json")).unwrap();
    home.install(&["--write"]).says(0, &[]);
    assert!(home.0.path("home/.cursor/mcp.json").is_symlink());
    assert_eq!(home.value("dotfiles/mcp.json")["mcpServers"]["a"]["command"], own());
    assert_eq!(home.backups("home/.cursor/mcp.json").len(), 1);
}

#[test]
fn the_installed_configuration_runs() {
    let home = HomeFolder::new();
    home.write("project/.mcp.json", r#"{"mcpServers":{"a":{"command":"sh","args":["-c","exit 7"]}}}"#);
    home.install(&["--write"]).says(0, &[]);
    let server = home.value("project/.mcp.json")["mcpServers"]["a"].clone();
    let arguments: Vec<&str> = server["args"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    let mut command = home.0.command(&arguments);
    assert_eq!(CommandOutput::of(command.env("HOME", home.0.path("home")).output().unwrap()).code, 7);
}
