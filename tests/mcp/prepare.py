#!/usr/bin/env python3
"""Installs everything that the checks here need. They would do so themselves; this does it beforehand, beside a build."""

import concurrent.futures

import conformance
import conformance_install
import install


def suites():
    return [conformance_install.suite(version) for version in (conformance.STABLE, conformance.ALPHA)]


if __name__ == "__main__":
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        work = [pool.submit(install.python, name) for name in install.ENVIRONMENTS] + [pool.submit(suites)]
        for one in work:
            print(one.result(), flush=True)
