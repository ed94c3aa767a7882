#!/usr/bin/env python3
"""The plugin for Claude Code with the real program and a scripted model, and the examples of its skill.

tests/agents/plugin.py --binary target/debug/onceward
"""

import ast
import json
import os
import re
import shutil
import sqlite3
import sys
import tomllib

from claude import AGENTS, MAIL_SERVER, PLUGIN, ROOT, SUBAGENT_TASK, Claude, text_of

import checks
import examples
from checks import is_equal
from fake_model import call, say
from results import MARK

SKILL = PLUGIN / "skills" / "idempotency"
GUIDE = ROOT / "docs" / "guides" / "claude-code.md"
DOCUMENTS = sorted([*AGENTS.rglob("*.md"), GUIDE])

# Skills should be short, because the whole text goes into the conversation.
SKILL_LINES = 200

MAIL = {"to": "bob@example.com", "subject": "Invoice 17", "body": "Please pay."}
SEND = call("mcp__mail__send_email", MAIL)
DONE = say("Done.")

# Lets Claude Code start the servers of the project, and call their tools.
TRUSTED = ("--settings", '{"enableAllProjectMcpServers": true}', "--allowedTools", "mcp__mail")


def the_plugin_and_its_marketplace_are_valid(sandbox):
    claude = Claude(sandbox)
    claude.works("plugin", "validate", "--strict", PLUGIN)
    claude.works("plugin", "validate", "--profile", "directory", PLUGIN)
    claude.works("plugin", "validate", "--strict", clone(sandbox.folder))


def clone(parent):
    """The files of the repository that a marketplace has, in a folder with a space."""
    folder = parent / "a clone"
    shutil.copytree(AGENTS, folder / "agents")
    shutil.copytree(ROOT / ".claude-plugin", folder / ".claude-plugin")
    return folder


def the_marketplace_installs_the_plugin(sandbox):
    claude = Claude(sandbox)
    claude.works("plugin", "marketplace", "add", clone(sandbox.folder))
    claude.works("plugin", "install", "onceward@onceward")
    listed = json.loads(claude.works("plugin", "list", "--json"))
    is_equal([(plugin["id"], plugin["enabled"]) for plugin in listed], [("onceward@onceward", True)], "listed")
    model = claude.converse("Hello", [[DONE]])
    assert prompt_lines() in model.seen(), model.seen()


def the_model_is_offered_the_skill_and_not_the_command(sandbox):
    seen = Claude(sandbox).with_plugin("Hello", [[DONE]]).seen()
    description = " ".join(front_matter(SKILL / "SKILL.md").split("description: >-")[1].split())
    assert f"- onceward:idempotency: {description}" in seen, seen
    assert "- onceward:guard" not in seen, seen


def the_skill_reaches_the_model_as_it_is_written(sandbox):
    asked = call("Skill", {"skill": "onceward:idempotency", "args": "charge 5 euros now"})
    model = Claude(sandbox).with_plugin("Make the charge idempotent", [[asked], [DONE]])
    # Claude Code replaces words such as $1 in a skill, so the skill must not have any.
    assert body(SKILL / "SKILL.md") in model.seen(), model.seen()


def the_model_can_read_every_page_that_the_skill_names(sandbox):
    names = sorted(set(re.findall(r"`(references/\w+\.md)`", body(SKILL / "SKILL.md"))))
    is_equal(names, sorted(f"references/{page.name}" for page in (SKILL / "references").iterdir()), "pages")
    reads = [call("Read", {"file_path": str(SKILL / name)}) for name in names]
    asked = call("Skill", {"skill": "onceward:idempotency"})
    model = Claude(sandbox).with_plugin("Hello", [[asked], reads, [DONE]], "--add-dir", PLUGIN)
    is_equal([failed for _, failed in model.told()], [False] * (1 + len(names)), "failed")
    for name in names:
        assert (SKILL / name).read_text().splitlines()[0] in model.seen(), name


def the_prompt_lines_reach_the_model_and_its_subagents_once(sandbox):
    task = {"description": "Start", "prompt": SUBAGENT_TASK, "subagent_type": "general-purpose"}
    model = Claude(sandbox).with_plugin("Hello", [[call("Agent", task)], [DONE]])
    first = [request["messages"] for request in model.asked]
    subagents = [messages for messages in first if SUBAGENT_TASK in text_of(messages[0])]
    assert subagents and len(subagents) < len(first), "there is a conversation of a subagent, and one that started it"
    for messages in first:
        told = "\n".join(text_of(message) for message in messages)
        is_equal(told.count(prompt_lines()), 1, "the lines in a conversation")


def the_command_shows_the_change_and_writes_only_with_permission(sandbox):
    claude = with_mail_server(Claude(sandbox))
    before = (claude.project / ".mcp.json").read_text()
    model = claude.with_plugin("/onceward:guard mail", GUARDING)
    assert "Arguments: mail" in model.seen(), model.seen()
    (version, _), (shown, failed), (refused, denied) = model.told()
    assert version.startswith("onceward "), version
    assert not failed and '+ "command": "onceward"' in shown and "Nothing was written" in shown, shown
    assert denied and "approval" in refused, refused
    is_equal((claude.project / ".mcp.json").read_text(), before, "the configuration")


