"""Every stage of the test command. Within a pool, stages start in the order in which they stand here."""

import os
import pathlib
import sys

from runner import cargo, counts
from runner.schedule import Stage

ROOT = pathlib.Path(__file__).resolve().parents[2]

# One build at a time: cargo has a lock. Four tests at a time: they wait more than they compute, and more of them would be
# slower for each other's time-outs on two cores.
POOLS = {"cargo": 1, "release": 1, "install": 1, "services": 1, "tests": 4}

BUILD, HARNESS_BUILD, RELEASE_BUILD = "build with lints", "build of the harnesses", "release build"
PACKAGE = "Python package"
TOOLS, CLIENTS = "system tools", "clients from PyPI and npm"
SERVERS = "PostgreSQL and Redis servers"

# The profile of the release build: a release that is optimised less.
QUICK = "quick"

# Scripts do not try again what the installation stage could not install.
PREPARED = {"TEST_PACKAGES": "prepared"}

# The longest first.
SCRIPTS = (
    ("faults: signals, disks, clocks, descriptors, schemas", ("tests/faults/faults.py",), (TOOLS,)),
    ("MCP equal calls: new ones and retries", ("tests/mcp/repeats.py",), ()),
    ("MCP clients and servers", ("tests/mcp/clients.py",), (CLIENTS,)),
    ("MCP clients over HTTP", ("tests/mcp/clients_http.py",), (CLIENTS,)),
    ("API against its OpenAPI document", ("tests/http/schemathesis.py", "--seconds", "45"), (CLIENTS,)),
    ("MCP incidents, with a server that counts", ("tests/mcp/incidents.py",), ()),
    ("MCP queued tools", ("tests/mcp/queued_tools.py",), ()),
    ("MCP over HTTP", ("tests/mcp/remote.py",), ()),
    ("HTTP clients through the gateway", ("tests/http/clients.py",), (TOOLS, CLIENTS)),
    ("MCP conformance over HTTP", ("tests/mcp/conformance.py",), (CLIENTS,)),
    ("MCP conformance over stdio", ("tests/mcp/conformance.py", "--stdio"), (CLIENTS,)),
    ("MCP servers, directly and through the gateway", ("tests/mcp/real_servers.py",), (CLIENTS,)),
    ("MCP clients that time out", ("tests/mcp/client_timeouts.py",), (CLIENTS,)),
    ("MCP aggregate of servers", ("tests/mcp/aggregate.py",), (CLIENTS,)),
    ("stores: examples of transactions", ("tests/stores/examples.py",), (TOOLS, CLIENTS, SERVERS)),
    ("Claude Agent SDK with a scripted model", ("tests/mcp/agent.py",), (CLIENTS,)),
    ("Claude Code plugin and skill", ("tests/agents/plugin.py",), (CLIENTS,)),
    ("MCP structured results", ("tests/mcp/structured.py",), (CLIENTS,)),
    ("MCP byte for byte", ("tests/mcp/byte_exact.py",), (CLIENTS,)),
    ("MCP malformed frames", ("tests/mcp/fuzz.py", "--cases", "600", "--seed", "1"), ()),
    ("slow HTTP clients", ("tests/http/slow_clients.py",), (TOOLS,)),
    ("malformed HTTP requests", ("tests/http/malformed.py",), ()),
    ("WebSockets through the gateway", ("tests/http/upgrades.py",), (CLIENTS,)),
    ("gRPC through the gateway", ("tests/http/grpc_calls.py",), (CLIENTS,)),
    ("npm packages", ("tests/npm/package.py",), ()),
    ("n8n guide's examples", ("tests/docs/n8n.py",), (TOOLS,)),
    ("README's examples", ("tests/docs/readme.py",), ()),
    ("guides to the outbox", ("tests/docs/outbox.py",), ()),
    ("TLS and HTTP/2 through the gateway", ("tests/http/tls.py",), (TOOLS,)),
)


# With servers of their own, because they kill and pause them.
OF_STORES = (
    ("stores: servers of the tests", "tests/stores/server_tests.py"),
    ("stores: fault proxy", "tests/stores/proxy_tests.py"),
)


def python(script, *options):
    return [sys.executable, ROOT / script, *options]


def with_low_priority(*command):
    """Linux shares the processor between sessions first, and each stage has one: the priority of a process counts only inside."""
    session = "if [ -w /proc/self/autogroup ]; then echo 10 >/proc/self/autogroup; fi 2>/dev/null"
    return ["sh", "-c", f'{session}; exec nice -n 10 "$@"', "sh", *command]


def check(name, command, **options):
    """A stage that passes or fails as a whole."""
    return Stage(name, command, read=counts.of_check, **options)


def every_stage(target):
    """All stages, but for the test programs: each build adds a stage for each one that it has made."""
    debug, quick = target / "debug", target / QUICK
    return builds() + examples(debug) + package(target) + scripts(debug / "onceward") + of_stores() + [
        Stage(
            "release build: demo, run, gateway, mcp",
            [*python("tests/release/smoke.py"), "--binary", quick / "onceward"],
            needs=(RELEASE_BUILD,),
        ),
        Stage(
            "PostgreSQL cut, killed, paused and promoted under load",
            [*python("tests/stores/faults.py"), "--binary", debug / "onceward-sim"],
            needs=(HARNESS_BUILD, TOOLS),
        ),
        Stage(
            "Redis cut, killed, flushed and failed over under load",
            [*python("tests/stores/faults_redis.py"), "--binary", debug / "onceward-sim"],
            needs=(HARNESS_BUILD, TOOLS),
        ),
        Stage(
            "Python wheel",
            [*python("tests/python/wheel.py"), "--binary", quick / "onceward", "--profile", QUICK],
            needs=(RELEASE_BUILD, CLIENTS),
            environment=PREPARED,
        ),
    ]


