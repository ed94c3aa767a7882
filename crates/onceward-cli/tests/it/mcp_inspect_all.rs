//! `onceward mcp inspect --all`, with a home folder that contains the configurations of two clients.

use serde_json::{Value, json};

use crate::test_folder::{CommandOutput, TestFolder};

/// A server that lists the tools in its arguments, and logs every method and its working directory.
const SERVER: &str = r#"
import json, os, sys
log = open(os.environ["LOG"], "a", buffering=1)
print("started in", os.path.basename(os.getcwd()), "with", os.environ.get("TOKEN"), file=log)
for line in sys.stdin:
    message = json.loads(line)
    print(message["method"], file=log)
    if "id" not in message: continue
    tools = [{"name": name, "inputSchema": {"type": "object"}} for name in sys.argv[1:]]
    if "declared_read" in sys.argv: tools[-1]["annotations"] = {"readOnlyHint": True}
    first = {"protocolVersion": "2025-11-25", "capabilities": {}}
    result = {"tools": tools} if message["method"] == "tools/list" else first
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;

/// A home folder, and a project next to it.
struct HomeFolder(TestFolder);

impl HomeFolder {
    fn new() -> Self {
        let home = Self(TestFolder::new());
        home.write("server.py", SERVER);
        home.write("project/x", "");
        home
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// The configuration of a server with these tools, which logs to a file of this name.
    fn server(&self, log: &str, tools: &[&str]) -> Value {
        let script = self.0.path("server.py");
        let arguments: Vec<&str> = std::iter::once(script.to_str().unwrap()).chain(tools.iter().copied()).collect();
        json!({ "command": "python3", "args": arguments, "env": { "LOG": self.0.path(log), "TOKEN": "${SECRET:-none}" } })
    }

    fn inspect(&self, flags: &[&str]) -> CommandOutput {
        let mut command = self.0.command(&[&["mcp", "inspect", "--all"], flags].concat());
        command.current_dir(self.0.path("project")).env("HOME", self.0.path("home")).env("SECRET", "sk-1");
        for name in ["XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "APPDATA"] {
            command.env_remove(name);
        }
        CommandOutput::of(command.output().unwrap())
    }

    fn json(&self) -> Value {
        let answer = self.inspect(&["--json"]);
        answer.says(0, &[]);
        serde_json::from_str(answer.out()).unwrap()
    }

    fn claude(&self, servers: &Value, projects: &Value) {
        self.write("home/.claude.json", &json!({ "mcpServers": servers, "projects": projects }).to_string());
    }

    fn cursor(&self, servers: &Value) {
        self.write("home/.cursor/mcp.json", &json!({ "mcpServers": servers }).to_string());
    }
}

/// The lines of a text, with single spaces.
fn lines(text: &str) -> Vec<String> {
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn the_riskiest_tools_of_all_clients_come_first_and_none_is_called() {
    let home = HomeFolder::new();
    let files = home.server("files.log", &["write_file", "read_file", "query"]);
    let mail = home.server("mail.log", &["get_mail", "delete_mail", "send_mail", "declared_read"]);
    let behind = json!({ "command": "onceward", "args": ["mcp", "--server", "shop", "--", "npx", "shop"] });
    let far = json!({ "type": "http", "url": "https://example.com/mcp" });
    home.claude(&json!({ "files": files, "shop": behind }), &json!({}));
    home.cursor(&json!({ "mail": mail, "far": far }));
    let answer = home.inspect(&[]);
    answer.says(0, &[]);
    let out = lines(answer.out());
    let tools: Vec<&str> = out.iter().skip(3).take(4).map(String::as_str).collect();
    assert_eq!(
        tools,
        [
            "mail send_mail outward its name says that it reaches other people: send",
            "files write_file acts its name says that it acts: write",
            "mail delete_mail acts, ends its name says that it acts: delete",
            "files query query it carries a statement: query",
        ],
        "{}",
        answer.out()
    );
    for text in [
        "unprotected: 1 outward, 1 act, 2 read",
        "unprotected: 0 outward, 2 act, 1 read",
        "behind onceward",
        "reached over HTTP: not queried",
        "2 of 3 examined servers have no gateway in front of them. 1 of their tools reach other people, 3 others act.",
        "1 of all 4 servers could not be started or queried, so nothing is known about their tools.",
        "onceward mcp install",
    ] {
        assert!(answer.out().contains(text), "{text}: {}", answer.out());
    }
    let log = home.0.read("mail.log");
    assert_eq!(lines(&log), ["started in project with sk-1", "initialize", "notifications/initialized", "tools/list"]);
}

#[test]
fn a_server_of_several_clients_is_started_once_and_one_of_a_project_in_its_folder() {
    let home = HomeFolder::new();
    let (mail, own) = (home.server("mail.log", &["send_mail"]), home.server("own.log", &["get_x"]));
    home.write("other/x", "");
    let other = home.0.path("other");
    let projects = json!({ other.to_str().unwrap(): { "mcpServers": { "own": own } } });
    home.claude(&json!({ "mail": mail }), &projects);
    home.cursor(&json!({ "post": mail }));
    let found = home.json();
    let of = |server: &Value| {
        [&server["server"], &server["client"], &server["state"]].map(|it| it.as_str().unwrap().to_owned())
    };
    let servers: Vec<_> = found["servers"].as_array().unwrap().iter().map(of).collect();
    let expected = [["mail", "Claude Code"], ["own", "Claude Code"], ["post", "Cursor"]];
    assert_eq!(servers, expected.map(|[name, client]| [name, client, "unprotected"].map(str::to_owned)));
    assert_eq!(found["servers"][1]["project"], other.to_str().unwrap());
    assert_eq!(found["servers"][2]["tools"][0]["class"], "outward");
    let risks: Vec<_> = found["unprotected"].as_array().unwrap().iter().map(|risk| &risk["server"]).collect();
    assert_eq!(risks, ["mail", "post"]);
    assert_eq!(home.0.read("mail.log").matches("started").count(), 1);
    assert_eq!(lines(&home.0.read("own.log"))[0], "started in other with sk-1");
}

#[test]
fn servers_that_cannot_be_examined_are_named_with_the_reason() {
    let home = HomeFolder::new();
    let failing = json!({ "command": "python3", "args": ["-c", "import sys; sys.exit('no token\\u001b[31m')"] });
    let silent = json!({ "command": "python3", "args": ["-c", "import time; time.sleep(60)"] });
    let away = json!({ "command": "python3", "args": ["-c", ""], "cwd": "/not/there" });
    let odd = json!({ "command": "python3", "env": { "A": 1 } });
    let servers = json!({ "failing": failing, "silent": silent, "away": away, "odd": odd,
        "missing": { "command": "onceward-no-such-command" }, "off": { "command": "x", "disabled": true } });
    home.claude(&servers, &json!({}));
    home.write("home/.cursor/mcp.json", "{ \"mcpServers\": ");
    let answer = home.inspect(&["--timeout", "8s"]);
    answer.says(0, &["mcp.json: it is not JSON"]);
    for text in [
        "could not be started: the server exited with code 1 before it listed its tools.",
        "could not be started: the server did not respond to initialize within 8 s and was stopped.",
        "could not be started: its folder /not/there does not exist",
        "not started: its env is not a table of texts",
        "could not be started: the server onceward-no-such-command cannot be started",
        "not started: it is disabled",
        "6 of all 6 servers could not be started or queried, so nothing is known about their tools.",
    ] {
        assert!(answer.out().contains(text), "{text}: {}", answer.out());
    }
    assert!(!answer.out().contains("no gateway in front"), "{}", answer.out());
    // The stderr of a server may contain secrets.
    assert!(!answer.out().contains("no token"));
}

#[test]
fn processes_started_by_a_server_end_with_it_and_names_hide_nothing() {
    let home = HomeFolder::new();
    let child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)";
    let script = format!(
        "import subprocess, sys, time\nchild = subprocess.Popen([sys.executable, '-c', {child:?}])\n\
         open({:?}, 'w').write(str(child.pid))\ntime.sleep(60)",
        home.0.path("child")
    );
    let hanging = json!({ "command": "python3", "args": ["-c", script] });
    let turned = home.server("turned.log", &["send_\u{202e}liam"]);
    home.claude(&json!({ "hanging": hanging, "turned": turned }), &json!({}));
    let answer = home.inspect(&["--timeout", "8s"]);
    answer.says(0, &[]);
    assert!(answer.out().contains("send_\u{fffd}liam") && !answer.out().contains('\u{202e}'), "{}", answer.out());
    let child: i32 = home.0.read("child").parse().unwrap();
    // Its new parent may not have reaped it yet.
    let is_over = || {
        let status = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        status.is_empty() || status.contains(") Z")
    };
    let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
    while !is_over() {
        assert!(std::time::Instant::now() < until, "the child {child} is still running");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn without_any_server_the_searched_files_are_named() {
    let home = HomeFolder::new();
    let answer = home.inspect(&[]);
    answer.says(1, &[]);
    assert!(
        answer.out().contains("No server found in the configuration of any") && answer.out().contains(".claude.json")
    );
    let other = home.inspect(&["--server", "mail"]);
    other.says(64, &["--all"]);
}
