#!/usr/bin/env python3
"""Every incident that the gateway exists for, with a server that counts: one effect each, or the in-doubt result.

tests/mcp/incidents.py --binary target/debug/onceward
"""

import sys

import guarded_tools
import checks
import crashes
import edge_cases
import keys
import server_names
import doubt_results
import equal_calls

if __name__ == "__main__":
    every = equal_calls.CHECKS + crashes.CHECKS + guarded_tools.CHECKS + edge_cases.CHECKS + doubt_results.CHECKS + server_names.CHECKS + keys.CHECKS
    sys.exit(checks.run(every, checks.arguments_of(__doc__)))