def package(target):
    """The Python package: a stage for each suite, in the environment of its framework."""
    folder, binary = target / "tests" / "python-package", target / "debug" / "onceward"
    module = target / "debug" / "lib_native.so"
    made = [
        check(PACKAGE, [*python("tests/python/assemble.py"), "--module", module, "--out", folder], needs=(BUILD,)),
        Stage(
            "Python versions",
            [*python("tests/python/versions.py"), "--package", folder, "--binary", binary],
            needs=(PACKAGE, CLIENTS),
            environment=PREPARED,
        ),
    ]
    for suite in sorted(folder.name for folder in (ROOT / "sdk/python/tests").iterdir() if folder.is_dir()):
        command = [*python("tests/python/suite.py", suite), "--package", folder, "--binary", binary]
        # Ledgers in PostgreSQL and Redis are tried too.
        needs = (PACKAGE, CLIENTS, SERVERS) if suite in ("core", "postgres") else (PACKAGE, CLIENTS)
        made.append(Stage(f"Python: {suite}", command, needs=needs, environment=PREPARED))
    return made


def builds():
    return [
        check(TOOLS, python("tests/packages/tools.py"), pool="install"),
        Stage(CLIENTS, python("tests/packages/install.py"), pool="install"),
        # One start for all tests of stores, while the build runs.
        check(SERVERS, python("tests/stores/servers.py", "--service"), needs=(TOOLS,), pool="services", is_service=True),
        check("the test runner itself", python("tests/runner/tests.py")),
        Stage("links in the documentation", python("tests/docs/links.py")),
        check("formatting", ["cargo", "fmt", "--all", "--check"]),
        check("dependencies: licences, bans, sources", python("tests/packages/deny.py")),
        check(
            BUILD,
            cargo.BUILD_TESTS,
            pool="cargo",
            environment=cargo.LINTED,
            title="tests",
            programs_need=(SERVERS,),
        ),
        check(
            HARNESS_BUILD,
            cargo.BUILD_HARNESSES,
            needs=(BUILD,),
            pool="cargo",
            environment=cargo.LINTED,
            title="harnesses",
            programs_need=(SERVERS,),
        ),
        # With a low priority it uses the time in which the other build links and the tests wait.
        check(
            RELEASE_BUILD,
            with_low_priority("cargo", "build", "--profile", QUICK, "--locked", "-p", "onceward-cli"),
            pool="release",
        ),
        *documentation(),
        check("fuzz targets compile", ["fuzz/check"], needs=(BUILD,), pool="cargo"),
    ]


def documentation():
    documented = ["-p", "onceward-core", "-p", "onceward"]
    features = ["--features", "onceward/axum,onceward/conformance,onceward/testkit"]
    return [
        Stage(
            "documentation tests",
            ["cargo", "test", "--locked", "--doc", *cargo.TESTS],
            needs=(BUILD,),
            pool="cargo",
            read=counts.of_cargo,
            environment=cargo.LINTED,
        ),
        check(
            "documentation",
            ["cargo", "doc", "--locked", "--no-deps", *documented, *features],
            needs=(BUILD,),
            pool="cargo",
            environment={"RUSTDOCFLAGS": "-D warnings"},
        ),
    ]


def examples(debug):
    compiled = [
        check(f"example {source.stem}", [debug / "examples" / source.stem], needs=(BUILD,))
        for source in sorted(ROOT.glob("examples/*.rs"))
    ]
    shell = [
        check(f"example {source.stem}", [source], needs=(BUILD, TOOLS), environment={"ONCEWARD": debug / "onceward"})
        for source in sorted(ROOT.glob("examples/*.sh"))
    ]
    return compiled + shell


def scripts(binary):
    through = [
        Stage(name, [*python(*command), "--binary", binary], needs=(BUILD, *needs), environment=PREPARED)
        for name, command, needs in SCRIPTS
    ]
    direct = python("tests/http/clients.py", "--direct")
    return [*through, Stage("HTTP clients without the gateway", direct, needs=(CLIENTS,), environment=PREPARED)]


def of_stores():
    return [Stage(name, python(script), needs=(TOOLS, CLIENTS), environment=PREPARED) for name, script in OF_STORES]


def only(stages, text):
    """The stages whose names contain a text, the builds of test programs whose names start with it, and what these need."""
    wanted = [stage for stage in stages if text in stage.name or (stage.title and text.startswith(stage.title))]
    needed = {name for stage in wanted for name in (*stage.needs, *stage.programs_need)}
    while more := {name for stage in stages if stage.name in needed for name in stage.needs} - needed:
        needed |= more
    return [stage for stage in stages if stage in wanted or stage.name in needed]


def environment(target):
    """Variables of every stage."""
    # The harnesses check that the product contains none of their hooks.
    variables = {"CARGO_TARGET_DIR": str(target), "ONCEWARD_PRODUCT": str(target / "debug" / "onceward")}
    # What Python compiles is kept beside the packages, also where the caller's environment says otherwise: to compile them again
    # takes longer than most programs run.
    variables |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(target / "tests" / "pycache")}
    # `python3` is this Python in every stage; a wrapper in its place (pyenv) takes longer to start than many tests.
    variables["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", "")])
    # Without an earlier build to update, incremental compilation only costs time.
    if not (target / "debug" / "incremental").exists():
        variables.setdefault("CARGO_INCREMENTAL", os.environ.get("CARGO_INCREMENTAL", "0"))
    return variables
