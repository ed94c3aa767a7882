-- What was tried and did not happen is forgotten too, found here and never by scanning. The index holds nothing else, so that
-- no claim pays for it.
CREATE INDEX intent_untried ON intent (forget_at) WHERE state = 'open' AND forget_at IS NOT NULL;
-- Those that are there already, unless they hold a doubt, a payload or an item's place. No sum goes past the end of time.
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
    WHERE state = 'open' AND state NOT IN ('done', 'tombstone') AND retention IS NOT NULL
      AND doubt_since IS NULL AND payload IS NULL AND sequence IS NULL
) AS held
WHERE row = held.whose;
