"""The plugin as pytest runs it: the fixture, the output and the options."""

from __future__ import annotations

import pathlib
import xml.etree.ElementTree

import pytest

pytest_plugins = ["pytester"]

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[3]

TOOLS = """
import pytest, shop

@pytest.mark.parametrize("tool", [shop.held, shop.unguarded])
def test_tool(once, tool):
    once(tool, 42, effect="shop.pay").check()
"""

QUICK = TOOLS.replace("check()", "three_times()")

SHORT = "[pytest]\nonceward_pause = 0\n"


@pytest.fixture
def run(pytester: pytest.Pytester, plugin: list[str], monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    monkeypatch.syspath_prepend(str(HERE))
    pytester.plugins = []
    pytester.makeini(SHORT)
    monkeypatch.setenv("PYTEST_ADDOPTS", " ".join(plugin))
    return pytester


def test_a_failing_check_shows_the_report_and_no_frames_of_the_kit(run: pytest.Pytester) -> None:
    run.makepyfile(TOOLS)
    result = run.runpytest()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            ">       once(tool, 42, effect=*",
            "E       onceward.testing._errors.NotOnce: unguarded: its effect must happen once",
            "E       unguarded on sqlite: 7 scenarios, 6 BROKEN",
            "E         called 3 times * 3         3         0     0        0       0  AGAIN",
            "E         -> the tool never used a ledger.*",
        ]
    )
    assert "_check.py" not in result.stdout.str(), "frames of the kit are hidden"


def test_a_check_that_passes_prints_its_report(run: pytest.Pytester) -> None:
    run.makepyfile(TOOLS)
    result = run.runpytest("-k", "held", "-s")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["*held on sqlite: 11 scenarios, none broken"])


def test_the_option_prints_every_report(run: pytest.Pytester) -> None:
    run.makepyfile(QUICK)
    result = run.runpytest("--onceward-report", "--tb=no")
    result.stdout.fnmatch_lines(
        ["*= onceward =*", "held on sqlite: 2 scenarios, none broken", "unguarded on sqlite: 2 scenarios, 1 BROKEN"]
    )
    assert "= onceward =" not in run.runpytest("-k", "unguarded", "--tb=no").stdout.str()


def test_reports_are_in_the_junit_file(run: pytest.Pytester) -> None:
    run.makepyfile(QUICK)
    run.runpytest("--junitxml=report.xml", "-k", "held")
    found = xml.etree.ElementTree.parse(run.path / "report.xml").getroot().findall(".//property")
    assert [one.get("name") for one in found] == ["onceward"]
    assert "held on sqlite: 2 scenarios" in (found[0].get("value") or "")


def test_each_short_form_asserts(run: pytest.Pytester) -> None:
    run.makepyfile(
        """
        import pytest, shop

        @pytest.fixture(autouse=True)
        def effect(once):
            once.effect("shop.pay")
            once.effect("shop.pay_async")

        FORMS = ["three_times", "at_once", "answer_lost", "refused", "killed_at_every_step"]

        @pytest.mark.parametrize("form", FORMS)
        @pytest.mark.parametrize("tool", [shop.unguarded, shop.held])
        def test_form(once, tool, form):
            getattr(once(tool, 42), form)()

        @pytest.mark.parametrize("tool", [shop.unguarded_async, shop.held_async])
        def test_given_up(once, tool):
            once(tool, 42).given_up_at_every_step()
        """
    )
    result = run.runpytest("-rA", "--tb=no")
    result.assert_outcomes(passed=6, failed=6)
    assert all("[unguarded" in line for line in result.outlines if line.startswith("FAILED"))


def test_several_tools_have_a_line_each(run: pytest.Pytester) -> None:
    run.makepyfile(
        """
        import shop

        def test_tools(once):
            once.effect("shop.pay")
            once.tools(once(shop.held, 42), once(shop.released, 42))
        """
    )
    result = run.runpytest()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "E*NotOnce: the effect of every tool must happen once",
            "E       tool      scenarios  once  held  not done  not tried  broken",
            "E       held             11     8     3         0          0       0  ok",
            "E       released         11     8     2         0          0       1  BROKEN",
            "E       released on sqlite: 11 scenarios, 1 BROKEN",
        ]
    )
    assert "E       held on sqlite" not in result.stdout.str(), "only broken tools have their full report here"


def test_settings_come_from_the_configuration(run: pytest.Pytester) -> None:
    run.makeini("[pytest]\nonceward_processes = fresh\nonceward_pause = 0.25\nonceward_timeout = 7\n")
    run.makepyfile(
        """
        def test_settings(once):
            assert (once._options.processes, once._options.pause, once._options.timeout) == ("fresh", 0.25, 7.0)
        """
    )
    run.runpytest().assert_outcomes(passed=1)
    run.makeini("[pytest]\nonceward_timeout = soon\n")
    result = run.runpytest()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*onceward_timeout is a number of seconds, not 'soon'*"])


@pytest.mark.parametrize("mode", ["prepend", "importlib"])
def test_a_fresh_interpreter_imports_tools_of_the_test_module(run: pytest.Pytester, mode: str) -> None:
    run.makepyfile(
        """
        import onceward
        ledger = onceward.Ledger("memory:")

        def act(n):
            raise AssertionError("the real provider was called")

        @ledger.once(operation="act", key=["n"], tier="payment")
        def tool(n: int) -> dict:
            return act(n)

        def test_tool(once):
            once(tool, 1, effect=act).settings(processes="fresh").three_times()
        """
    )
    run.runpytest(f"--import-mode={mode}").assert_outcomes(passed=1)


def test_the_plugin_does_not_import_the_kit_before_it_is_used(run: pytest.Pytester) -> None:
    run.makepyfile(
        """
        import sys

        def test_import():
            assert "onceward.pytest_plugin" in sys.modules
            assert "onceward.testing" not in sys.modules
        """
    )
    run.runpytest_subprocess().assert_outcomes(passed=1)


def test_the_example_and_the_reports_in_the_guide_are_real(run: pytest.Pytester) -> None:
    example = ROOT / "examples" / "python" / "test_charge.py"
    run.path.joinpath("test_charge.py").write_text(example.read_text())
    result = run.runpytest("--onceward-report")
    result.assert_outcomes(passed=2)
    printed = result.stdout.str().split("= onceward =")[1]
    guide = (ROOT / "docs" / "guides" / "testing-python.md").read_text()
    blocks = [block.split("```")[0].strip() for block in guide.split("```text\n")[1:]]
    assert len(blocks) == 2 and all(" on sqlite: 11 scenarios" in block for block in blocks)
    missing = [block for block in blocks if block not in printed]
    assert not missing, f"the guide shows another report than\n{printed}"
    for name in ("charge", "charge_with_key"):
        before, after = example.read_text().split(f"def {name}(")
        decorator, body = before.splitlines()[-1], after.split('"""')[2].strip().splitlines()[0]
        assert decorator in guide and body in guide
