//! `onceward mcp inspect`, with a small server whose behaviour is configurable.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::test_folder::{CommandOutput, TestFolder, wait_until};

/// An MCP server that behaves as its first argument says, and logs what it receives in `log`.
const SERVER: &str = r#"
import json, os, signal, sys, time
mode = sys.argv[1]
log = open("log", "a", buffering=1)
print(os.getpid(), file=log)
if mode == "stubborn":
    signal.signal(signal.SIGTERM, lambda *_: print("TERM", file=log))
META = "io.modelcontextprotocol/"
PAGES = {None: ([
    {"name": "send_email", "inputSchema": {"type": "object", "properties":
        {"to": {"type": "string"}, "subject": {"type": "string"}, "cc": {"type": "string"}}, "required": ["to", "subject"]}},
    {"name": "get_mail"},
    {"name": "frob", "annotations": {"readOnlyHint": True}},
], "2"), "2": ([
    {"name": "refund", "annotations": {"readOnlyHint": False, "idempotentHint": True}},
    {"name": "odd\x1b[31m\nname \"x\""},
], None)}
def say(message):
    sys.stdout.write(json.dumps(message) + "\n"); sys.stdout.flush()
def answer(message, result=None, error=None):
    say({"jsonrpc": "2.0", "id": message["id"], **({"error": error} if error else {"result": result})})
