#!/usr/bin/env python3
"""Starts private PostgreSQL and Redis servers, runs a command with their addresses in its environment, and stops them.

    tests/stores/servers.py -- cargo test -p onceward --test it stores
    tests/stores/servers.py --only postgres,redis -- env
    tests/stores/servers.py --env servers.env      # in a second terminal: . servers.env; Ctrl-C stops the servers
    tests/stores/servers.py --only postgres-sync --control     # for harnesses that kill, pause and promote servers

With --control, the first line of output is the variables as JSON. Each line of input is an order, ACTION SERVER, that is
answered by `ok` or `error WHY`: start, stop, kill (-9), restart, pause, resume, promote. `servers` lists their names. The end
of input stops all.

As a module: `Home` and the classes of servers, for tests that kill, pause and promote them.
"""

import argparse
import concurrent.futures
import ctypes
import json
import os
import pathlib
import shlex
import signal
import subprocess
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "http")]
sys.dont_write_bytecode = True

import postgres_servers  # noqa: E402
import redis_servers  # noqa: E402
from certificates import Certificates  # noqa: E402
from postgres_servers import PgBouncer, Postgres  # noqa: E402
from processes import Failed, Home  # noqa: E402
from redis_servers import Redis, RedisCluster, RedisSentinel  # noqa: E402

__all__ = ["Certificates", "Failed", "Home", "PgBouncer", "Postgres", "Redis", "RedisCluster", "RedisSentinel"]

# What a harness may do to a server; only PostgreSQL has the last one.
ACTIONS = ("start", "stop", "kill", "restart", "pause", "resume", "promote")

# How long a command may take to end after SIGTERM.
COMMAND_SECONDS = 10

# linux/prctl.h
PR_SET_PDEATHSIG = 1

# Between two looks for the file that ends a service.
SERVICE_LOOK_SECONDS = 0.1


class Scene:
    """What the command starts. Each method starts one part and returns the variables that name it."""

    def __init__(self, home):
        self.home, self.lock, self.made = home, threading.RLock(), {}

    def certificates(self):
        with self.lock:
            if "certificates" not in self.made:
                folder = self.home.folder / "certificates"
                folder.mkdir()
                self.made["certificates"] = Certificates(folder)
            return self.made["certificates"]

    def postgres_server(self):
        """One server, with and without TLS: the parts that use it share it."""
        with self.lock:
            if "postgres" not in self.made:
                self.made["postgres"] = Postgres(self.home, certificates=self.certificates()).start()
            return self.made["postgres"]

    def postgres(self):
        server = self.postgres_server()
        return {"POSTGRES": server.url(), "POSTGRES_ADMIN": server.url(postgres_servers.ADMIN)}

    def postgres_tls(self):
        return {"POSTGRES_TLS": self.postgres_server().tls_url(), "CA": self.certificates().authority}

    def pgbouncer(self):
        return {"PGBOUNCER": PgBouncer(self.home, self.postgres_server()).start().url()}

    def postgres_sync(self):
        primary = Postgres(self.home, "postgres-sync").start()
        standby = primary.add_standby()
        return {"POSTGRES_SYNC": primary.url(), "POSTGRES_STANDBY": standby.url()}

    def redis(self):
        return {"REDIS": Redis(self.home).start().url()}

    def redis_tls(self):
        server = Redis(self.home, "redis-tls", redis_servers.PASSWORD, self.certificates()).start()
        return {"REDIS_TLS": server.url(), "CA": self.certificates().authority}

    def redis_cluster(self):
        return {"REDIS_CLUSTER": RedisCluster(self.home).start().url()}

    def redis_sentinel(self):
        return {"REDIS_SENTINEL": RedisSentinel(self.home).start().url()}


# The slowest first.
PARTS = ("redis-sentinel", "redis-cluster", "postgres-sync", "postgres", "postgres-tls", "pgbouncer", "redis", "redis-tls")


def missing(part):
    """The program that a part needs and this machine lacks, or None."""
    if part.startswith("redis"):
        return None if redis_servers.is_installed() else "redis-server"
    if postgres_servers.programs() is None:
        return "postgresql"
    return "pgbouncer" if part == "pgbouncer" and not postgres_servers.pgbouncer_program() else None


