-- What a repeated request is recognised by: digests of the ids that callers chose for their claims, the newest first, and
-- the request that made the newest version.
ALTER TABLE intent ADD COLUMN claims BLOB;
ALTER TABLE intent ADD COLUMN made_by BLOB;
