#!/usr/bin/env bash
# The outbox: what is queued is delivered once, however often it is queued, while the provider is down, and although the courier
# is killed in the middle of a campaign.
# Needs curl and python3; ONCEWARD names the binary if it is not on the path.
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
start_provider() {
    : >"$folder/provider"
    python3 downstream.py "$1" 0.05 >"$folder/provider" &
    provider_process=$!
    until_true test -s "$folder/provider"
    provider=$(cat "$folder/provider")
}
start_courier() {
    "$onceward" courier --config "$folder/onceward.toml" >>"$folder/log" 2>&1 &
    courier_process=$!
}
once() { "$onceward" "$@" --config "$folder/onceward.toml"; }
# How many entries are in these states.
count() { once list --state "$1" --limit 1000 | grep -c letter || true; }
is_delivered() { [ "$(count queued,running,in_doubt)" = 0 ]; }
# What the provider has counted: effects, different ones, or requests.
provider_has() { curl -sS "$provider/" | grep -o "\"$1\": [0-9]*" | cut -d ' ' -f 2; }
has_begun() { [ "$(provider_has effects)" -ge 10 ]; }
is_open() { [[ $(once breakers) == *open* ]]; }

start_provider 0
cat >"$folder/onceward.toml" <<TOML
store = "ledger.db"

[operation.letter]
key = ["/to", "/template"]
sink = "mail"

[sink.mail]
type = "http"
url = "$provider/letters"
allow_private = true       # the provider is on this machine
honours_key = true         # it sends one letter for each Idempotency-Key
reference = "/id"
concurrency = 4
retry = { cap = "500ms", max_attempts = 100 }
breaker = { failures = 3, recovery = "500ms" }
TOML

echo "# Ten enqueues of one letter, all at once:"
processes=()
for _ in {1..10}; do
    once enqueue --operation letter --payload '{"to": "ann", "template": "welcome"}' >>"$folder/answers" &
    processes+=($!)
done
wait "${processes[@]}"
sort "$folder/answers" | uniq -c
once courier --until-idle
echo "# Letters at the provider:"
provider_has effects
[ "$(provider_has effects)" = 1 ]

echo "# The provider is down:"
{ kill "$provider_process" && wait "$provider_process"; } 2>/dev/null || true
once enqueue --operation letter --payload '{"to": "bob", "template": "welcome"}'
start_courier
until_true is_open
once list --state queued
once breakers
echo "# It comes back:"
start_provider "${provider##*:}"
until_true is_delivered
once list --state done
[ "$(provider_has effects)" = 1 ] # it was started again, and counts from zero

echo "# A campaign of 40 letters. The program that queues them is cut off after 25:"
for number in {1..40}; do
    echo "{\"payload\": {\"to\": \"customer $number\", \"template\": \"autumn\"}}"
done >"$folder/letters.jsonl"
queue() { once enqueue --operation letter --batch | grep -o '"result":"[^"]*"' | sort | uniq -c; }
head -n 25 "$folder/letters.jsonl" | queue
echo "# It is started again, with all of them:"
queue <"$folder/letters.jsonl"
echo "# The courier is killed in the middle:"
until_true has_begun
{ kill -9 "$courier_process" && wait "$courier_process"; } 2>/dev/null || true
once list --limit 1000 | awk '$3 == "letter" { print $1 }' | sort | uniq -c
echo "# Another courier goes on. Letters at the provider:"
start_courier
until_true is_delivered
curl -sS "$provider/"
echo
[ "$(provider_has effects)" = 41 ]
[ "$(provider_has different)" = 41 ]
[ "$(count done)" = 42 ]
