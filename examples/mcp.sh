#!/usr/bin/env bash
# An agent that repeats itself, and a mail server that sends everything: with the gateway between them, each mail is sent
# once. Needs python3; ONCEWARD names the binary if it is not on the path.
set -euo pipefail
# Resolve the binary before changing the directory.
onceward=$(realpath "$(command -v "${ONCEWARD:-onceward}")")
cd "$(dirname "$0")"
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export OUTBOX=$folder/outbox.txt

# What an agent sends: one line for each message.
call() { printf '{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"send_email","arguments":%s}}\n' "$1" "$2"; }
mail='{"to":"bob@example.com","subject":"Invoice 17"}'
texts() { grep -o '"text": *"[^"]*"' | cut -c1-140; }
# shellcheck disable=SC2086
mcp() { "$onceward" mcp --store "$folder/ledger.db" --server mail $1 -- python3 agent/mail_server.py; }

echo "# The same call twice, two milliseconds apart:"
{ call 1 "$mail"; sleep 0.002; call 2 "$mail"; } | mcp "" | texts
echo "# Mail that went out:"
cat "$OUTBOX"

echo "# Once more, on purpose:"
call 3 '{"to":"bob@example.com","subject":"Invoice 17","onceward_repeat":2}' | mcp "" | texts

echo "# An agent that is killed before it reads that its mail went out, and the same agent resumed:"
mail='{"to":"eve@example.com","subject":"Contract"}'
call 4 "$mail" | DELAY=1 mcp "--session run-42" >/dev/null
call 5 "$mail" | mcp "--session run-42" | texts

echo "# Mail that went out:"
cat "$OUTBOX"
[ "$(wc -l <"$OUTBOX")" = 3 ]
