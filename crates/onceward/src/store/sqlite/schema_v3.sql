-- What a repeated request is recognised by: digests of the ids that callers chose for their claims, the newest first, and
-- the request that made the newest version.
ALTER TABLE intent ADD COLUMN claims BLOB;
ALTER TABLE intent ADD COLUMN made_by BLOB;

-- Which ledger this is, and how far it has come. The mark rises with the writes, about once a second; the file of the same
-- name beside the ledger follows it, so that a ledger that was restored from an older copy is noticed.
CREATE TABLE ledger (
    row  INTEGER PRIMARY KEY CHECK (row = 1),
    id   BLOB NOT NULL,
    mark INTEGER NOT NULL
) STRICT;
INSERT INTO ledger (row, id, mark) VALUES (1, randomblob(16), 0);
