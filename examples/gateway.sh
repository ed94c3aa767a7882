#!/usr/bin/env bash
# The gateway in front of an API that charges at every POST: the client retries freely, and each order is charged once.
# Needs curl and python3; ONCEWARD names the binary if it is not on the path.
set -euo pipefail
# Resolve the binary before changing the directory.
onceward=$(realpath "$(command -v "${ONCEWARD:-onceward}")")
cd "$(dirname "$0")"
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; wait 2>/dev/null; rm -rf "$folder"' EXIT

# Print the address from the first line of a program; fail if the program has exited.
address() {
    until [ -s "$1" ]; do
        kill -0 "$2" || return
        sleep 0.1
    done
    grep -o 'http://[0-9.:]*' "$1" | head -n 1
}
python3 upstream.py >"$folder/api" &
api=$(address "$folder/api" $!)
"$onceward" gateway --upstream "$api" --listen 127.0.0.1:0 --store "$folder/ledger.db" >"$folder/gateway" &
gateway=$(address "$folder/gateway" $!)

charge() {
    curl -sS -X POST "$gateway/v1/charges" -H 'Authorization: Bearer sk_test_7' -H 'Content-Type: application/json' "$@"
    echo
}
echo "# The same request, three times:"
for _ in 1 2 3; do charge -H 'Idempotency-Key: order-17' -d '{"amount": 4200}'; done

echo "# The same key with another amount:"
charge -H 'Idempotency-Key: order-17' -d '{"amount": 9900}' | grep -o '"title":"[^"]*"'

echo "# A client that gives up after half a second, and asks again:"
charge -m 0.5 -H 'Idempotency-Key: order-18' -d '{"amount": 500, "seconds": 2}' 2>/dev/null || true
charge -H 'Idempotency-Key: order-18' -d '{"amount": 500, "seconds": 2}'

echo "# Charges at the API:"
charges=$(curl -sS "$api/")
echo "$charges"
[ "$charges" = '{"charges": 2}' ]
