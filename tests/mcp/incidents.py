#!/usr/bin/env python3
"""Every incident that the gateway is for, with a server that counts: one effect each, or the in-doubt answer.

tests/mcp/incidents.py --binary target/debug/onceward
"""

import sys

import answers
import checks
import deaths
import edges
import keys
import names
import replies
import sameness

if __name__ == "__main__":
    every = sameness.CHECKS + deaths.CHECKS + answers.CHECKS + edges.CHECKS + replies.CHECKS + names.CHECKS + keys.CHECKS
    sys.exit(checks.run(every, checks.arguments_of(__doc__)))
