"""The API against its own document: schemathesis sends what the document allows and what it does not, and every answer has
to be one that the document describes. Nothing that it sends may end in a fault of the server.

Usage: tests/http/schemathesis.py BINARY [SECONDS]

Installs schemathesis from PyPI below `target/`, starts the binary on a free port with a ledger of its own, and
stops it afterwards.
"""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import venv

# Below `target/`, as the other clients are: a second run does not install it again.
FOLDER = pathlib.Path(__file__).resolve().parents[2] / "target" / "tests-http" / "schemathesis"

TOKEN = "schemathesis-token-0123456789"

# One operation that may be taken over, so that more than one path through begin is taken.
CONFIG = """
store = "ledger.db"

[operation.again]
in_doubt = "retry"

[[api.token]]
tenant = "acme"
secret = "file:token"
scopes = ["use", "read", "operate"]
"""

CHECKS = ",".join([
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
    "positive_data_acceptance",
    "negative_data_rejection",
    "missing_required_header",
    "unsupported_method",
    "allow_header_conformance",
    "ignored_auth",
])


def installed() -> pathlib.Path:
    st = FOLDER / "bin" / "st"
    if not st.exists():
        venv.create(FOLDER, with_pip=True)
        pip = [FOLDER / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", "schemathesis>=4.32,<5"]
        subprocess.run(pip, check=True)
    return st


def without_proxies() -> dict[str, str]:
    """The environment of what talks to this machine only."""
    return {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}


def main() -> int:
    binary = pathlib.Path(sys.argv[1]).resolve()
    seconds = sys.argv[2] if len(sys.argv) > 2 else "60"
    st = installed()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "onceward.toml").write_text(CONFIG)
        (folder / "token").write_text(TOKEN)
        log = (folder / "log").open("w+")
        server = subprocess.Popen(
            [binary, "serve", "--listen", "127.0.0.1:0"], cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            line = server.stdout.readline()
            url = re.search(r"http://\S+", line)
            if url is None:
                print(f"the server did not start: {line}{(folder / 'log').read_text()}")
                return 1
            tested = subprocess.run(
                [
                    st, "run", f"{url[0]}/v1/openapi.json", "--header", f"Authorization: Bearer {TOKEN}",
                    "--checks", CHECKS, "--max-time", seconds, "--seed", "7", "--generation-database", "none",
                    "--suppress-health-check", "all", "--request-timeout", "90", "--no-color",
                ],
                cwd=folder,
                env=without_proxies(),
            )
        finally:
            server.send_signal(signal.SIGTERM)
            code = server.wait(timeout=30)
        log.seek(0)
        text = log.read()
        faults = [line for line in text.splitlines() if "onceward::access" not in line]
        if TOKEN in text or code != 0 or any("panicked" in line for line in faults):
            print(f"the server ended with {code}, or its log says what it should not:", *faults[-20:], sep="\n")
            return 1
        print(f"{text.count('onceward::access')} requests answered")
        return tested.returncode


if __name__ == "__main__":
    sys.exit(main())
