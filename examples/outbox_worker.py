"""Delivers queued entries: fetches one, calls the provider with the entry's key, reports. Run as many of these as you like."""
import http.client, json, os, sys, time, urllib.error, urllib.request, uuid

API, PROVIDER = os.environ["ONCEWARD_API"], os.environ["PROVIDER"]


def send(url, body, **headers):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json", **headers})
    with urllib.request.urlopen(request, timeout=90) as answer:
        return answer.read().decode()


def onceward(path, body):
    """Every request to Onceward can be sent again, so it is sent until it is answered."""
    while True:
        try:
            return json.loads(send(API + path, body))
        except (OSError, http.client.HTTPException, ValueError) as error:
            if getattr(error, "code", 500) < 500:  # a mistake in the request
                raise
            time.sleep(1)


while True:
    lease = {"operation": sys.argv[1], "lease_id": str(uuid.uuid4()), "wait_ms": 30_000}
    for entry in onceward("/v1/lease", lease)["entries"]:
        claim = {name: entry[name] for name in ("operation", "key", "fence")}
        try:
            receipt = send(PROVIDER, entry["payload"], **{"Idempotency-Key": entry["downstream_key"]})
        except (OSError, http.client.HTTPException) as error:
            refused = isinstance(getattr(error, "reason", None), ConnectionRefusedError)
            nothing_happened = refused or getattr(error, "code", None) == 429
            onceward("/v1/release" if nothing_happened else "/v1/doubt", {**claim, "error": str(error)})
        else:
            onceward("/v1/finish", {**claim, "outcome": {"verdict": "success", "body": {"text": receipt}}})