def start(home, parts):
    """Starts parts side by side. Returns the environment variables that name them."""
    scene, variables, began = Scene(home), {}, time.monotonic()

    def timed(part):
        started = time.monotonic()
        made = getattr(scene, part.replace("-", "_"))()
        return made, time.monotonic() - started

    with concurrent.futures.ThreadPoolExecutor(len(PARTS)) as pool:
        try:
            futures = {pool.submit(timed, part): part for part in parts}
            for future in concurrent.futures.as_completed(futures):
                made, seconds = future.result()
                say(f"{futures[future]} started in {seconds:.1f} s")
                variables |= {f"ONCEWARD_TEST_{name}": value for name, value in made.items()}
        except BaseException:
            # The others would go on, and the pool would wait for them.
            home.close()
            raise
    say(f"all started in {time.monotonic() - began:.1f} s")
    return variables


def say(text):
    # On stderr, so that the output of the command stays its own.
    print(f"servers: {text}", file=sys.stderr, flush=True)


def stop_with_parent():
    """Sends this process a SIGTERM when its parent dies. Only Linux can do that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def run_command(command, variables):
    """Runs a command to its end, and ends it when this process is told to end."""
    # If this process is killed, the command ends with the servers.
    process = subprocess.Popen(command, env=os.environ | variables, preexec_fn=stop_with_parent)
    try:
        code = process.wait()
    except BaseException:
        process.terminate()
        try:
            process.wait(COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
        raise
    return code if code >= 0 else 128 - code


def serve_runner(folder, variables):
    """A service of the test command: says that it is ready, and ends when the test command says so."""
    (folder / "ready.new").write_text(json.dumps(variables))
    (folder / "ready.new").rename(folder / "ready")
    while not (folder / "stop").exists():
        time.sleep(SERVICE_LOOK_SECONDS)
    return 0


def serve_developer(file, variables):
    lines = "".join(f"export {name}={shlex.quote(value)}\n" for name, value in sorted(variables.items()))
    if file == "-":
        print(lines, end="", flush=True)
    else:
        pathlib.Path(file).write_text(lines)
        say(f"run this in another terminal: . {shlex.quote(file)}")
    say("Ctrl-C stops the servers")
    while True:
        signal.pause()


def serve_harness(home, variables):
    """Carries out the orders of another program, one a line."""
    print(json.dumps(variables), flush=True)
    for line in sys.stdin:
        if line.strip():
            print(carry_out(home, line.split()), flush=True)
    return 0


def carry_out(home, words):
    named = {server.name: server for server in home.servers}
    if words == ["servers"]:
        return f"ok {' '.join(named)}"
    action, name = words if len(words) == 2 else (None, None)
    if action not in ACTIONS or name not in named or not hasattr(named[name], action):
        return f"error unknown order: {' '.join(words)}"
    try:
        getattr(named[name], action)()
    except (Failed, subprocess.SubprocessError) as error:
        # One line, as the protocol wants.
        return f"error {' '.join(str(error).split())}"
    return "ok"


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", metavar="PART,…", default=",".join(PARTS), help=f"start these of {', '.join(PARTS)}")
    parser.add_argument("--env", metavar="FILE", help="write export lines to FILE (- for stdout) and wait for Ctrl-C")
    parser.add_argument("--control", action="store_true", help="take orders from standard input until its end")
    parser.add_argument("--service", metavar="FOLDER", type=pathlib.Path, help="serve the test command: FOLDER/ready, FOLDER/stop")
    parser.add_argument("command", nargs="*", help="what to run, after --")
    given = parser.parse_args()
    given.only = [part for part in given.only.split(",") if part]
    if unknown := [part for part in given.only if part not in PARTS]:
        parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(PARTS)}")
    if bool(given.command) + bool(given.env) + bool(given.service) + given.control != 1:
        parser.error("either a command, --env, --control or --service")
    return given


def interrupted(number, _):
    sys.exit(128 + number)


def main():
    given = arguments()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, interrupted)
    lacking = {part: missing(part) for part in given.only if missing(part)}
    for program in sorted(set(lacking.values())):
        parts = ", ".join(part for part in given.only if lacking.get(part) == program)
        print(f"skipped: {parts}: {program} is not installed", flush=True)
    with Home() as home:
        variables = start(home, [part for part in given.only if part not in lacking])
        if given.service:
            return serve_runner(given.service, variables)
        if given.control:
            return serve_harness(home, variables)
        if given.env:
            return serve_developer(given.env, variables)
        return run_command(given.command, variables)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as error:
        sys.exit(f"servers: {error}")
