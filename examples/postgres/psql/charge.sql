-- Charges an invoice once. The row and the record of it commit together.
--
--     psql "$DATABASE_URL" -X -q -v invoice=invoice-42 -v cents=1999 -f charge.sql
\set ON_ERROR_STOP on
-- An error shows its SQLSTATE, which the loop in run.sh looks at.
\set VERBOSITY sqlstate

BEGIN;
-- The same invoice with another amount is a mismatch, and not a repeat.
SELECT decision, fence, convert_from(body, 'UTF8') AS receipt,
    decision = 'acquired' AS is_acquired, decision = 'replay' AS is_replay, decision = 'in_flight' AS is_in_flight
FROM onceward.claim('charge', :'invoice', tier => 'payment', fingerprint => sha256(convert_to(:'cents', 'UTF8'))) \gset

\if :is_acquired
    SELECT json_build_object('receipt', :'invoice' || '/' || :'cents') AS receipt \gset
    INSERT INTO charge (invoice, cents) VALUES (:'invoice', :cents);
    SELECT onceward.finish('charge', :'invoice', :'fence', convert_to(:'receipt', 'UTF8')) \g /dev/null
    COMMIT;
    \echo charged: :receipt
    \quit
\endif

ROLLBACK;
\if :is_replay
    \echo replayed: :receipt
\elif :is_in_flight
    -- Another transaction has it now. run.sh asks again.
    \echo in flight
\else
    \echo not charged: :decision
\endif
