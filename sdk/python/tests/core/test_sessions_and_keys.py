"""A session and a key of the caller's own: only derived keys contain the session, so both together are refused."""

import pytest

import onceward


def test_a_session_is_refused_where_it_would_be_ignored():
    ledger = onceward.Ledger("memory:")
    ran = []

    @ledger.once(operation="a", key=lambda number: f"k-{number}", session=True)
    def by_function(number: int) -> int:
        ran.append(number)
        return len(ran)

    @ledger.once(operation="b", key=["number"], session=True)
    def by_name(number: int) -> int:
        ran.append(number)
        return len(ran)

    with onceward.session("one"):
        for call in (
            lambda: by_function(1),
            lambda: onceward.options(by_name, key="k")(1),
            lambda: ledger.call("c", key="k", session="one"),
        ):
            with pytest.raises(onceward.InvalidCall, match="in every session"):
                call()
        assert not ran
        assert by_name(1) == 1
    with onceward.session("two"):
        assert by_name(1) == 2
