-- What the courier needs of an entry of the outbox, and the number of its priority; both NULL for direct calls.
ALTER TABLE intent ADD COLUMN entry TEXT;
ALTER TABLE intent ADD COLUMN priority INTEGER;
-- The id that the downstream gave the effect.
ALTER TABLE intent ADD COLUMN reference TEXT;

-- The courier finds its work here, and never by scanning. No direct call is in it, so that none pays for it.
CREATE INDEX intent_due ON intent (operation, priority, tenant, until)
    WHERE payload IS NOT NULL AND until IS NOT NULL AND state NOT IN ('done', 'tombstone');
CREATE INDEX intent_reference ON intent (reference) WHERE reference IS NOT NULL;
