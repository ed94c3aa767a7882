-- A transaction that rolls back leaves neither the row nor the record.
\set ON_ERROR_STOP on

BEGIN;
SELECT fence FROM onceward.claim('charge', :'invoice', tier => 'payment') \gset
INSERT INTO charge (invoice, cents) VALUES (:'invoice', :cents);
SELECT onceward.finish('charge', :'invoice', :'fence', '{"receipt": "never"}') \g /dev/null
ROLLBACK;

SELECT decision FROM onceward.status('charge', :'invoice') \gset
\echo after the rollback: :decision
