-- Whether writes are accepted, as JSON; NULL while the ledger is open. Every transaction reads it.
ALTER TABLE ledger ADD COLUMN seal TEXT;

-- The operations that live in this ledger, without those of a gateway, whose names have paths.
CREATE TABLE operation (
    name TEXT PRIMARY KEY NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO operation SELECT DISTINCT operation FROM intent WHERE operation IS NOT NULL AND operation NOT LIKE '% /%';
