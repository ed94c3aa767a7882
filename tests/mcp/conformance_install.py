"""Installs the conformance suite by name, below `target/`; the Node that it runs on and the SDK are those of `install`."""

import install

SUITE = "@modelcontextprotocol/conformance"


def python():
    """A Python that has the SDK of our fixture, or why there is none."""
    return install.python("mcp2")


def suite(version):
    """The command that runs one version of the suite, or why there is none."""
    programs, missing = install.node()
    if missing:
        return None, missing
    folder = install.FOLDER / f"conformance-{version}"
    program = folder / "node_modules" / SUITE / "dist" / "index.js"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(folder), f"{SUITE}@{version}"]
        install.run(command, install.path_with(programs))
    if not program.exists():
        return None, f"npm could not install {SUITE}@{version}"
    return [str(programs / "node"), str(program)], None
