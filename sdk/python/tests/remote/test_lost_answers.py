"""Connections that are cut before or after the server acts, at every request: one effect, and no stuck claim."""

import asyncio
import threading

import pytest
from api_server import eventually

import onceward

# How a request is cut, and how often in a row.
FATES = [("before", 1), ("after", 1), ("within", 1), ("after", 2)]


class Work:
    """Counts its effects."""

    def __init__(self):
        self.effects = 0

    def succeed(self):
        onceward.claim().sent()
        self.effects += 1
        return f"receipt {self.effects}"

    def decline(self):
        self.effects += 1
        raise onceward.Permanent("declined")

    def refuse(self):
        self.effects += 1
        raise onceward.NotSent("busy")

    def lose(self):
        onceward.claim().sent()
        self.effects += 1
        raise onceward.Unknown("lost")


# The work, the requests that it takes, its state, and what the next call raises.
ENDINGS = {
    "succeed": (["/v1/begin", "/v1/sent", "/v1/finish"], "done", None),
    "decline": (["/v1/begin", "/v1/finish"], "done", onceward.Failed),
    "refuse": (["/v1/begin", "/v1/release"], "open", onceward.NotSent),
    "lose": (["/v1/begin", "/v1/sent", "/v1/doubt"], "in_doubt", onceward.InDoubt),
}
CASES = [(name, number) for name, (paths, _, _) in ENDINGS.items() for number in range(len(paths))]


def called(ledger, key, work):
    try:
        return ledger.call("cut", key=key, marks_sent=True).run(work)
    except onceward.Failure as error:
        return error


@pytest.fixture
def cut(proxy):
    with onceward.Ledger(proxy.url) as opened:
        yield opened


@pytest.mark.parametrize("name", ENDINGS)
def test_the_requests_of_a_call_are_these(proxy, cut, key, name):
    called(cut, key, getattr(Work(), name))
    assert proxy.paths == ENDINGS[name][0]


@pytest.mark.parametrize(("fate", "times"), FATES)
@pytest.mark.parametrize(("name", "number"), CASES)
def test_a_request_that_is_cut_is_sent_again(proxy, cut, remote, key, fate, name, number, times):
    proxy.reset(lambda this, _path: fate if number <= this < number + times else None)
    _, state, next_call = ENDINGS[name]
    work = Work()
    first = called(cut, key, getattr(work, name))
    assert len(proxy.paths) == len(ENDINGS[name][0]) + times
    assert work.effects == 1
    assert remote.get("cut", key).status == state
    proxy.reset()
    if next_call is None:
        assert called(cut, key, work.succeed) == first == "receipt 1"
    elif next_call is onceward.NotSent:
        assert isinstance(called(cut, key, work.refuse), onceward.NotSent)
    else:
        with pytest.raises(next_call):
            called(cut, key, work.succeed)
    assert work.effects == (2 if next_call is onceward.NotSent else 1)
    if name == "decline":
        assert isinstance(first, onceward.Permanent)


def test_every_request_is_cut_once_and_every_second_time_after_the_server_acted(proxy, cut, key):
    seen = {}

    def fate(_number, path):
        seen[path] = seen.get(path, 0) + 1
        return {1: "after", 2: "before", 3: "within"}.get(seen[path])

    proxy.reset(fate)
    work = Work()
    assert called(cut, key, work.succeed) == called(cut, key, work.succeed) == "receipt 1"
    assert work.effects == 1


def test_a_begin_without_an_answer_runs_nothing_and_its_claim_is_given_back(proxy, cut, remote, key):
    proxy.reset(lambda _number, path: "after" if path == "/v1/begin" else None)
    work = Work()
    with pytest.raises(onceward.StoreUnavailable, match="nothing ran") as raised:
        called(cut, key, work.succeed)
    assert (work.effects, raised.value.operation, raised.value.key) == (0, "cut", key)
    assert remote.get("cut", key).status == "running"
    proxy.reset()
    assert eventually(lambda: remote.get("cut", key).status == "open")
    assert called(remote, key, work.succeed) == "receipt 1"


def test_a_begin_that_never_arrived_leaves_nothing(proxy, cut, remote, key):
    proxy.reset(lambda _number, _path: "before")
    with pytest.raises(onceward.StoreUnavailable):
        called(cut, key, Work().succeed)
    assert remote.get("cut", key) is None
    proxy.reset()


def test_every_begin_has_an_id_of_its_own(proxy, cut, remote, key):
    work = Work()
    for _ in range(20):
        called(cut, key, work.refuse)
    # A used id would be refused as stale, and more than 16 of them are not remembered.
    assert (work.effects, remote.get("cut", key).attempts) == (20, 20)
    assert len(proxy.paths) == 40


def test_sent_without_an_answer_stops_the_work_before_anything_is_sent(proxy, cut, key):
    proxy.reset(lambda _number, path: "before" if path == "/v1/sent" else None)
    work = Work()
    with pytest.raises(onceward.StoreUnavailable):
        called(cut, key, work.succeed)
    assert work.effects == 0
    proxy.reset()
    # The record says that nothing was sent, so there is no doubt.
    assert called(cut, key, work.succeed) == "receipt 1"


def test_an_end_is_reported_although_its_caller_is_interrupted(proxy, cut, remote, key):
    is_cut = threading.Event()
    proxy.reset(lambda _number, path: "before" if path == "/v1/finish" and not is_cut.is_set() else None)
    native = cut.call("cut", key=key)._operation.native.start(None, None, None, key, None)

    async def finish():
        is_ready, waiting = native.finish(asyncio.get_running_loop(), b'"made"')
        assert not is_ready
        waiting.cancel()

    asyncio.run(finish())
    assert remote.get("cut", key).status == "running"
    is_cut.set()
    assert eventually(lambda: remote.get("cut", key).status == "done")
    assert remote.call("cut", key=key).run(lambda: "again") == "made"


def test_a_settlement_is_sent_again(proxy, cut, remote, key):
    called(cut, key, Work().lose)
    proxy.reset(lambda _number, path: "after" if path == "/v1/resolve" and proxy.paths.count(path) == 1 else None)
    cut.resolve("cut", key, happened=True, result="there")
    assert proxy.paths.count("/v1/resolve") == 2
    trail = remote.get("cut", key).record["api"]["trail"]
    assert [entry["what"] for entry in trail] == ["resolved_happened"]