if mode == "exit": sys.exit(7)
if mode == "junk": print("Hello, I am a server\n\n{\"half\":", flush=True)
for line in sys.stdin:
    message = json.loads(line)
    method, params = message.get("method"), message.get("params", {})
    print(method, json.dumps(params, sort_keys=True), file=log)
    if mode == "silent": continue
    if mode == "dies" and method == "tools/list": os.kill(os.getpid(), signal.SIGKILL)
    modern = mode == "modern" and params.get("_meta", {}).get(META + "protocolVersion") == "2026-07-28" \
        and params["_meta"].get(META + "clientCapabilities") == {}
    if method == "initialize":
        if mode in ("modern", "refuses"): answer(message, error={"code": -32601, "message": "no\x1b such method"})
        elif mode == "old" and params["protocolVersion"] != "2024-11-05":
            answer(message, error={"code": -32602, "message": "no", "data": {"supported": ["2024-11-05"]}})
        else:
            if mode == "asks":
                say({"jsonrpc": "2.0", "id": "p", "method": "ping"})
                say({"jsonrpc": "2.0", "id": 1, "method": "roots/list"})
                say({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x"}})
            answer(message, {"protocolVersion": params["protocolVersion"], "capabilities": {}})
    elif method == "server/discover" and modern: answer(message, {"supportedVersions": ["2026-07-28"]})
    elif method == "tools/list" and mode == "none": answer(message, error={"code": -32601, "message": "no tools"})
    elif method == "tools/list" and mode == "broken": answer(message, error={"code": -32000, "message": "db is down"})
    elif method == "tools/list" and mode == "endless": answer(message, {"tools": [], "nextCursor": "x"})
    elif method == "tools/list" and (modern or mode != "modern"):
        tools, following = PAGES[params.get("cursor")]
        answer(message, {"tools": tools, **({"nextCursor": following} if following else {})})
    elif method and "id" in message: answer(message, error={"code": -32602, "message": "envelope is missing"})
    elif "id" in message: print("answered", json.dumps(message, sort_keys=True), file=log)
print("EOF", file=log)
if mode == "stubborn": time.sleep(600)
"#;

fn inspect(folder: &TestFolder, flags: &[&str], mode: &str) -> CommandOutput {
    folder.write("server.py", SERVER);
    let arguments = [&["mcp", "inspect"], flags, &["--", "python3", "server.py", mode]].concat();
    folder.onceward(&arguments)
}

/// The configuration at the end of the output.
fn configuration(answer: &CommandOutput) -> String {
    let out = answer.out();
    out[out.find("# To start from").unwrap()..].to_owned()
}

fn uncommented(text: &str) -> String {
    let lines = text.lines().map(|line| match line.strip_prefix('#') {
        Some(rest) if !rest.starts_with(' ') => rest,
        _ => line,
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn every_tool_is_listed_with_its_class_and_guard() {
    let folder = TestFolder::new();
    let answer = inspect(&folder, &["--server", "mail"], "plain");
    answer.says(0, &[]);
    let table: Vec<String> =
        answer.out().lines().take(6).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    assert_eq!(
        table,
        [
            "TOOL CLASS GUARDED WHY IN DOUBT",
            "send_email outward guarded its name says that it reaches other people: send hold",
            "get_mail reads passes its name says that it reads: get",
            "frob reads passes it declares readOnlyHint: true",
            "refund outward guarded its name says that it reaches other people: refund retry: it declares idempotentHint: true",
            "odd\u{fffd}[31m\u{fffd}name \"x\" acts guarded nothing says that it only reads tell: reports it once, then runs \
             the same call",
        ]
    );
    assert!(answer.out().contains("3 of 5 tools are guarded."), "{}", answer.out());
    assert_eq!(answer.stderr, "");
    let log = folder.read("log");
    let said: Vec<_> = log.lines().skip(1).map(|line| line.split(' ').next().unwrap()).collect();
    assert_eq!(said, ["initialize", "notifications/initialized", "tools/list", "tools/list", "EOF"]);
    assert!(log.contains("\"protocolVersion\": \"2025-11-25\""), "{log}");
}

#[test]
fn the_printed_configuration_is_accepted_as_printed_and_uncommented() {
    let folder = TestFolder::new();
    let answer = inspect(&folder, &["--server", "mail"], "plain");
    let text = configuration(&answer);
    folder.write("onceward.toml", &text);
    let again = folder.json(&["mcp", "inspect", "--config", "onceward.toml", "--server", "mail", "--json"]);
    assert_eq!(again["command"], serde_json::json!(["python3", "server.py", "plain"]));
    assert_eq!(again["tools"][0]["why"], "its name says that it reaches other people: send");
    assert_eq!(again["tools"][0]["class"], "outward");
    folder.write("onceward.toml", &uncommented(&text));
    let again = folder.json(&["mcp", "inspect", "--config", "onceward.toml", "--json"]);
    assert_eq!(again["server"], "mail");
    for tool in [0, 3, 4] {
        assert_eq!(again["tools"][tool]["why"], "the configuration says so", "{again}");
        assert_eq!(again["tools"][tool]["suggestion"], serde_json::Value::Null);
    }
    let table: toml::Table = uncommented(&text).parse().unwrap();
    let tools = &table["mcp"]["server"]["mail"]["tool"];
    assert_eq!(tools["send_email"].to_string(), r#"{ key = ["/to", "/subject"], match = ["/cc"], tier = "email" }"#);
    assert_eq!(tools["refund"].to_string(), r#"{ tier = "payment" }"#);
    assert_eq!(tools["odd\u{1b}[31m\nname \"x\""].to_string(), "{ guard = true }");
}

/// A server that only lists the tools of `tools.json`.
const LISTS: &str = r#"
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message: continue
    first = {"protocolVersion": "2025-11-25", "capabilities": {}}
    result = {"tools": json.load(open("tools.json"))} if message["method"] == "tools/list" else first
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"#;

fn with_tools(folder: &TestFolder, tools: &str, flags: &[&str]) -> CommandOutput {
    folder.write("tools.json", tools);
    folder.write("tools.py", LISTS);
    folder.onceward(&[&["mcp", "inspect", "--server", "shop"], flags, &["--", "python3", "tools.py"]].concat())
}

#[test]
fn arguments_for_keys_are_shown_as_filled_or_not() {
    let folder = TestFolder::new();
    let tools = r#"[
        {"name":"pay","inputSchema":{"properties":{"a":{},"idempotencyKey":{"type":"string"}},"required":["a"]}},
        {"name":"book","inputSchema":{"properties":{"a":{},"idempotency_key":{"type":"string","maxLength":9}}}},
        {"name":"ship","inputSchema":{"properties":{"a":{},"client_token":{"type":"string"}},"required":["a"]}},
        {"name":"get_x","inputSchema":{"properties":{"idempotency_key":{"type":"string"}}}}]"#;
    let answer = with_tools(&folder, tools, &[]);
    answer.says(0, &[]);
    let out = answer.out();
    assert!(out.contains("\npay: the gateway fills idempotencyKey, the same on every attempt."), "{out}");
    assert!(
        out.contains("\nWarning: book: the gateway does not fill idempotency_key, because its schema allows fewer")
    );
    assert!(out.contains("#key_argument = \"client_token\"") && out.matches("key_argument").count() == 1, "{out}");
    assert!(!out.contains("get_x: "), "{out}");
    let json: serde_json::Value = serde_json::from_slice(&with_tools(&folder, tools, &["--json"]).stdout).unwrap();
    let of = |tool: usize| {
        let tool = &json["tools"][tool];
        (tool["fills"].as_str(), tool["warnings"].as_array().unwrap().len())
    };
    assert_eq!([0, 1, 2, 3].map(of), [(Some("idempotencyKey"), 0), (None, 1), (None, 0), (None, 0)]);
}

#[test]
fn arguments_that_change_on_every_attempt_cause_a_warning() {
    let folder = TestFolder::new();
    let tools = r#"[
        {"name":"send","inputSchema":{"properties":{"to":{},"head":{"properties":{"nonce":{}}},"timestamp":{}}}},
        {"name":"get_x","inputSchema":{"properties":{"timestamp":{}}}},
        {"name":"post","inputSchema":{"properties":{"to":{},"retry_count":{}}}}]"#;
    folder.write("own.toml", "[mcp.server.shop.tool.post]\nkey = [\"/to\"]\n");
    let answer = with_tools(&folder, tools, &["--config", "own.toml"]);
    let out = answer.out();
    assert!(out.contains("\nWarning: send: the arguments nonce, timestamp seem to change with every attempt"), "{out}");
    assert_eq!(out.matches("Warning").count(), 1, "{out}");
}

#[test]
fn the_configuration_takes_precedence_here_too() {
    let folder = TestFolder::new();
    let text = "[mcp.server.mail.tool.frob]\nguard = true\n[mcp.server.mail.tool.send_email]\nguard = false\n\
                [mcp.server.mail.tool.refund]\nprobe = { tool = \"get_mail\", found = \"/x\" }\n";
    folder.write("own.toml", text);
    let answer = inspect(&folder, &["--config", "own.toml", "--server", "mail", "--json"], "plain");
    let json: serde_json::Value = serde_json::from_slice(&answer.stdout).unwrap();
    let of =
        |tool: usize| (json["tools"][tool]["guarded"].as_bool().unwrap(), json["tools"][tool]["in_doubt"].as_str());
    assert_eq!([of(0), of(2), of(3)], [(false, None), (true, Some("tell")), (true, Some("probe"))]);
    folder.write("own.toml", "[mcp.server.mail.tool.refund]\nin_doubt = \"probe\"\n");
    inspect(&folder, &["--config", "own.toml"], "plain").says(78, &["mcp.server.mail.tool.refund.probe"]);
    folder.write("own.toml", "[stores.fast]\nurl = \"other.db\"\n[mcp.server.mail.tool.refund]\nstore = \"fast\"\n");
    let said = ["mcp.server.mail.tool.refund.store", "start the gateway with --store"];
    inspect(&folder, &["--config", "own.toml"], "plain").says(78, &said);
}

/// The folder may not be trusted, and the file says which programs run.
#[test]
fn a_file_that_was_not_named_is_not_used() {
    let folder = TestFolder::new();
    folder.write("onceward.toml", "[mcp.server.mail]\ncommand = [\"touch\", \"ran\"]\ntool.send_email.guard = false\n");
    let said = "ignoring onceward.toml in this folder; if you trust it, add --config onceward.toml";
    let answer = inspect(&folder, &["--server", "mail"], "plain");
    answer.says(0, &[said]);
    assert!(answer.out().contains("3 of 5 tools are guarded."), "{}", answer.out());
    for arguments in [&["mcp"][..], &["mcp", "--server", "mail"], &["mcp", "inspect"]] {
        folder.onceward(arguments).says(64, &[said, "no server"]);
    }
    assert!(!folder.path("ran").exists());
    // A file without settings for MCP is not mentioned.
    folder.write("onceward.toml", "store = \"a.db\"\n");
    assert_eq!(inspect(&folder, &["--server", "mail"], "plain").stderr, "");
}

#[test]
fn unknown_names_are_reported() {
    let folder = TestFolder::new();
    let text = "[mcp.server.mail.tool.send_emial]\nkey = [\"/to\"]\n[mcp.server.mail.tool.refund]\n\
                probe = { tool = \"get_mial\", found = \"/x\" }\n";
    folder.write("own.toml", text);
    let answer = inspect(&folder, &["--config", "own.toml", "--server", "mail"], "plain");
    answer.says(0, &["names the tool send_emial, which the server does not list; did you mean `send_email`?"]);
    answer.says(0, &["names the tool get_mial, which the server does not list; did you mean `get_mail`?"]);
    let answer = inspect(&folder, &["--config", "own.toml", "--server", "mial"], "plain");
    answer.says(0, &["the configuration has no server mial, so it does not apply to this one; did you mean `mail`?"]);
}

#[test]
fn servers_of_every_protocol_version_are_supported() {
    for (mode, protocol, hellos) in [("plain", "2025-11-25", 1), ("old", "2024-11-05", 2), ("modern", "2026-07-28", 1)]
    {
        let folder = TestFolder::new();
        let answer = inspect(&folder, &["--json"], mode);
        answer.says(0, &[]);
        let json: serde_json::Value = serde_json::from_slice(&answer.stdout).unwrap();
        assert_eq!((json["protocol"].as_str(), json["tools"].as_array().unwrap().len()), (Some(protocol), 5), "{mode}");
        let log = folder.read("log");
        assert_eq!(log.matches("initialize {").count(), hellos, "{log}");
    }
}

#[test]
fn requests_of_the_server_are_answered() {
    let folder = TestFolder::new();
    inspect(&folder, &[], "asks").says(0, &[]);
    let log = folder.read("log");
    assert!(log.contains(r#"answered {"id": "p", "jsonrpc": "2.0", "result": {}}"#), "{log}");
    assert!(log.contains(r#"answered {"error": {"code": -32601, "#), "{log}");
}

#[test]
fn lines_that_are_not_messages_are_ignored_and_counted() {
    let answer = inspect(&TestFolder::new(), &[], "junk");
    answer.says(0, &["ignored 2 lines on the server's stdout that are not messages"]);
    assert!(answer.out().contains("5 tools"), "{}", answer.out());
}

#[test]
fn a_server_without_tools_has_nothing_to_guard() {
    let answer = inspect(&TestFolder::new(), &[], "none");
    answer.says(0, &[]);
    assert_eq!(answer.out(), "The server has no tools, so there is nothing to guard.\n");
}

#[test]
fn every_failure_has_a_clear_message() {
    let folder = TestFolder::new();
    folder.onceward(&["mcp", "inspect", "--", "no-such-server"]).says(127, &["no-such-server cannot be started"]);
    folder.onceward(&["mcp", "inspect", "--", "./log"]).says(127, &["./log cannot be started"]);
    folder.write("text", "x");
    folder.onceward(&["mcp", "inspect", "--", "./text"]).says(126, &["./text cannot be started"]);
    folder.onceward(&["mcp", "inspect"]).says(64, &["write its command after --"]);
    folder.onceward(&["mcp", "--server", "x", "inspect", "--", "y"]).says(64, &["after that word"]);
    folder.onceward(&["mcp", "--upstream", "http://x", "inspect"]).says(64, &["after that word"]);
    let flags = ["mcp", "--listen", "127.0.0.1:0"];
    folder.onceward(&[&flags[..], &["--", "true"]].concat()).says(64, &["--upstream URL"]);
    folder.onceward(&[&flags[..], &["inspect"]].concat()).says(64, &["after that word"]);
    folder.write("two.toml", "[mcp.server.a]\ncommand = [\"x\"]\n[mcp.server.b]\ncommand = [\"y\"]\n");
    folder.onceward(&["mcp", "inspect", "--config", "two.toml"]).says(64, &["choose one with --server"]);
    inspect(&folder, &[], "exit").says(69, &["exited with code 7 before it listed its tools"]);
    inspect(&folder, &[], "dies").says(69, &["exited with code 137"]);
    inspect(&folder, &[], "refuses").says(69, &["refused to initialize: error -32601: no\u{fffd} such method"]);
    inspect(&folder, &[], "broken").says(69, &["does not list its tools: error -32000: db is down"]);
    inspect(&folder, &[], "endless").says(69, &["has no end; 50 pages were read"]);
}

#[test]
fn a_server_that_does_not_respond_times_out() {
    let folder = TestFolder::new();
    let begun = Instant::now();
    inspect(&folder, &["--timeout", "3s"], "silent").says(69, &["did not respond to initialize within 3 s"]);
    assert!(begun.elapsed() < Duration::from_secs(25), "{:?}", begun.elapsed());
    assert!(folder.read("log").ends_with("EOF\n"), "the server could have ended by itself");
}

#[test]
fn a_server_that_does_not_end_is_terminated_and_then_killed() {
    let folder = TestFolder::new();
    let answer = inspect(&folder, &[], "stubborn");
    answer.says(0, &[]);
    let log = folder.read("log");
    assert!(log.contains("EOF") && log.contains("TERM"), "{log}");
    let id = log.lines().next().unwrap();
    wait_until(|| !Command::new("kill").args(["-0", id]).stderr(Stdio::null()).status().unwrap().success());
}