def a_server_that_the_command_guards_acts_once(sandbox):
    claude = with_mail_server(Claude(sandbox))
    claude.with_plugin("/onceward:guard mail", GUARDING, "--allowedTools", "Bash(onceward mcp install *)")
    server = json.loads((claude.project / ".mcp.json").read_text())["mcpServers"]["mail"]
    is_equal((server["command"], server["args"][:3]), ("onceward", ["mcp", "--server", "mail"]), "the server")
    model = claude.with_plugin("Send the mail", [[SEND, SEND], [SEND], [DONE]], *TRUSTED)
    assert "mcp__mail__onceward_status" in model.tools(), model.tools()
    # Results of concurrent calls come in any order.
    is_equal(sorted(MARK in text for text, _ in model.told()), [False, True, True], "stored results")
    is_equal(claude.outbox(), 1, "mails")


def without_the_command_that_server_acts_three_times(sandbox):
    claude = with_mail_server(Claude(sandbox))
    claude.with_plugin("Send the mail", [[SEND, SEND], [SEND], [DONE]], *TRUSTED)
    is_equal(claude.outbox(), 3, "mails")


def what_the_prompt_lines_say_about_the_status_tool_is_true(sandbox):
    claude = with_mail_server(Claude(sandbox), ["onceward", "mcp", "--server", "mail", "--"])
    own, prefixed = ({"tool": name, "arguments": MAIL} for name in ("send_email", "mcp__mail__send_email"))
    ask = [[call("mcp__mail__onceward_status", about)] for about in (own, prefixed)]
    model = claude.with_plugin("Send the mail", [[SEND], *ask, [DONE]], *TRUSTED)
    _, (known, _), (also_known, _) = model.told()
    assert '"done"' in known, known
    assert '"done"' in also_known, also_known


def the_prompt_lines_are_the_same_in_the_plugin_and_beside_it(sandbox):
    is_equal((AGENTS / "prompt.md").read_text(), (PLUGIN / "prompt.md").read_text(), "prompt.md")


def the_hook_prints_any_text_as_json(sandbox):
    text = 'a "quoted" word, a \\ and a \t, 100 %\n& the end\n'
    (sandbox.folder / "prompt.md").write_text(text)
    environment = os.environ | {"CLAUDE_PLUGIN_ROOT": str(sandbox.folder)}
    done = examples.run(["sh", PLUGIN / "hooks" / "prompt.sh", "SubagentStart"], env=environment)
    told = {"hookEventName": "SubagentStart", "additionalContext": text}
    is_equal(json.loads(done.stdout), {"hookSpecificOutput": told}, "printed")


def the_manifests_name_the_version_of_the_workspace(sandbox):
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
    is_equal(json.loads((PLUGIN / ".claude-plugin" / "plugin.json").read_text())["version"], version, "version")


def the_skill_is_short(sandbox):
    lines = len((SKILL / "SKILL.md").read_text().splitlines())
    assert lines < SKILL_LINES, f"{lines} lines"


def every_shell_example_parses(sandbox):
    found = examples.examples(DOCUMENTS, "sh")
    assert len(found) >= 10, found
    for example in found:
        done = examples.run(["bash", "-n", "-c", example.text])
        assert done.returncode == 0, f"{example.name()}: {done.stderr}"


def every_onceward_command_is_accepted_by_the_binary(sandbox):
    found = list(examples.commands(DOCUMENTS))
    found += [
        server["args"]
        for example in examples.examples(DOCUMENTS, "json")
        for server in json.loads(example.text).get("mcpServers", {}).values()
        if server["command"] == "onceward"
    ]
    assert len(found) >= 40, f"only {len(found)} commands were found"
    refused = [why for arguments in found if (why := examples.refusal(sandbox.binary, arguments))]
    assert not refused, "\n".join(refused)
    assert examples.refusal(sandbox.binary, ["run", "--unknown", "--", "true"]), "a wrong flag is noticed"


def every_configuration_example_is_accepted_by_the_binary(sandbox):
    found = examples.examples(DOCUMENTS, "toml")
    own = [example for example in found if "dependencies" not in example.text]
    assert len(own) >= 4 and all(tomllib.loads(example.text) for example in found), found
    for number, example in enumerate(own):
        path = sandbox.folder / f"{number}.toml"
        path.write_text(example.text)
        # Reads and checks the whole file.
        done = examples.run([sandbox.binary, "key", "--config", path, "--operation", "other", "--intent", "{}"])
        assert done.returncode == 0, f"{example.name()}: {done.stderr}"


def every_page_adds_the_folder_that_is_the_marketplace(sandbox):
    """The pages tell people to run `claude plugin marketplace add FOLDER` in a clone."""
    named = {page: re.findall(r"^claude plugin marketplace add (\S+)", page.read_text(), re.M) for page in DOCUMENTS}
    named = {page: folders for page, folders in named.items() if folders}
    assert {PLUGIN / "README.md", GUIDE} <= set(named), named
    for page, folders in named.items():
        for folder in folders:
            assert (ROOT / folder / ".claude-plugin" / "marketplace.json").is_file(), f"{page}: {folder}"


