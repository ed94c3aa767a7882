-- A claim that is not valid any more cannot be finished, and what was written beside it cannot commit.
\set ON_ERROR_STOP on
\set VERBOSITY sqlstate

-- Without BEGIN, each statement commits by itself: the claim outlives its transaction, and is given back.
SELECT fence FROM onceward.claim('charge', :'invoice', tier => 'payment') \gset
SELECT onceward.release('charge', :'invoice', :'fence', 'given up') \g /dev/null

-- Its owner does not know, and comes back late. The error ends psql, and the transaction with it.
BEGIN;
INSERT INTO charge (invoice, cents) VALUES (:'invoice', :cents);
SELECT onceward.finish('charge', :'invoice', :'fence', '{"receipt": "late"}') \g /dev/null
COMMIT;
