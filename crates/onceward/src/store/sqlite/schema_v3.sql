-- What a repeated request is recognised by: digests of the ids that callers chose for their claims, the newest first, and
-- the request that made the newest version.
ALTER TABLE intent ADD COLUMN claims BLOB;
ALTER TABLE intent ADD COLUMN made_by BLOB;
-- How long an outcome answers equal calls once it was delivered, and when it was.
ALTER TABLE intent ADD COLUMN after_delivery INTEGER;
ALTER TABLE intent ADD COLUMN delivered_at INTEGER;
-- The name of the token with which an entry was asked for.
ALTER TABLE audit ADD COLUMN token TEXT;

-- Which ledger this is, and how far it has come. The mark rises with the writes, about once a second; the file of the same
-- name beside the ledger follows it, so that a ledger that was restored from an older copy is noticed.
CREATE TABLE ledger (
    row  INTEGER PRIMARY KEY CHECK (row = 1),
    id   BLOB NOT NULL,
    mark INTEGER NOT NULL
) STRICT;
INSERT INTO ledger (row, id, mark) VALUES (1, randomblob(16), 0);

-- A claim that lapsed before anything was sent is forgotten like what was given back.
DROP INDEX intent_untried;
CREATE INDEX intent_untried ON intent (forget_at) WHERE state IN ('open', 'claimed') AND forget_at IS NOT NULL;
UPDATE intent SET forget_at = CASE
    WHEN max(updated_at, until) > 9223372036854775807 - held.lasts THEN 9223372036854775807
    ELSE max(updated_at, until) + held.lasts
END
FROM (
    SELECT row AS whose, max(honours_key_for, CASE
        WHEN retention > 9223372036854775807 - tombstone THEN 9223372036854775807
        ELSE retention + tombstone
    END) AS lasts
    FROM intent
    WHERE state = 'claimed' AND state NOT IN ('done', 'tombstone') AND retention IS NOT NULL
      AND doubt_since IS NULL AND payload IS NULL AND sequence IS NULL
) AS held
WHERE row = held.whose;

-- How many records each tenant has, for its quota. Triggers keep the number in the transaction of each write, so that it is
-- right after every crash and is never counted anew. A tombstone has no tenant.
CREATE TABLE tenant (
    name    TEXT PRIMARY KEY NOT NULL,
    records INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TRIGGER intent_inserted AFTER INSERT ON intent WHEN NEW.tenant IS NOT NULL BEGIN
    INSERT INTO tenant (name, records) VALUES (NEW.tenant, 1) ON CONFLICT (name) DO UPDATE SET records = records + 1;
END;
CREATE TRIGGER intent_deleted AFTER DELETE ON intent WHEN OLD.tenant IS NOT NULL BEGIN
    UPDATE tenant SET records = records - 1 WHERE name = OLD.tenant;
    DELETE FROM tenant WHERE name = OLD.tenant AND records <= 0;
END;
CREATE TRIGGER intent_renamed AFTER UPDATE OF tenant ON intent WHEN NEW.tenant IS NOT OLD.tenant BEGIN
    UPDATE tenant SET records = records - 1 WHERE name = OLD.tenant;
    DELETE FROM tenant WHERE name = OLD.tenant AND records <= 0;
    INSERT INTO tenant (name, records) SELECT NEW.tenant, 1 WHERE NEW.tenant IS NOT NULL
        ON CONFLICT (name) DO UPDATE SET records = records + 1;
END;
