#!/usr/bin/env bash
# Who repeats what: a cron job that overlaps with itself, a person who clicks twice, and an agent that takes over the task of
# another one. Each of them has one effect.
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

python3 downstream.py 0 0 >"$folder/provider" &
until_true test -s "$folder/provider"
provider=$(cat "$folder/provider")
cat >"$folder/onceward.toml" <<TOML
store = "ledger.db"

[operation.digest]
wait = "10s"               # a second run waits for the first one

[operation.charge]
sink = "provider"

[operation.refund]
key = ["/order"]           # one refund for each order, however it is worded
match = ["/amount"]
sink = "provider"

[sink.provider]
type = "http"
url = "$provider/{{ operation }}s"
allow_private = true       # the provider is on this machine
honours_key = true
TOML
export ONCEWARD_CONFIG=$folder/onceward.toml
"$onceward" serve --listen 127.0.0.1:0 >"$folder/out" 2>"$folder/log" &
until_true test -s "$folder/out"
server=$(grep -o 'http://[0-9.:]*' "$folder/out")
has_effects() { curl -sS "$provider/" | grep -q "\"effects\": $1,"; }

echo "# Two runs of a cron job overlap:"
day=$(date +%F)
digest() { "$onceward" run --operation digest --key "$day" -- sh -c "echo sent | tee -a '$folder/digests'; sleep 1" 2>&1; }
digest >"$folder/first-run" &
first_run=$!
digest >"$folder/second-run"
wait "$first_run"
sort "$folder"/*-run | sed 's/at [0-9-]*T[0-9:.]*Z/a moment ago/' | uniq -c
echo "# Digests that went out:"
wc -l <"$folder/digests" | tr -d ' '
[ "$(wc -l <"$folder/digests")" -eq 1 ]

echo "# A person clicks on \"Pay\" twice:"
click() {
    curl -sS --retry 3 --retry-all-errors "$server/v1/enqueue" -H 'Content-Type: application/json' \
        -d '{"operation": "charge", "key": "order-17", "payload": {"order": 17, "amount": 4200}}'
    echo
}
click >"$folder/first-click" &
first_click=$!
click >"$folder/second-click"
wait "$first_click"
grep -ho '"result":"[^"]*"' "$folder/first-click" "$folder/second-click" | sort
[ "$(grep -l '"result":"enqueued"' "$folder"/*-click | wc -l)" -eq 1 ]

echo "# An agent queues a refund and hands its task over. The next agent does the same in its own words:"
refund() { "$onceward" enqueue --operation refund --payload "$1"; }
refund '{"order": 17, "amount": 4200, "reason": "arrived broken"}'
refund '{"order": 17, "amount": 4200, "reason": "The customer says that it was damaged."}' | tee "$folder/second-refund"
grep -q 'nothing was queued' "$folder/second-refund"
echo "# A third one has the amount wrong:"
refused=0
refund '{"order": 17, "amount": 4250, "reason": "broken"}' || refused=$?
[ "$refused" = 65 ]

echo "# Effects at the provider, a charge and a refund:"
until_true has_effects 2
is_idle() { [[ $("$onceward" list --state queued,running,in_doubt) == "no intents" ]]; }
until_true is_idle
curl -sS "$provider/"
echo
has_effects 2
