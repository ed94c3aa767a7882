//! `onceward mcp inspect --all`, with a home folder that two clients keep their servers in.

use serde_json::{Value, json};

use crate::place::{Answer, Place};

/// Lists the tools that its arguments name, and notes every method and where it was started.
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

/// A home folder, and a project beside it.
struct Desk(Place);

impl Desk {
    fn new() -> Self {
        let desk = Self(Place::new());
        desk.write("server.py", SERVER);
        desk.write("project/x", "");
        desk
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// How a client starts a server with these tools, which notes what it is told in a file of this name.
    fn server(&self, log: &str, tools: &[&str]) -> Value {
        let script = self.0.path("server.py");
        let arguments: Vec<&str> = std::iter::once(script.to_str().unwrap()).chain(tools.iter().copied()).collect();
        json!({ "command": "python3", "args": arguments, "env": { "LOG": self.0.path(log), "TOKEN": "${SECRET:-none}" } })
    }

    fn inspect(&self, flags: &[&str]) -> Answer {
        let mut command = self.0.command(&[&["mcp", "inspect", "--all"], flags].concat());
        command.current_dir(self.0.path("project")).env("HOME", self.0.path("home")).env("SECRET", "sk-1");
        for name in ["XDG_CONFIG_HOME", "CLAUDE_CONFIG_DIR", "APPDATA"] {
            command.env_remove(name);
        }
        Answer::of(command.output().unwrap())
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
    let desk = Desk::new();
    let files = desk.server("files.log", &["write_file", "read_file", "query"]);
    let mail = desk.server("mail.log", &["get_mail", "delete_mail", "send_mail", "declared_read"]);
    let behind = json!({ "command": "onceward", "args": ["mcp", "--server", "shop", "--", "npx", "shop"] });
    let far = json!({ "type": "http", "url": "https://example.com/mcp" });
    desk.claude(&json!({ "files": files, "shop": behind }), &json!({}));
    desk.cursor(&json!({ "mail": mail, "far": far }));
    let answer = desk.inspect(&[]);
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
        "reached by HTTP: not asked",
        "2 of the 3 servers that are known of are behind no gateway. 1 of their tools reach other people, 3 others act.",
        "1 of all 4 servers could not be started or asked: nothing is known of them.",
        "onceward mcp install",
    ] {
        assert!(answer.out().contains(text), "{text}: {}", answer.out());
    }
    let log = desk.0.read("mail.log");
    assert_eq!(lines(&log), ["started in project with sk-1", "initialize", "notifications/initialized", "tools/list"]);
}

#[test]
fn a_server_of_several_clients_is_started_once_and_one_of_a_project_in_its_folder() {
    let desk = Desk::new();
    let (mail, own) = (desk.server("mail.log", &["send_mail"]), desk.server("own.log", &["get_x"]));
    desk.write("other/x", "");
    let other = desk.0.path("other");
    let projects = json!({ other.to_str().unwrap(): { "mcpServers": { "own": own } } });
    desk.claude(&json!({ "mail": mail }), &projects);
    desk.cursor(&json!({ "post": mail }));
    let found = desk.json();
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
    assert_eq!(desk.0.read("mail.log").matches("started").count(), 1);
    assert_eq!(lines(&desk.0.read("own.log"))[0], "started in other with sk-1");
}

#[test]
fn what_cannot_be_looked_at_is_named_with_the_reason() {
    let desk = Desk::new();
    let failing = json!({ "command": "python3", "args": ["-c", "import sys; sys.exit('no token\\u001b[31m')"] });
    let silent = json!({ "command": "python3", "args": ["-c", "import time; time.sleep(60)"] });
    let away = json!({ "command": "python3", "args": ["-c", ""], "cwd": "/not/there" });
    let odd = json!({ "command": "python3", "env": { "A": 1 } });
    let servers = json!({ "failing": failing, "silent": silent, "away": away, "odd": odd,
        "missing": { "command": "onceward-no-such-command" }, "off": { "command": "x", "disabled": true } });
    desk.claude(&servers, &json!({}));
    desk.write("home/.cursor/mcp.json", "{ \"mcpServers\": ");
    let answer = desk.inspect(&["--timeout", "1s"]);
    answer.says(0, &["mcp.json: it is not JSON"]);
    for text in [
        "could not be started: the server ended with exit code 1 before it listed its tools.",
        "could not be started: the server has not answered initialize within 1 s and was stopped.",
        "could not be started: its folder /not/there is not there",
        "not started: its env is not a table of texts",
        "could not be started: the server onceward-no-such-command cannot be started",
        "not started: it is disabled",
        "6 of all 6 servers could not be started or asked: nothing is known of them.",
    ] {
        assert!(answer.out().contains(text), "{text}: {}", answer.out());
    }
    assert!(!answer.out().contains("behind no gateway"), "{}", answer.out());
    // What a server writes to stderr may hold secrets.
    assert!(!answer.out().contains("no token"));
}

#[test]
fn what_a_server_has_started_ends_with_it_and_names_hide_nothing() {
    let desk = Desk::new();
    let child = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)";
    let script = format!(
        "import subprocess, sys, time\nchild = subprocess.Popen([sys.executable, '-c', {child:?}])\n\
         open({:?}, 'w').write(str(child.pid))\ntime.sleep(60)",
        desk.0.path("child")
    );
    let hanging = json!({ "command": "python3", "args": ["-c", script] });
    let turned = desk.server("turned.log", &["send_\u{202e}liam"]);
    desk.claude(&json!({ "hanging": hanging, "turned": turned }), &json!({}));
    let answer = desk.inspect(&["--timeout", "2s"]);
    answer.says(0, &[]);
    assert!(answer.out().contains("send_\u{fffd}liam") && !answer.out().contains('\u{202e}'), "{}", answer.out());
    let child: i32 = desk.0.read("child").parse().unwrap();
    // Whoever takes it over may not have waited for it yet.
    let is_over = || {
        let status = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        status.is_empty() || status.contains(") Z")
    };
    let until = std::time::Instant::now() + std::time::Duration::from_secs(5);
    while !is_over() {
        assert!(std::time::Instant::now() < until, "the child {child} is still there");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

#[test]
fn without_any_server_the_places_are_named() {
    let desk = Desk::new();
    let answer = desk.inspect(&[]);
    answer.says(1, &[]);
    assert!(answer.out().contains("No client's configuration names a server") && answer.out().contains(".claude.json"));
    let other = desk.inspect(&["--server", "mail"]);
    other.says(64, &["--all"]);
}
