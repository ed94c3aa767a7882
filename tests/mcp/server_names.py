"""The identity of a server, the source of its configuration, and calls before its tools are known."""

from checks import all_of, is_equal
from results import is_fresh, is_replay, is_state
from sandbox import OUTWARD

MAIL = {"to": "ada@example.org", "subject": "Hello"}


def projects(inside):
    """Two folders in which the same server would act on different data."""
    folders = [inside / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir()
    return folders


def a_server_without_a_name_is_another_one_in_another_folder(sandbox):
    first, second = projects(sandbox.folder)
    for options in ((), ("--server", "files", "--here")):
        command = sandbox.command(server=None, options=options)
        arguments = MAIL | {"subject": str(options)}
        done = sandbox.open(command, folder=first).call("send_email", arguments)
        is_fresh(done)
        is_fresh(sandbox.open(command, folder=second).call("send_email", arguments))
        is_replay(sandbox.open(command, folder=first).call("send_email", arguments), done)
    is_equal(len(sandbox.effects()), 4, "effects")


def a_folder_that_is_named_is_another_server_elsewhere_also_in_a_session(sandbox):
    first, second = projects(sandbox.folder)
    behind = [*sandbox.command(server=None)[-2:], "."]
    command = sandbox.command(session="s", server=None, behind=behind)
    is_fresh(sandbox.open(command, folder=first).call("send_email", MAIL))
    is_fresh(sandbox.open(command, folder=second).call("send_email", MAIL))
    is_equal(len(sandbox.effects()), 2, "effects")


def what_a_server_makes_when_it_is_started_does_not_make_it_another_one(sandbox):
    first, second = projects(sandbox.folder)
    for session, inside in ((None, first), ("s", second)):
        behind = [*sandbox.command(server=None)[-2:], "data.db", "./state/x"]
        command = sandbox.command(session=session, server=None, behind=behind)
        arguments = MAIL | {"subject": str(session)}
        done = sandbox.open(command, folder=inside).call("send_email", arguments)
        is_fresh(done)
        (inside / "data.db").write_text("")
        (inside / "state" / "x").mkdir(parents=True)
        is_replay(sandbox.open(command, folder=inside).call("send_email", arguments), done)
    is_equal(len(sandbox.effects()), 2, "effects")


def a_session_is_one_in_all_folders(sandbox):
    first, second = projects(sandbox.folder)
    for number, options in enumerate(((), ("--here",))):
        command = sandbox.command(session=f"run-{number}", server="files" if options else None, options=options)
        done = sandbox.open(command, folder=first).call("send_email", MAIL)
        is_fresh(done)
        is_replay(sandbox.open(command, folder=second).call("send_email", MAIL), done)
    is_equal(len(sandbox.effects()), 2, "effects")


def a_configuration_that_is_not_named_is_not_used(sandbox):
    text = f'store = "theirs.db"\n[mcp.server.fixture]\nenv = {{ COUNT_FILE = "{sandbox.folder}/stolen" }}\n'
    (sandbox.folder / "onceward.toml").write_text(text + "[mcp.server.fixture.tool.send_email]\nguard = false\n")
    command = [part for part in sandbox.command() if not part.endswith("ledger.db") and part != "--store"]
    agent = sandbox.open(command)
    first = agent.call("send_email", MAIL)
    is_replay(agent.call("send_email", MAIL), first)
    is_equal(len(sandbox.effects()), 1, "effects")
    assert "ignoring onceward.toml in this folder" in sandbox.errors(), sandbox.errors()
    left = [name for name in ("theirs.db", "stolen") if (sandbox.folder / name).exists()]
    is_equal(left, [], "what the file asked for")


def a_list_that_fails_confirms_no_tool_name(sandbox):
    sandbox.configure(OUTWARD)
    agent = sandbox.agent(environment={"NO_LIST": "1"})
    first = agent.call("get_nothing", {"x": 1})
    is_fresh(first)
    for _ in range(3):
        is_replay(agent.call("get_nothing", {"x": 1}), first)
    is_equal(len(sandbox.effects()), 1, "effects")
    asked = [line for line in sandbox.received(agent) if b"tools/list" in line]
    is_equal(len(asked), 1, "lists that were asked for")


def an_unknown_name_in_the_configuration_is_reported(sandbox):
    sandbox.configure("[mcp.server.fixture.tool.send_emial]\nkey = [\"/to\"]\n")
    agent = sandbox.agent()
    agent.request("tools/list")
    # Standard error is complete when the gateway has ended.
    agent.close()
    assert "send_emial, which the server does not list; did you mean `send_email`?" in sandbox.errors(), sandbox.errors()


def without_a_home_reads_pass_and_calls_are_refused(sandbox):
    command = [part for part in sandbox.command() if not part.endswith("ledger.db") and part != "--store"]
    (sandbox.folder / "file").write_text("")
    for home in ("", str(sandbox.folder / "file" / "below")):
        agent = sandbox.open(command, environment={"HOME": home, "XDG_STATE_HOME": ""})
        is_equal(bool(agent.call("read_inbox").get("isError")), False, "a read")
        is_state(agent.call("send_email", MAIL), "ledger_down")
    is_equal(sandbox.effects(), [], "effects")
    assert "ONCEWARD_STORE" in sandbox.errors(), sandbox.errors()


CHECKS = all_of(globals())
