#!/usr/bin/env bash
# The inbox: a webhook that Stripe delivers twice is one event, and a forged one is none. The application gets each event once,
# also one that arrived while it was down.
# Needs curl, python3 and openssl; ONCEWARD names the binary if it is not on the path.
set -euo pipefail
# Resolve the binary before changing the directory.
onceward=$(realpath "$(command -v "${ONCEWARD:-onceward}")")
cd "$(dirname "$0")"
folder=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null; wait 2>/dev/null; rm -rf "$folder"' EXIT

# Wait until a command succeeds, for 20 seconds at the most.
until_true() {
    for _ in {1..200}; do
        if "$@"; then return; fi
        sleep 0.1
    done
    echo "timed out: $*" >&2
    return 1
}
start_application() {
    : >"$folder/application"
    python3 downstream.py "$1" 0 >"$folder/application" &
    application_process=$!
    until_true test -s "$folder/application"
    application=$(cat "$folder/application")
}

start_application 0
export STRIPE_WEBHOOK_SECRET=whsec_of_this_example_only
cat >"$folder/onceward.toml" <<TOML
store = "ledger.db"

[[inbox]]
path = "/hooks/stripe"
scheme = "stripe"
secret = "env:STRIPE_WEBHOOK_SECRET"
operation = "stripe_event"

[operation.stripe_event]
sink = "application"

[sink.application]
type = "http"
url = "$application/events/{{ payload.type }}"
allow_private = true       # the application is on this machine
passes_key = true          # the id of the event is the Idempotency-Key
honours_key = true         # and the application handles each of them once
retry = { cap = "500ms", max_attempts = 100 }
breaker = { failures = 5, recovery = "500ms" }
TOML
"$onceward" serve --config "$folder/onceward.toml" --listen 127.0.0.1:0 >"$folder/out" 2>"$folder/log" &
until_true test -s "$folder/out"
server=$(grep -o 'http://[0-9.:]*' "$folder/out")

# Sign as Stripe does, post, and print the answer with its status.
deliver() {
    local time=${3:-$(date +%s)} signature
    signature=$(printf '%s.%s' "$time" "$1" | openssl dgst -sha256 -hmac "$2" | sed 's/.*= //')
    curl -sS "$server/hooks/stripe" -w ' (%{http_code})\n' -H 'Content-Type: application/json' \
        -H "Stripe-Signature: t=$time,v1=$signature" -d "$1" | tee "$folder/answer"
}
answered() { grep -q "($1)" "$folder/answer"; }
has_events() { curl -sS "$application/" 2>/dev/null | grep -q "\"effects\": $1,"; }
paid='{"id": "evt_1", "type": "invoice.paid", "pending_webhooks": 2}'

echo "# Stripe delivers an event:"
deliver "$paid" "$STRIPE_WEBHOOK_SECRET"
answered 200
echo "# It delivers it again. By now, fewer webhooks are pending:"
deliver "${paid/2/1}" "$STRIPE_WEBHOOK_SECRET"
answered 200
echo "# A forged event, signed with another secret:"
deliver "${paid/evt_1/evt_forged}" whsec_guessed
answered 401
echo "# A captured delivery is sent again after ten minutes:"
deliver "$paid" "$STRIPE_WEBHOOK_SECRET" $(($(date +%s) - 600))
answered 401
until_true has_events 1

echo "# The application is down, and Stripe delivers another event:"
{ kill "$application_process" && wait "$application_process"; } 2>/dev/null || true
deliver '{"id": "evt_2", "type": "invoice.voided", "pending_webhooks": 1}' "$STRIPE_WEBHOOK_SECRET"
answered 200
start_application "${application##*:}"
until_true has_events 1 # it was started again, and counts from zero
echo "# Events in the ledger:"
is_done() { [ "$("$onceward" list --config "$folder/onceward.toml" --state done | grep -c '^done')" = 2 ]; }
until_true is_done
"$onceward" list --config "$folder/onceward.toml" | tee "$folder/list"
[ "$(grep -c stripe_event "$folder/list")" = 2 ]
