#!/usr/bin/env python3
"""Real clients and real servers with the gateway between them: every message arrives, and no effect happens twice.

tests/mcp/clients.py --binary target/debug/onceward
"""

import concurrent.futures
import json
import os
import subprocess
import sys
import traceback

import checks
import install
from checks import Skipped, is_equal
from results import about, is_fresh, is_replay, listed_by_server, without_ours
from sandbox import HERE, SERVER, Sandbox

MAIL = {"to": "ada@example.org", "subject": "Hello"}
TIMEOUT = 90

# The environment of each client.
CLIENTS = {"mcp2": "mcp2", "mcp2-legacy": "mcp2", "mcp1": "mcp1", "fastmcp": "fastmcp"}


def play(sandbox, client, steps, command=None, environment=None):
    """The results of the steps, in order."""
    python, missing = install.python(CLIENTS.get(client, client))
    if missing:
        raise Skipped(missing)
    sandbox.started += 1
    plan = {
        "command": [str(part) for part in command or sandbox.command()],
        "environment": sandbox.environment() | {"PATH": os.environ["PATH"]} | (environment or {}),
        "steps": steps,
    }
    done = subprocess.run(
        [str(python), str(HERE / "real_client.py"), client],
        input=json.dumps(plan),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        cwd=sandbox.folder,
        check=False,
    )
    with open(sandbox.folder / "errors", "a") as file:
        file.write(done.stderr)
    assert done.returncode == 0, f"{client} ended with {done.returncode}"
    return json.loads(done.stdout.splitlines()[-1])


def call(tool, arguments=None, **more):
    return {"call": tool, "arguments": arguments or {}} | more


def lists_the_same_tools(sandbox, client):
    through = play(sandbox, client, [{"tools": True}])[0]
    direct = play(sandbox, client, [{"tools": True}], SERVER)[0]
    is_equal([tool["name"] for tool in through if tool["name"] != "onceward_status"], [tool["name"] for tool in direct])
    by_name = {tool["name"]: tool for tool in through}
    for tool in direct:
        is_equal(listed_by_server(by_name[tool["name"]]), tool)


def a_call_made_twice_acts_once(sandbox, client):
    first, second = play(sandbox, client, [call("send_email", MAIL), call("send_email", MAIL)])
    is_fresh(first["result"])
    is_replay(second["result"], first["result"])
    is_equal(len(sandbox.effects()), 1, "effects")


def two_calls_at_once_act_once(sandbox, client):
    step = call("send_email", MAIL | {"delay_ms": 300})
    results = [outcome["result"] for outcome in play(sandbox, client, [{"together": [step, step, step]}])[0]]
    is_equal(sum(about(result).get("replayed") is True for result in results), 2, "replays")
    is_equal(len(sandbox.effects()), 1, "effects")


def after_its_own_time_out_it_gets_the_late_answer(sandbox, client):
    steps = [call("slow", {"delay_ms": 1500}, timeout=0.5), call("slow", {"delay_ms": 1500}, timeout=20)]
    first, second = play(sandbox, client, steps)
    assert "error" in first, first
    is_replay(second["result"])
    is_equal(len(sandbox.effects()), 1, "effects")


def a_call_that_it_cancels_and_makes_again_acts_once(sandbox, client):
    steps = [call("slow", {"delay_ms": 1000}, give_up=0.3), call("slow", {"delay_ms": 1000})]
    first, second = play(sandbox, client, steps)
    assert "error" in first, first
    is_replay(second["result"])
    is_equal(len(sandbox.effects()), 1, "effects")


def progress_arrives(sandbox, client):
    outcome = play(sandbox, client, [call("progress", {"steps": 4, "delay_ms": 30})])[0]
    is_equal(outcome["progress"], [1, 2, 3, 4], "progress")
    is_fresh(outcome["result"])


def a_restarted_client_meets_its_call(sandbox, client):
    command = sandbox.command(session="trip")
    first = play(sandbox, client, [call("send_email", MAIL)], command)[0]["result"]
    second = play(sandbox, client, [call("send_email", MAIL)], command)[0]["result"]
    is_fresh(first)
    is_replay(second, first)
    is_equal(len(sandbox.effects()), 1, "effects")


def a_doubt_reaches_it_as_a_result(sandbox, client):
    sandbox.configure('[mcp.server.fixture.tool.fail]\ntier = "payment"\n')
    _, second = play(sandbox, client, [call("fail"), call("fail")])
    is_equal(about(second["result"]).get("state"), "in_doubt", str(second))
    is_equal(second["result"]["isError"], True)
    is_equal(len(sandbox.effects()), 1, "effects")


