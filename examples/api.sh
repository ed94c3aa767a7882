#!/usr/bin/env bash
# The HTTP API from any language: a shell script asks for the claim, does the work once, and reports the outcome.
# Needs curl and python3; ONCEWARD names the binary if it is not on the path.
set -euo pipefail
onceward=${ONCEWARD:-onceward}
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; wait 2>/dev/null; rm -rf "$folder"' EXIT

cat >"$folder/onceward.toml" <<'TOML'
store = "ledger.db"

[operation.charge]
tier = "payment"
key = ["/customer", "/invoice"]
match = ["/amount"]
TOML
"$onceward" serve --config "$folder/onceward.toml" --listen 127.0.0.1:0 >"$folder/out" 2>"$folder/log" &
# Wait for the first line, which has the address; stop if the server has exited.
until [ -s "$folder/out" ]; do
    kill -0 $!
    sleep 0.1
done
api=$(grep -o 'http://[0-9.:]*' "$folder/out")

# Every request can be sent again when its answer is lost.
post() { curl -sS --retry 3 --retry-all-errors "$api/v1/$1" -H 'Content-Type: application/json' -d "$2"; }
field() { python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$1"; }

# The work itself: every line in this file is a charge.
charge() { echo "charged 1999 under $1" | tee -a "$folder/charges"; }

buy() {
    local answer fence key receipt claim_id
    # A new id for every attempt: a begin that is sent again with it gets the same claim.
    claim_id=$(python3 -c 'import uuid; print(uuid.uuid4())')
    answer=$(post begin "${1%\}}, \"claim_id\": \"$claim_id\"}")
    case $(field decision <<<"$answer") in
    acquired)
        fence=$(field fence <<<"$answer") key=$(field key <<<"$answer")
        receipt=$(charge "$(field downstream_key <<<"$answer")")
        post finish '{"operation": "charge", "key": "'"$key"'", "fence": "'"$fence"'",
            "outcome": {"verdict": "success", "content_type": "text/plain", "body": {"text": "'"$receipt"'"}}}' |
            field result
        ;;
    replay) echo "done before: $(python3 -c 'import json, sys; print(json.load(sys.stdin)["outcome"]["body"]["text"])' <<<"$answer")" ;;
    *) field decision <<<"$answer" ;;
    esac
}
intent='{"operation": "charge", "intent": {"customer": "c7", "invoice": 42, "amount": 1999, "memo": "thanks"}}'
echo "# The first time:"
buy "$intent"
echo "# Again, with another memo:"
buy "${intent/thanks/thank you}"
echo "# The same invoice with another amount:"
buy "${intent/1999/2999}"
echo "# Charges:"
wc -l <"$folder/charges" | tr -d ' '
[ "$(wc -l <"$folder/charges")" -eq 1 ]
