"""A payments API that is safe to retry: fastapi_payments.py PORT."""

import sys
from typing import Annotated

import uvicorn
from fastapi import Depends, FastAPI, HTTPException
from pydantic import BaseModel

import onceward
from onceward.asgi import IdempotencyMiddleware

app = FastAPI()
app.add_middleware(IdempotencyMiddleware, ledger=onceward.Ledger("payments.db"), tier="payment")

LIMIT = 1_000_000


class Charge(BaseModel):
    customer: str
    cents: int


def charge_card(charge: Charge, idempotency_key: str) -> str:
    """Stands in for a provider. A real one gets the key in a header, and remembers it too."""
    print(f"charging {charge.customer} {charge.cents} cents, under {idempotency_key}", flush=True)
    return f"ch_{idempotency_key[-8:]}"


@app.post("/charges", status_code=201)
def charges(charge: Charge, claim: Annotated[onceward.Claim, Depends(onceward.claim)]) -> dict[str, str | int]:
    if charge.cents > LIMIT:
        raise HTTPException(402, "over the limit")  # final: a retry is told the same, and nothing runs
    return {"id": charge_card(charge, claim.downstream_key), "cents": charge.cents}


if __name__ == "__main__":
    if len(sys.argv) < 2:
        print("usage: fastapi_payments.py PORT")
    else:
        uvicorn.run(app, port=int(sys.argv[1]))
