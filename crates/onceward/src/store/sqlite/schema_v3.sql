-- What a repeated request is recognised by: digests of the ids that callers chose for their claims, the newest first, and
-- the request that made the newest version.
ALTER TABLE intent ADD COLUMN claims BLOB;
ALTER TABLE intent ADD COLUMN made_by BLOB;
-- The name of the token with which an entry was asked for.
ALTER TABLE audit ADD COLUMN token TEXT;