def its_model_and_its_user_are_asked(sandbox, client):
    if client in ("mcp2", "fastmcp"):
        # In the newest protocol version the result of a call asks for input.
        steps, said = [call("ask", {"what": "go"})] * 2, ["Ada"]
    else:
        steps, said = [call("sample"), call("elicit"), call("sample"), call("elicit")], ["42, says", "Ada"]
    outcomes = [outcome["result"] for outcome in play(sandbox, client, steps)]
    # Each response arrived, so the same call after it is a new one, and asks again.
    for words, result in zip(said * 2, outcomes, strict=True):
        assert words in result["content"][0]["text"], result
        is_fresh(result)
    is_equal(len(sandbox.effects()), len(outcomes), "effects")


EACH = [
    lists_the_same_tools,
    a_call_made_twice_acts_once,
    two_calls_at_once_act_once,
    after_its_own_time_out_it_gets_the_late_answer,
    a_call_that_it_cancels_and_makes_again_acts_once,
    progress_arrives,
    a_restarted_client_meets_its_call,
    a_doubt_reaches_it_as_a_result,
    its_model_and_its_user_are_asked,
]

MAIN = (
    a_call_made_twice_acts_once,
    after_its_own_time_out_it_gets_the_late_answer,
    progress_arrives,
    a_restarted_client_meets_its_call,
    a_doubt_reaches_it_as_a_result,
)


def a_call_of_one_generation_is_replayed_in_the_other(sandbox, client):
    """A client of the newest protocol version refuses a result without a type."""
    is_fresh(play(sandbox, "mcp1", [call("send_email", MAIL)])[0]["result"])
    is_replay(play(sandbox, "mcp2", [call("send_email", MAIL)])[0]["result"])
    other = MAIL | {"subject": "the other way round"}
    is_fresh(play(sandbox, "mcp2", [call("send_email", other)])[0]["result"])
    is_replay(play(sandbox, "mcp1", [call("send_email", other)])[0]["result"])
    is_equal(len(sandbox.effects()), 2, "effects")


def it_calls_again_by_itself_and_acts_once(sandbox, client):
    outcome = play(sandbox, "agents", [call("slow", {"delay_ms": 2500})])[0]
    is_replay(outcome["result"])
    is_equal(len(sandbox.effects()), 1, "effects")


def without_the_gateway_it_acts_again(sandbox, client):
    play(sandbox, "agents", [call("slow", {"delay_ms": 2500}), {"sleep": 3}], SERVER)
    assert len(sandbox.effects()) > 1, "what the case above is worth"