def every_json_and_python_example_parses(sandbox):
    for example in examples.examples(DOCUMENTS, "json"):
        assert json.loads(example.text), example.name()
    for example in examples.examples(DOCUMENTS, "python"):
        ast.parse(example.text, example.name())


def the_recipe_of_the_skill_gives_a_reworded_memo_the_same_key(sandbox):
    [recipe] = examples.examples([SKILL / "SKILL.md"], "toml")
    (sandbox.folder / "onceward.toml").write_text(recipe.text)
    keys = set()
    for arguments in examples.commands([SKILL / "references" / "keys.md"]):
        given = [one for one in arguments if one != "--json"]
        done = examples.run([sandbox.binary, *given, "--json"], cwd=sandbox.folder)
        keys.add(json.loads(done.stdout)["key"])
    is_equal(len(keys), 1, "keys")


def the_scripts_of_the_skill_find_what_they_expect(sandbox):
    found = examples.examples([SKILL / "references" / "testing.md"], "sh")
    scripts = [example.text for example in found if "mktemp" in example.text]
    programs = sandbox.folder / "programs"
    programs.mkdir()
    (programs / "onceward").symlink_to(sandbox.binary)
    environment = os.environ | {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "TMPDIR": str(sandbox.folder)}
    printed = "".join(examples.run(["sh", "-c", text], env=environment).stdout for text in scripts)
    for line in (
        "three calls: 1 effect",
        "another request under the same key: exit code 65",
        "after the kill: exit code 76, 2 effects",
        "eight calls at once: 1 effect",
    ):
        assert line in printed, printed
    is_equal(printed.count("invoice-43"), 1, "intents in doubt")


def the_statements_for_sqlite_do_what_the_page_says(sandbox):
    page = (SKILL / "references" / "ddl.md").read_text().partition("## SQLite")[2]
    tables, statements, *_ = [text for language, text in examples.FENCE.findall(page) if language == "sql"]
    named = dict(part.split("\n", 1) for part in re.split(r"^-- ", statements, flags=re.MULTILINE)[1:])
    path = sandbox.folder / "own.db"
    first, second = (sqlite3.connect(path, isolation_level=None) for _ in range(2))
    first.executescript(tables)
    who = {"tenant": "acme", "operation": "charge", "key": "invoice-42", "fingerprint": b"f"}

    def rows(database, name, fence, now, **more):
        given = who | {"fence": fence, "now": now, "status": 200, "outcome": b"{}"} | more
        cursor = database.execute(named[name], given)
        return len(cursor.fetchall()) if "RETURNING" in named[name] else cursor.rowcount

    is_equal([rows(first, "claim", b"1", 0), rows(second, "claim", b"2", 0)], [1, 0], "claims")
    is_equal(rows(second, "take over", b"2", 1000), 0, "taken over while the lease lasts")
    is_equal(rows(second, "take over", b"2", 180001, fingerprint=b"g"), 0, "taken over for another request")
    is_equal(rows(second, "take over", b"2", 180001), 1, "taken over after the lease")
    is_equal(rows(first, "mark sent", b"1", 180002), 0, "sent by a late owner")
    is_equal(rows(second, "mark sent", b"2", 180002), 1, "sent")
    is_equal(rows(first, "take over", b"1", 999999), 0, "taken over although it was sent")
    is_equal([rows(second, "doubt", b"2", 180003), rows(second, "release", b"2", 180004)], [1, 0], "released in doubt")
    is_equal([rows(first, "finish", b"1", 180005), rows(second, "finish", b"2", 180005)], [0, 1], "finished")
    [(_, state, doubt, status, outcome, _)] = first.execute(named["read"], who | {"now": 0}).fetchall()
    is_equal((state, doubt, status, outcome), ("done", None, 200, b"{}"), "the record")
    is_equal(rows(second, "release", b"2", 180006), 0, "released although it is done")


GUARDING = [
    [call("Bash", {"command": command, "description": "Guard a server"})]
    for command in (
        "onceward --version",
        "onceward mcp install --client claude-code",
        "onceward mcp install --client claude-code --server mail --write",
    )
] + [[DONE]]


def with_mail_server(claude, before=()):
    """A project with a mail server that sends everything that it is asked to send."""
    command, *arguments = [*before, sys.executable, str(MAIL_SERVER)]
    servers = {"mcpServers": {"mail": {"command": command, "args": arguments}}}
    (claude.project / ".mcp.json").write_text(json.dumps(servers, indent=2))
    return claude


def prompt_lines():
    return (AGENTS / "prompt.md").read_text().strip()


def front_matter(path):
    return path.read_text().split("---\n", 2)[1]


def body(path):
    return path.read_text().split("---\n", 2)[2].strip()


if __name__ == "__main__":
    sys.exit(checks.run(checks.all_of(globals()), checks.arguments_of(__doc__)))
