-- Whether writes are accepted, as JSON; NULL while the ledger is open. Every transaction reads it.
ALTER TABLE ledger ADD COLUMN seal TEXT;

-- The operations that a server with several stores keeps in this one.
CREATE TABLE operation (
    name TEXT PRIMARY KEY NOT NULL
) STRICT, WITHOUT ROWID;