def inspect(sandbox, arguments, command=None):
    """The inspector's command line: one process for each call."""
    programs, missing = install.node()
    if missing:
        raise Skipped(missing)
    sandbox.started += 1
    whole = install.path_with(programs) | sandbox.environment()
    variables = [part for name, value in sandbox.environment().items() for part in ("-e", f"{name}={value}")]
    done = subprocess.run(
        [str(programs / "mcp-inspector"), "--cli", *variables, *(command or sandbox.command()), *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        env=whole,
        cwd=sandbox.folder,
        check=False,
    )
    assert done.returncode == 0, f"it ended with {done.returncode}: {done.stdout} {done.stderr}"
    return json.loads(done.stdout)


def the_inspector_lists_and_calls(sandbox, client):
    # The inspector would parse the arguments after `--` itself, so a script holds the command.
    for name, command in (("through", sandbox.command()), ("direct", SERVER)):
        script = sandbox.folder / name
        script.write_text("#!/bin/sh\nexec " + " ".join(f"'{part}'" for part in command) + "\n")
        script.chmod(0o700)
    through, direct = [str(sandbox.folder / "through")], [str(sandbox.folder / "direct")]
    names = [tool["name"] for tool in inspect(sandbox, ["--method", "tools/list"], through)["tools"]]
    listed = [tool["name"] for tool in inspect(sandbox, ["--method", "tools/list"], direct)["tools"]]
    is_equal([name for name in names if name != "onceward_status"], listed)
    send = ["--method", "tools/call", "--tool-name", "send_email", "--tool-arg", "to=ada@example.org"]
    first = inspect(sandbox, send, through)
    is_fresh(first)
    is_replay(inspect(sandbox, send, through), first)
    is_equal(len(sandbox.effects()), 1, "effects")


def node_server(sandbox, name, *arguments):
    programs, missing = install.node()
    if missing:
        raise Skipped(missing)
    server = [str(programs / "node"), str(programs / name), *arguments]
    return server, sandbox.command(behind=server)


def server_everything_is_the_same_through_the_gateway(sandbox, client):
    server, gateway = node_server(sandbox, "mcp-server-everything", "stdio")
    steps = [
        {"tools": True},
        call("echo", {"message": "Zürich 😀"}),
        call("get-sum", {"a": 1, "b": 2.5}),
        call("get-tiny-image"),
        call("get-structured-content", {"location": "New York"}),
        call("get-annotated-message", {"messageType": "error", "includeImage": True}),
        call("get-resource-links", {"count": 3}),
        call("trigger-long-running-operation", {"duration": 1, "steps": 4}),
        call("trigger-sampling-request", {"prompt": "Hello", "maxTokens": 10}),
        call("trigger-elicitation-request"),
        call("no-such-tool"),
    ]
    through = play(sandbox, client, steps, gateway)
    direct = play(sandbox, client, steps, server)
    names = [tool["name"] for tool in through[0] if tool["name"] != "onceward_status"]
    is_equal(names, [tool["name"] for tool in direct[0]])
    for step, got, expected in zip(steps[1:], through[1:], direct[1:], strict=True):
        if "result" in got:
            got = got | {"result": without_ours(got["result"])}
        is_equal(got, expected, step["call"])
    is_equal(through[7]["progress"], [1, 2, 3, 4], "progress")
    assert "42, says" in json.dumps(through[8]), through[8]
    assert "Ada" in json.dumps(through[9]) or "accept" in json.dumps(through[9]), through[9]


def server_filesystem_writes_and_reads_what_is_there(sandbox, client):
    folder = sandbox.folder / "files"
    folder.mkdir()
    file = folder / "note.txt"
    server, gateway = node_server(sandbox, "mcp-server-filesystem", str(folder))
    write = call("write_file", {"path": str(file), "content": "one"})
    other = call("write_file", {"path": str(file), "content": "two"})
    read = call("read_text_file", {"path": str(file)})
    # The last write is there.
    for step in play(sandbox, client, [write, other, write], gateway):
        is_fresh(step["result"])
    is_equal(file.read_text(), "one", "the file")
    session = sandbox.command(session="s", behind=server)
    first, looked = play(sandbox, client, [write, read], session)
    is_fresh(first["result"])
    assert "one" in json.dumps(looked["result"]), looked
    file.write_text("changed by another program")
    second, looked = play(sandbox, client, [write, read], session)
    # The tool declares that it may be called again, so every call runs, in a session too.
    is_fresh(second["result"])
    is_equal(file.read_text(), "one", "the file")
    assert "one" in json.dumps(looked["result"]), looked


def cases():
    """Names, checks and clients."""
    found = [(f"{client} · {name_of(check)}", check, client) for client in CLIENTS for check in each(client)]
    found.append(("mcp1 and mcp2 · " + name_of(a_call_of_one_generation_is_replayed_in_the_other),
                  a_call_of_one_generation_is_replayed_in_the_other, None))  # fmt: skip
    for check in (it_calls_again_by_itself_and_acts_once, without_the_gateway_it_acts_again):
        found.append((f"openai-agents · {name_of(check)}", check, "agents"))
    found.append(("inspector · " + name_of(the_inspector_lists_and_calls), the_inspector_lists_and_calls, None))
    filesystem = server_filesystem_writes_and_reads_what_is_there
    servers = (server_everything_is_the_same_through_the_gateway, filesystem)
    for client in ("mcp1", "mcp2-legacy"):
        for check in servers:
            found.append((f"{client} · {name_of(check)}", check, client))
    return found


def each(client):
    """The checks for a client. Two of the clients are variants of the newest SDK."""
    return EACH if client in ("mcp1", "mcp2") else MAIN


def name_of(check):
    return check.__name__.replace("_", " ")


def run_one(binary, check, client):
    """What went wrong, or why the case cannot run here, or neither."""
    sandbox = Sandbox(binary)
    try:
        check(sandbox, client)
        sandbox.has_no_panic()
    except Skipped as why:
        return None, str(why)
    except Exception:
        return traceback.format_exc() + sandbox.errors(), None
    finally:
        sandbox.leave()
    return None, None


def told(case, arguments):
    """Runs a case and prints its result at once, because cases are slow."""
    name, check, client = case
    fault, skipped = run_one(arguments.binary, check, client)
    if fault:
        print(f"FAILED: {name}\n{fault}", flush=True)
    elif skipped:
        print(f"SKIPPED: {name}: {skipped}", flush=True)
    elif arguments.verbose:
        print(f"passed: {name}", flush=True)
    return fault, skipped


def run(cases, description):
    """Runs the chosen cases and prints the results."""
    arguments = checks.arguments_of(description)
    chosen = [case for case in cases if not arguments.only or arguments.only in case[0]]
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        outcomes = list(pool.map(lambda case: told(case, arguments), chosen))
    failed = sum(bool(fault) for fault, _ in outcomes)
    skipped = sum(bool(skipped) for _, skipped in outcomes)
    print(f"{len(chosen) - failed - skipped} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(run(cases(), __doc__))
