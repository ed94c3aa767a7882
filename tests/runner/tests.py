#!/usr/bin/env python3
"""Tests of the test runner: it leaves no process and no file behind, counts what it should, and does not hide skips."""

import contextlib
import io
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from runner import counts, stages, supervise  # noqa: E402
from runner.report import Report  # noqa: E402
from runner.schedule import Result, Schedule, Stage  # noqa: E402

# A process that ignores SIGTERM and has a child in a session of its own, whose parent ends at once: an orphan.
ORPHANS = "trap '' TERM; (setsid sleep 300 &); touch \"$TMPDIR/file\"; echo $TMPDIR; sleep 300"

# A service that leaves marks when it is ready and when it has ended in order.
SERVICE = """\
sleep 0.3; echo '{{"PLACE": "here"}}' >"$1/new"; touch '{folder}/ready'; mv "$1/new" "$1/ready"
until test -e "$1/stop"; do sleep 0.02; done
touch '{folder}/ended'
"""


class Supervisor(unittest.TestCase):
    def setUp(self):
        self.own = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.own.name)
        self.addCleanup(self.own.cleanup)

    def start(self, seconds, script=ORPHANS):
        command = [sys.executable, supervise.__file__, str(self.folder), str(seconds), "sh", "-c", script]
        return subprocess.Popen(command, start_new_session=True)

    def started(self):
        """The processes of the script, once it runs."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            if (self.folder / "tmp" / "file").exists() and len(self.processes()) >= 3:
                return self.processes()
            time.sleep(0.02)
        self.fail("the script did not start")

    def processes(self):
        """The processes that have the temporary folder in their environment."""
        mark = f"TMPDIR={self.folder}".encode()
        found = []
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (folder / "environ").read_bytes():
                    found.append(folder.name)
        return found

    def assert_nothing_is_left(self):
        self.assertEqual(self.processes(), [])
        self.assertFalse((self.folder / "tmp").exists())

    def test_a_command_that_runs_out_of_time_is_ended_with_its_orphans(self):
        self.start(1).wait(20)
        self.assertIn('"code": 124', (self.folder / "status").read_text())
        self.assert_nothing_is_left()

    def test_a_signal_ends_the_command_with_its_orphans(self):
        for number in supervise.STOP:
            supervisor = self.start(60)
            self.started()
            supervisor.send_signal(number)
            supervisor.wait(20)
            self.assert_nothing_is_left()

    def test_orphans_of_a_command_that_has_ended_are_ended(self):
        # The shell waits until the orphan has become `sleep`, so that its name is known.
        orphan = "(setsid sleep 300 & echo $! >orphan)"
        became = "until grep -q sleep /proc/$(cat orphan)/comm; do :; done"
        self.start(60, f"cd '{self.folder}' && {orphan}; {became}; exit 3").wait(20)
        status = (self.folder / "status").read_text()
        self.assertIn('"code": 3', status)
        self.assertIn('"sleep"', status)
        self.assert_nothing_is_left()

    @unittest.skipUnless(sys.platform == "linux", "only Linux tells a process that its parent has died")
    def test_a_killed_runner_leaves_nothing(self):
        inner = self.folder / "run" / "1"
        inner.mkdir(parents=True)
        script = f"import subprocess, sys; subprocess.run([sys.executable, {supervise.__file__!r}, {str(inner)!r}, '60',"
        script += f" 'sh', '-c', {ORPHANS!r}])"
        runner = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
        self.folder = inner
        self.started()
        runner.kill()
        runner.wait()
        deadline = time.monotonic() + 20
        while inner.parent.exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertFalse(inner.parent.exists())
        self.assertEqual(self.processes(), [])


class Counting(unittest.TestCase):
    def test_a_test_that_prints_skipped_is_not_a_passed_one(self):
        log = "test a ... ok\ntest b ... ignored, slow\nskipped: no disk\ntest result: ok. 2 passed; 0 failed; 1 ignored; 0 measured\n"
        found = counts.of_cargo(log, 0)
        self.assertEqual(str(found), "1 passed, 0 failed, 2 skipped")
        self.assertEqual(found.reasons, ["no disk", "b: slow"])

    def test_a_program_without_a_total_has_failed(self):
        self.assertEqual(str(counts.of_program("Traceback\n", 0)), "0 passed, 1 failed, 0 skipped")
        self.assertEqual(str(counts.of_program("1 passed, 0 failed, 0 skipped\n", 1)), "1 passed, 1 failed, 0 skipped")

    def test_a_skipped_check_fails_only_a_strict_run(self):
        stage = Stage("clients", [])
        skipped = Result(stage, counts.of_check("skipped: no registry", 0), 0, 1.0, 1.0, [], "")
        for strict, code in ((False, 0), (True, 1)):
            report = Report(strict)
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                report.finished(skipped)
                self.assertEqual(report.close(True), code)
            self.assertIn("clients: no registry", printed.getvalue())
            self.assertTrue(printed.getvalue().endswith("\n0 passed, 0 failed, 1 skipped\n"))


class Scheduling(unittest.TestCase):
    def run_stages(self, *given):
        report = Report(False)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as printed:
            completed = Schedule(given, {"tests": 2, "services": 1}, None, pathlib.Path(folder), report, supervise.STOP).run()
            if completed:
                self.assertEqual(os.listdir(folder), [])
        return report.counts, printed.getvalue()

    def service(self, script):
        """A service, which finds its folder in $1."""
        return Stage("service", ["sh", "-c", script, "sh"], pool="services", read=counts.of_check, is_service=True)

    def test_what_needs_a_failed_stage_is_not_run(self):
        first = Stage("first", ["false"], read=counts.of_check)
        found, printed = self.run_stages(first, Stage("second", ["true"], ("first",)), Stage("third", ["true"], ("second",)))
        self.assertEqual(str(found), "0 passed, 1 failed, 2 skipped")
        self.assertIn("not run  third: second failed", printed)

    def test_a_stage_that_fails_beside_others_has_to_pass_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            mark = pathlib.Path(folder) / "mark"
            first = Stage("first", ["sh", "-c", f"test -e '{mark}' || {{ touch '{mark}'; exit 1; }}"], read=counts.of_check)
            found, printed = self.run_stages(first, Stage("second", ["true"], ("first",), read=counts.of_check))
        self.assertEqual(str(found), "2 passed, 0 failed, 0 skipped")
        self.assertIn("runs again alone", printed)

    def test_stages_that_fail_twice_or_are_many_have_failed(self):
        found, printed = self.run_stages(*(Stage(f"stage {n}", ["false"], read=counts.of_check) for n in range(7)))
        self.assertEqual(str(found), "0 passed, 7 failed, 0 skipped")
        self.assertEqual(printed.count("runs again alone"), 5)

    def test_stages_that_need_a_service_run_with_its_variables_and_it_ends_after_them(self):
        with tempfile.TemporaryDirectory() as folder:
            mark = pathlib.Path(folder) / "ended"
            uses = Stage("uses", ["sh", "-c", f"test -e '{folder}/ready' && test \"$PLACE\" = here && test ! -e '{mark}'"],
                         ("service",), read=counts.of_check)
            unrelated = Stage("unrelated", ["sh", "-c", 'test -z "$PLACE"'], ("uses",), read=counts.of_check)
            found, printed = self.run_stages(self.service(SERVICE.format(folder=folder)), uses, unrelated)
            self.assertTrue(mark.exists())
        self.assertEqual(str(found), "3 passed, 0 failed, 0 skipped")
        self.assertLess(printed.index("ready "), printed.index("uses"))

    def test_what_needs_a_service_that_does_not_start_is_not_run(self):
        for script in ("exit 1", "exit 0"):
            found, printed = self.run_stages(self.service(script), Stage("uses", ["true"], ("service",)))
            self.assertEqual(str(found), "0 passed, 1 failed, 1 skipped")
            self.assertIn("not run  uses: service failed", printed)

    def test_a_service_that_ends_too_early_has_failed(self):
        with tempfile.TemporaryDirectory() as folder:
            early = SERVICE.format(folder=folder).replace("$1/stop", f"{folder}/used")
            # It has ended before the stage that uses it has.
            uses = ["sh", "-c", f"touch '{folder}/used'; until test -e '{folder}/ended'; do sleep 0.02; done; sleep 0.5"]
            found, _ = self.run_stages(self.service(early), Stage("uses", uses, ("service",), read=counts.of_check))
        self.assertEqual(str(found), "1 passed, 1 failed, 0 skipped")

    def test_a_signal_lets_services_end_in_order(self):
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        self.addCleanup(signal.pthread_sigmask, signal.SIG_SETMASK, before)
        with tempfile.TemporaryDirectory() as folder:
            interrupts = Stage("uses", ["sh", "-c", f"kill -TERM {os.getpid()}; sleep 300"], ("service",))
            found, printed = self.run_stages(self.service(SERVICE.format(folder=folder)), interrupts)
            self.assertTrue((pathlib.Path(folder) / "ended").exists())
        self.assertIn("ended   uses", printed)
        self.assertEqual(str(found), "1 passed, 1 failed, 0 skipped")

    def test_integration_tests_start_the_servers_and_other_stages_do_not(self):
        every = stages.every_stage(pathlib.Path("target"))
        chosen = lambda text: {stage.name for stage in stages.only(every, text)}  # noqa: E731
        self.assertLessEqual({stages.BUILD, stages.SERVERS, stages.TOOLS}, chosen("tests: onceward"))
        self.assertNotIn(stages.SERVERS, chosen("formatting"))

    def test_every_stage_needs_stages_that_exist(self):
        every = stages.every_stage(pathlib.Path("target"))
        names = {stage.name for stage in every}
        self.assertEqual(len(names), len(every))
        for stage in every:
            self.assertLessEqual({*stage.needs, *stage.programs_need}, names)
            self.assertIn(stage.pool, stages.POOLS)


if __name__ == "__main__":
    unittest.main()
