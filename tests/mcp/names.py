"""Which server it is, where its configuration comes from, and what is done before anybody knows its tools."""

from checks import all_of, is_equal
from judge import is_fresh, is_replay, is_state
from place import OUTWARD

MAIL = {"to": "ada@example.org", "subject": "Hello"}


def projects(inside):
    """Two folders, in which the same server would act on different things."""
    folders = [inside / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir()
    return folders


def a_server_without_a_name_is_another_one_in_another_folder(place):
    first, second = projects(place.folder)
    for options in ((), ("--server", "files", "--here")):
        command = place.command(server=None, options=options)
        arguments = MAIL | {"subject": str(options)}
        done = place.open(command, folder=first).call("send_email", arguments)
        is_fresh(done)
        is_fresh(place.open(command, folder=second).call("send_email", arguments))
        is_replay(place.open(command, folder=first).call("send_email", arguments), done)
    is_equal(len(place.effects()), 4, "effects")


def a_folder_that_is_named_is_another_server_elsewhere_also_in_a_session(place):
    first, second = projects(place.folder)
    behind = [*place.command(server=None)[-2:], "."]
    command = place.command(session="s", server=None, behind=behind)
    is_fresh(place.open(command, folder=first).call("send_email", MAIL))
    is_fresh(place.open(command, folder=second).call("send_email", MAIL))
    is_equal(len(place.effects()), 2, "effects")


def what_a_server_makes_when_it_is_started_does_not_make_it_another_one(place):
    first, second = projects(place.folder)
    for session, inside in ((None, first), ("s", second)):
        behind = [*place.command(server=None)[-2:], "data.db", "./state/x"]
        command = place.command(session=session, server=None, behind=behind)
        arguments = MAIL | {"subject": str(session)}
        done = place.open(command, folder=inside).call("send_email", arguments)
        is_fresh(done)
        (inside / "data.db").write_text("")
        (inside / "state" / "x").mkdir(parents=True)
        is_replay(place.open(command, folder=inside).call("send_email", arguments), done)
    is_equal(len(place.effects()), 2, "effects")


def a_session_is_one_in_all_folders(place):
    first, second = projects(place.folder)
    for number, options in enumerate(((), ("--here",))):
        command = place.command(session=f"run-{number}", server="files" if options else None, options=options)
        done = place.open(command, folder=first).call("send_email", MAIL)
        is_fresh(done)
        is_replay(place.open(command, folder=second).call("send_email", MAIL), done)
    is_equal(len(place.effects()), 2, "effects")


def a_configuration_that_nobody_named_is_not_used(place):
    text = f'store = "theirs.db"\n[mcp.server.fixture]\nenv = {{ COUNT_FILE = "{place.folder}/stolen" }}\n'
    (place.folder / "onceward.toml").write_text(text + "[mcp.server.fixture.tool.send_email]\nguard = false\n")
    command = [part for part in place.command() if not part.endswith("ledger.db") and part != "--store"]
    agent = place.open(command)
    first = agent.call("send_email", MAIL)
    is_replay(agent.call("send_email", MAIL), first)
    is_equal(len(place.effects()), 1, "effects")
    assert "onceward.toml in this folder is not used" in place.errors(), place.errors()
    left = [name for name in ("theirs.db", "stolen") if (place.folder / name).exists()]
    is_equal(left, [], "what the file asked for")


def a_list_that_fails_makes_no_name_believable(place):
    place.configure(OUTWARD)
    agent = place.agent(environment={"NO_LIST": "1"})
    first = agent.call("get_nothing", {"x": 1})
    is_fresh(first)
    for _ in range(3):
        is_replay(agent.call("get_nothing", {"x": 1}), first)
    is_equal(len(place.effects()), 1, "effects")
    asked = [line for line in place.received(agent) if b"tools/list" in line]
    is_equal(len(asked), 1, "lists that were asked for")


def a_name_in_the_configuration_that_nothing_matches_is_told(place):
    place.configure("[mcp.server.fixture.tool.send_emial]\nkey = [\"/to\"]\n")
    agent = place.agent()
    agent.request("tools/list")
    # What is said on stderr is all there when the gateway has ended.
    agent.close()
    assert "send_emial, which the server does not list; did you mean `send_email`?" in place.errors(), place.errors()


def without_a_home_reads_pass_and_calls_are_refused(place):
    command = [part for part in place.command() if not part.endswith("ledger.db") and part != "--store"]
    (place.folder / "file").write_text("")
    for home in ("", str(place.folder / "file" / "below")):
        agent = place.open(command, environment={"HOME": home, "XDG_STATE_HOME": ""})
        is_equal(bool(agent.call("read_inbox").get("isError")), False, "a read")
        is_state(agent.call("send_email", MAIL), "ledger_down")
    is_equal(place.effects(), [], "effects")
    assert "ONCEWARD_STORE" in place.errors(), place.errors()


CHECKS = all_of(globals())
