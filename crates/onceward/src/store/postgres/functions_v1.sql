
-- The functions for transactions of your own: the record and the effect commit together, or neither does.
--
-- They insert or report. They never take over a claim of another owner and never judge a doubt: that is for the ledger. A fence
-- that is no longer valid raises an error, because a business row that commits beside an ignored refusal would be a second effect.
--
-- They decide as the transition function does for an external effect: whether the effect really commits together with the record
-- is not known here. A claim that is committed without being finished counts as sent.

-- SHA-256 over fields, each with its length in front.
CREATE FUNCTION onceward.hash_v1(VARIADIC fields bytea[]) RETURNS bytea LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog AS $$
BEGIN
    RETURN (
        SELECT sha256(string_agg(int8send(octet_length(field)) || field, ''::bytea ORDER BY place))
        FROM unnest(fields) WITH ORDINALITY AS each_field (field, place)
    );
END $$;

-- The id of an intent.
CREATE FUNCTION onceward.intent_id(tenant text, operation text, key text) RETURNS bytea LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog AS $$
BEGIN
    RETURN (
        SELECT onceward.hash_v1(
            'intent v1', convert_to(tenant, 'UTF8'), convert_to(operation, 'UTF8'), convert_to(key, 'UTF8'))
    );
END $$;

-- The key to pass on to a downstream: the same on every attempt.
CREATE FUNCTION onceward.downstream_key(tenant text, operation text, key text, generation integer DEFAULT 0)
RETURNS text LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog AS $$
BEGIN
    RETURN (
        SELECT 'once_v1_' || left(encode(onceward.hash_v1(
            'downstream v1', convert_to(tenant, 'UTF8'), convert_to(operation, 'UTF8'), convert_to(key, 'UTF8'), ''::bytea,
            int4send(generation)), 'hex'), 32)
    );
END $$;

-- What `claim`, `enqueue` and `status` answer.
CREATE TYPE onceward.answer AS (
    decision       text,        -- acquired replay in_flight in_doubt mismatch collision outcome_not_kept queued dead lapsed;
                                -- enqueue: created; status: open absent
    fence          uuid,        -- acquired: pass it to finish or release
    attempt        bigint,
    downstream_key text,
    verdict        text,        -- replay: success or failure
    status         integer,
    content_type   text,
    body           bytea,
    since          timestamptz, -- in_doubt: since when; replay: when it was finished
    retry_after    interval     -- in_flight: when to ask again
);

-- Checks a name as every surface does.
CREATE FUNCTION onceward.check_name(what text, name text) RETURNS void LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog AS $$
BEGIN
    IF name IS NULL OR name = '' THEN
        RAISE EXCEPTION 'the % is empty', what USING ERRCODE = 'OW002';
    ELSIF length(name) > 255 THEN
        RAISE EXCEPTION 'the % has % characters; at most 255 are allowed', what, length(name) USING ERRCODE = 'OW002';
    ELSIF name ~ '[\u0001-\u001f\u007f-\u009f]' THEN
        RAISE EXCEPTION 'the % contains a control character', what USING ERRCODE = 'OW002';
    END IF;
END $$;

-- Locks a key until the end of the transaction. False if another transaction has it. Batches of servers hold a key for
-- microseconds while they look, so a few tries tell the two apart. Each key takes a place in the lock table of the server, which
-- has a few thousand for all sessions by default, so that the calls of one transaction are counted.
CREATE FUNCTION onceward.lock_key(id bytea) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog AS $$
DECLARE
    number bigint := ('x' || encode(substr(id, 1, 8), 'hex'))::bit(64)::bigint;
    calls integer := coalesce(nullif(current_setting('onceward.calls', true), ''), '0')::integer + 1;
BEGIN
    IF calls > 2000 THEN
        RAISE EXCEPTION 'one transaction makes at most 2,000 calls of claim, finish, release and enqueue'
            USING ERRCODE = 'OW007', HINT = 'Commit more often: each intent holds a lock until the end of the transaction.';
    END IF;
    PERFORM set_config('onceward.calls', calls::text, true);
    FOR try IN 1..5 LOOP
        IF pg_try_advisory_xact_lock(number) THEN
            RETURN true;
        END IF;
        PERFORM pg_sleep(0.001);
    END LOOP;
    RETURN false;
END $$;

CREATE FUNCTION onceward.this_moment() RETURNS timestamptz LANGUAGE sql VOLATILE
SET search_path = pg_catalog AS $$ SELECT date_trunc('milliseconds', clock_timestamp()) $$;

CREATE FUNCTION onceward.milliseconds(length interval) RETURNS bigint LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog AS $$
BEGIN
    RETURN (
        SELECT (extract(epoch FROM length) * 1000)::bigint
    );
END $$;

-- When a record of work that is known not to have happened is forgotten; null if it must be kept.
CREATE FUNCTION onceward.untried_until(intent onceward.intent) RETURNS timestamptz LANGUAGE plpgsql STABLE
SET search_path = pg_catalog AS $$
BEGIN
    RETURN (
        SELECT CASE WHEN intent.state IN ('open', 'claimed') AND intent.doubt_since IS NULL AND intent.payload IS NULL
            AND intent.sequence IS NULL
            THEN greatest(intent.updated_at, intent.until)
                + greatest(intent.retention_ms + intent.tombstone_ms,
                    -- Of a window, this only says that the effect may be repeated at any time.
                    CASE WHEN intent.honours_key_for_ms < 3153600000000 THEN intent.honours_key_for_ms ELSE 0 END) * interval '1 ms'
        END
    );
END $$;

-- How an existing record answers a caller. Null where the record counts as absent, or is open to the next caller.
CREATE FUNCTION onceward.answer_of(found onceward.intent, fingerprint bytea, key_digest bytea, moment timestamptz)
RETURNS onceward.answer LANGUAGE plpgsql STABLE
SET search_path = pg_catalog AS $$
DECLARE
    answer onceward.answer;
    is_alive boolean := found.until > moment AND found.until <= moment + interval '4 days';
BEGIN
    IF found.id IS NULL OR found.state = 'done' AND found.forget_at <= moment OR found.state = 'tombstone' AND found.purge_at <= moment
        OR found.state IN ('open', 'claimed') AND found.purge_at <= moment THEN
        RETURN NULL;
    END IF;
    answer.attempt := found.attempts;
    IF found.key_digest <> key_digest THEN
        answer.decision := 'collision';
        RETURN answer;
    END IF;
    -- A record that was reset takes over the next request.
    IF found.sequence IS NOT NULL
        OR found.fingerprint <> fingerprint AND found.fingerprint <> onceward.hash_v1('fingerprint v1', 'free') THEN
        answer.decision := 'mismatch';
        RETURN answer;
    END IF;
    CASE
        WHEN found.state = 'done' AND (found.purge_at IS NULL OR found.purge_at > moment) AND found.body_size IS NULL THEN
            answer.decision := 'replay';
            answer.verdict := found.verdict;
            answer.status := found.status;
            answer.content_type := found.content_type;
            answer.body := found.body;
            answer.since := found.finished_at;
        WHEN found.state IN ('done', 'tombstone') THEN
            answer.decision := 'outcome_not_kept';
            answer.status := found.status;
        -- What the courier delivers is never a direct caller's.
        WHEN found.payload IS NOT NULL
            AND (found.state = 'open' OR found.state = 'claimed' AND NOT is_alive AND found.doubt_since IS NULL) THEN
            answer.decision := 'queued';
        WHEN found.state IN ('queued', 'dead') THEN
            answer.decision := found.state;
        -- A wait that is longer than any that can be asked for was written by a clock that ran ahead.
        WHEN found.state = 'open' AND (found.until <= moment OR found.until <= found.updated_at
            OR found.until > moment + interval '14 days') THEN
            RETURN NULL;
        WHEN found.state = 'open' THEN
            answer.decision := 'in_flight';
            answer.retry_after := found.until - moment;
        WHEN found.state IN ('claimed', 'sent') AND is_alive THEN
            answer.decision := 'in_flight';
            answer.retry_after := least(found.until - moment, interval '1 second');
        -- Only servers make such claims. Nothing was sent, and the next caller of a server gets it.
        WHEN found.state = 'claimed' AND found.doubt_since IS NULL THEN
            answer.decision := 'lapsed';
        ELSE
            answer.decision := 'in_doubt';
            answer.since := coalesce(found.doubt_since, CASE WHEN found.state = 'in_doubt' THEN found.updated_at
                ELSE least(found.until, moment) END);
    END CASE;
    RETURN answer;
END $$;

-- Checks an interval. The sum of two such intervals and the time of today is a time that PostgreSQL has.
CREATE FUNCTION onceward.check_length(what text, length interval) RETURNS void LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog AS $$
BEGIN
    IF (extract(epoch FROM length) BETWEEN 0 AND 3153600000000) IS NOT TRUE THEN
        RAISE EXCEPTION 'the % is negative or longer than 100,000 years', what USING ERRCODE = 'OW002';
    END IF;
END $$;

-- How long a tier keeps outcomes, and then tombstones, in milliseconds. A retention of your own overrides the tier.
CREATE FUNCTION onceward.terms_of(tier text, INOUT retention interval, INOUT tombstone interval) LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog AS $$
DECLARE
    own interval := retention;
BEGIN
    retention := coalesce(own, CASE tier
        WHEN 'payment' THEN interval '30 days' WHEN 'notification' THEN interval '7 days'
        WHEN 'email' THEN interval '1 day' WHEN 'standard' THEN interval '1 day' END);
    IF (tier IN ('payment', 'notification', 'email', 'standard', 'forever')) IS NOT TRUE THEN
        RAISE EXCEPTION 'unknown tier %: use payment, notification, email, standard or forever', quote_nullable(tier)
            USING ERRCODE = 'OW002';
    END IF;
    tombstone := coalesce(tombstone, CASE tier
        WHEN 'payment' THEN interval '90 days' WHEN 'email' THEN interval '0' ELSE coalesce(retention, interval '0') * 2 END);
    PERFORM onceward.check_length('retention', coalesce(retention, interval '0')), onceward.check_length('tombstone', tombstone);
END $$;

-- Writes a new record, or one in the place of a record that counts as absent or was given back.
-- False if another transaction has just recorded the key.
CREATE FUNCTION onceward.put(new_row onceward.intent, former onceward.intent) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog SET enable_seqscan = off AS $$
BEGIN
    new_row.write_id := gen_random_uuid();
    new_row.purge_at := onceward.untried_until(new_row);
    IF former.id IS NOT NULL THEN
        UPDATE onceward.intent SET (
            version, write_id, fence, until, purge_at, forget_at, finished_at, created_at, updated_at, first_sent_at, doubt_since,
            delivered_at, retention_ms, tombstone_ms, honours_key_for_ms, after_delivery_ms, max_attempts, attempts, generation,
            owner, body_size, status, priority, state, effect, in_doubt, verdict, tenant, operation, key, content_type, last_error,
            reference, headers, entry, fingerprint, key_digest, outcome, claims, made_by, payload, body
        ) = ROW (
            new_row.version, new_row.write_id, new_row.fence, new_row.until, new_row.purge_at, NULL, NULL, new_row.created_at,
            new_row.updated_at, new_row.first_sent_at, NULL, NULL, new_row.retention_ms, new_row.tombstone_ms,
            new_row.honours_key_for_ms, new_row.after_delivery_ms, new_row.max_attempts, new_row.attempts, new_row.generation,
            NULL, NULL, NULL, new_row.priority, new_row.state, new_row.effect, new_row.in_doubt, NULL, new_row.tenant,
            new_row.operation, new_row.key, NULL, new_row.last_error, NULL, NULL, new_row.entry, new_row.fingerprint,
            new_row.key_digest, NULL, new_row.claims, NULL, new_row.payload, NULL
        ) WHERE intent.id = former.id;
    ELSE
        INSERT INTO onceward.intent (
            id, version, write_id, fence, until, purge_at, created_at, updated_at, first_sent_at, retention_ms, tombstone_ms,
            honours_key_for_ms, max_attempts, attempts, generation, priority, state, effect, in_doubt, tenant, operation, key,
            entry, fingerprint, key_digest, payload
        ) VALUES (
            new_row.id, new_row.version, new_row.write_id, new_row.fence, new_row.until, new_row.purge_at, new_row.created_at,
            new_row.updated_at, new_row.first_sent_at, new_row.retention_ms, new_row.tombstone_ms, new_row.honours_key_for_ms,
            new_row.max_attempts, new_row.attempts, new_row.generation, new_row.priority, new_row.state, new_row.effect,
            new_row.in_doubt, new_row.tenant, new_row.operation, new_row.key, new_row.entry, new_row.fingerprint,
            new_row.key_digest, new_row.payload
        ) ON CONFLICT DO NOTHING;
    END IF;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF former.tenant IS NULL THEN
        INSERT INTO onceward.tenant_count AS count (tenant, backend, records) VALUES (new_row.tenant, onceward.count_row(), 1)
        ON CONFLICT ON CONSTRAINT tenant_count_pkey DO UPDATE SET records = count.records + 1;
    END IF;
    RETURN true;
END $$;

-- The row of an intent, locked; null if there is none.
CREATE FUNCTION onceward.locked_row(wanted bytea) RETURNS onceward.intent LANGUAGE plpgsql
SET search_path = pg_catalog SET enable_seqscan = off AS $$
DECLARE
    found_row onceward.intent;
BEGIN
    SELECT * INTO found_row FROM onceward.intent WHERE intent.id = wanted FOR NO KEY UPDATE;
    RETURN found_row;
END $$;

-- The row of finished work, not locked: it stays as it is until it expires, and its repeats need not wait for each other.
CREATE FUNCTION onceward.settled_row(wanted bytea) RETURNS onceward.intent LANGUAGE plpgsql STABLE
SET search_path = pg_catalog SET enable_seqscan = off AS $$
DECLARE
    found_row onceward.intent;
BEGIN
    SELECT * INTO found_row FROM onceward.intent WHERE intent.id = wanted AND intent.state IN ('done', 'tombstone');
    RETURN found_row;
END $$;

-- A record that has not begun, with the terms of its caller. What remains of an earlier record goes on.
CREATE FUNCTION onceward.fresh(
    tenant text, operation text, key text, fingerprint bytea, key_digest bytea, tier text, retention interval, tombstone interval,
    in_doubt text, former onceward.intent, moment timestamptz
) RETURNS onceward.intent LANGUAGE plpgsql
SET search_path = pg_catalog AS $$
DECLARE
    new_row onceward.intent;
    terms record;
BEGIN
    IF (in_doubt IN ('hold', 'retry', 'probe')) IS NOT TRUE THEN
        RAISE EXCEPTION 'unknown in_doubt %: use hold, retry or probe', quote_nullable(in_doubt) USING ERRCODE = 'OW002';
    END IF;
    SELECT * INTO terms FROM onceward.terms_of(tier, retention, tombstone);
    IF former.state = 'open' AND NOT coalesce(former.purge_at <= moment, false) THEN
        new_row := former;
    ELSE
        new_row.id := onceward.intent_id(tenant, operation, key);
        new_row.tenant := tenant;
        new_row.operation := operation;
        new_row.key := key;
        new_row.attempts := 0;
        new_row.generation := 0;
        new_row.created_at := moment;
    END IF;
    new_row.version := coalesce(former.version, 0) + 1;
    new_row.updated_at := moment;
    -- A record that was reset takes over the next request, with its terms. Otherwise those of the record stay.
    IF new_row.fingerprint IS NULL OR new_row.fingerprint = onceward.hash_v1('fingerprint v1', 'free') THEN
        new_row.fingerprint := fingerprint;
        new_row.key_digest := key_digest;
        new_row.effect := 'external';
        new_row.in_doubt := in_doubt;
        new_row.retention_ms := onceward.milliseconds(terms.retention);
        new_row.tombstone_ms := onceward.milliseconds(terms.tombstone);
        new_row.honours_key_for_ms := onceward.milliseconds(interval '1 day');
        new_row.max_attempts := NULL;
        new_row.after_delivery_ms := NULL;
    END IF;
    RETURN new_row;
END $$;

-- The terms of a record, as strict as those of the next caller where those are stricter.
CREATE FUNCTION onceward.tightened(
    former onceward.intent, tier text, retention interval, tombstone interval, in_doubt text
) RETURNS onceward.intent LANGUAGE plpgsql
SET search_path = pg_catalog AS $$
DECLARE
    new_row onceward.intent := former;
    terms record;
BEGIN
    SELECT * INTO terms FROM onceward.terms_of(tier, retention, tombstone);
    new_row.retention_ms := CASE WHEN former.retention_ms IS NULL OR terms.retention IS NULL THEN NULL
        ELSE greatest(former.retention_ms, onceward.milliseconds(terms.retention)) END;
    new_row.tombstone_ms := greatest(former.tombstone_ms, onceward.milliseconds(terms.tombstone));
    new_row.honours_key_for_ms := least(former.honours_key_for_ms, onceward.milliseconds(interval '1 day'));
    new_row.in_doubt := CASE WHEN 'hold' IN (former.in_doubt, in_doubt) THEN 'hold' WHEN 'probe' IN (former.in_doubt, in_doubt) THEN 'probe'
        WHEN 'tell' IN (former.in_doubt, in_doubt) THEN 'tell' ELSE 'retry' END;
    -- This caller keeps the outcome for the whole retention.
    new_row.after_delivery_ms := NULL;
    RETURN new_row;
END $$;

-- The ids of claims, with the newest one among the earlier ones: the next claim has no id.
CREATE FUNCTION onceward.earlier_claims(claims bytea) RETURNS bytea LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog AS $$
BEGIN
    RETURN (
        SELECT CASE WHEN substr(claims, 1, 16) = decode(repeat('00', 16), 'hex') THEN claims
            -- At most 15 earlier ones are kept.
            ELSE decode(repeat('00', 16), 'hex') || substr(claims, CASE WHEN octet_length(claims) >= 256 THEN 33 ELSE 17 END)
                || substr(claims, 1, 16) END
    );
END $$;

-- Claims an intent inside this transaction, or says what is known about it. Commit the effect and `finish` together with it.
-- It is not called `begin`: psql takes that word for the start of a body, and cannot restore a script of pg_dump with it.
CREATE FUNCTION onceward.claim(
    operation text, key text, tenant text DEFAULT 'default', fingerprint bytea DEFAULT NULL, tier text DEFAULT 'standard',
    retention interval DEFAULT NULL, tombstone interval DEFAULT NULL, lease interval DEFAULT '3 minutes',
    in_doubt text DEFAULT 'hold', key_digest bytea DEFAULT NULL
) RETURNS onceward.answer LANGUAGE plpgsql
SET search_path = pg_catalog SET lock_timeout = '2s' SET enable_seqscan = off AS $$
DECLARE
    moment timestamptz;
    wanted bytea;
    found_row onceward.intent;
    new_row onceward.intent;
    answer onceward.answer;
BEGIN
    PERFORM onceward.check_name('operation', operation), onceward.check_name('key', key), onceward.check_name('tenant', tenant);
    IF octet_length(fingerprint) <> 32 OR octet_length(key_digest) <> 32 THEN
        RAISE EXCEPTION 'a fingerprint and a key digest have 32 bytes, as sha256() makes them' USING ERRCODE = 'OW002';
    END IF;
    -- Readers take a lease of more than 4 days for that of a clock that ran ahead.
    IF (lease BETWEEN interval '1 millisecond' AND interval '3 days') IS NOT TRUE THEN
        RAISE EXCEPTION 'a lease has at least a millisecond and at most 3 days' USING ERRCODE = 'OW002';
    END IF;
    fingerprint := coalesce(fingerprint, onceward.hash_v1('fingerprint v1', 'none'));
    PERFORM onceward.check_seal('{}', true);
    wanted := onceward.intent_id(tenant, operation, key);
    found_row := onceward.settled_row(wanted);
    answer := onceward.answer_of(found_row, fingerprint, key_digest, onceward.this_moment());
    IF answer.decision IS NULL AND NOT onceward.lock_key(wanted) THEN
        answer.decision := 'in_flight';
        answer.retry_after := interval '100 milliseconds';
        RETURN answer;
    END IF;
    -- A batch of a server may have looked before this transaction had the lock, and records the key at this moment.
    FOR try IN 1..3 LOOP
        EXIT WHEN answer.decision IS NOT NULL;
        moment := onceward.this_moment();
        found_row := onceward.locked_row(wanted);
        answer := onceward.answer_of(found_row, fingerprint, key_digest, moment);
        EXIT WHEN answer.decision IS NOT NULL;
        new_row := onceward.fresh(
            tenant, operation, key, fingerprint, key_digest, tier, retention, tombstone, in_doubt, found_row, moment);
        IF found_row.id IS NOT NULL THEN
            new_row := onceward.tightened(new_row, tier, retention, tombstone, in_doubt);
        END IF;
        new_row.state := 'sent';
        new_row.first_sent_at := coalesce(new_row.first_sent_at, moment);
        new_row.fence := gen_random_uuid();
        new_row.until := date_trunc('milliseconds', moment + lease);
        new_row.attempts := new_row.attempts + 1;
        new_row.claims := onceward.earlier_claims(new_row.claims);
        EXIT WHEN onceward.put(new_row, found_row);
        new_row := NULL;
    END LOOP;
    IF answer.decision IS NULL AND new_row.id IS NULL THEN
        answer.decision := 'in_flight';
        answer.retry_after := interval '100 milliseconds';
        RETURN answer;
    END IF;
    answer.downstream_key := onceward.downstream_key(
        tenant, operation, key, coalesce(new_row.generation, found_row.generation, 0)::integer);
    IF answer.decision IS NULL THEN
        answer.decision := 'acquired';
        answer.fence := new_row.fence;
        answer.attempt := new_row.attempts;
    END IF;
    RETURN answer;
END $$;

-- The row of a claim, if this fence still owns it. Anything else is an error: the transaction must not commit.
-- `mark` recognises the repeat of a request that ended the claim.
CREATE FUNCTION onceward.owned_row(operation text, key text, tenant text, fence uuid, mark bytea DEFAULT NULL)
RETURNS onceward.intent LANGUAGE plpgsql
SET search_path = pg_catalog AS $$
DECLARE
    wanted bytea := onceward.intent_id(tenant, operation, key);
    found_row onceward.intent;
BEGIN
    PERFORM onceward.check_seal('{}', false);
    IF NOT onceward.lock_key(wanted) THEN
        RAISE EXCEPTION 'another transaction holds the intent: roll back and try again' USING ERRCODE = '40001';
    END IF;
    found_row := onceward.locked_row(wanted);
    IF found_row.made_by = mark THEN
        RETURN found_row;
    END IF;
    IF found_row.fence IS DISTINCT FROM fence OR fence IS NULL
        OR found_row.state NOT IN ('claimed', 'sent', 'overdue', 'in_doubt', 'done') THEN
        RAISE EXCEPTION 'the claim is not valid any more: another owner has the intent, or it was settled'
            USING ERRCODE = 'OW003', HINT = 'Roll back, so that the effect does not happen a second time.';
    END IF;
    RETURN found_row;
END $$;

-- Keeps the outcome of a claim. Repeats get it once the transaction has committed.
CREATE FUNCTION onceward.finish(
    operation text, key text, fence uuid, body bytea DEFAULT '', content_type text DEFAULT 'application/json',
    status integer DEFAULT 0, verdict text DEFAULT 'success', tenant text DEFAULT 'default', reference text DEFAULT NULL
) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog SET lock_timeout = '2s' SET enable_seqscan = off AS $$
DECLARE
    found_row onceward.intent := onceward.owned_row(operation, key, tenant, fence);
    moment timestamptz := onceward.this_moment();
BEGIN
    IF (verdict IN ('success', 'failure') AND octet_length(body) <= 8388608) IS NOT TRUE OR status IS NULL OR content_type IS NULL THEN
        RAISE EXCEPTION 'a verdict is success or failure, a body has at most 8 MiB, and neither they nor status and content_type are null'
            USING ERRCODE = 'OW002';
    END IF;
    IF found_row.state = 'done' THEN
        -- The same outcome again is the repeat of a finish whose answer was lost.
        IF (found_row.verdict, found_row.status, found_row.content_type, found_row.body, found_row.headers::text)
            IS DISTINCT FROM (verdict, status, content_type, body, NULL::text) THEN
            RAISE EXCEPTION 'the intent is done with another outcome' USING ERRCODE = 'OW003';
        END IF;
        RETURN;
    ELSIF found_row.state = 'claimed' AND found_row.payload IS NOT NULL AND found_row.effect = 'external' THEN
        RAISE EXCEPTION 'the entry was not marked as sent, so it cannot be finished' USING ERRCODE = 'OW003';
    END IF;
    -- If the clock was set back after the intent was recorded, the outcome is kept from the time of recording.
    moment := greatest(moment, found_row.created_at);
    UPDATE onceward.intent SET version = intent.version + 1, write_id = gen_random_uuid(), state = 'done', until = NULL,
        owner = NULL, finished_at = moment, updated_at = moment,
        purge_at = CASE WHEN intent.sequence IS NULL THEN moment + intent.retention_ms * interval '1 ms' END,
        forget_at = CASE WHEN intent.sequence IS NULL
            THEN moment + (intent.retention_ms + intent.tombstone_ms) * interval '1 ms' END,
        doubt_since = NULL, last_error = NULL, made_by = NULL, delivered_at = NULL,
        payload = CASE WHEN (intent.entry->>'keeps_payload')::boolean THEN intent.payload END,
        -- Longer ones are not ids, and would make the index slow.
        reference = CASE WHEN octet_length(finish.reference) BETWEEN 1 AND 255 THEN finish.reference END,
        claims = CASE WHEN intent.after_delivery_ms IS NULL THEN NULL ELSE intent.claims END,
        verdict = finish.verdict, status = finish.status, content_type = finish.content_type, body = finish.body
    WHERE intent.id = found_row.id;
END $$;

-- Gives a claim back: nothing happened, and the next caller may try.
CREATE FUNCTION onceward.release(
    operation text, key text, fence uuid, error text DEFAULT NULL, not_before interval DEFAULT '0', tenant text DEFAULT 'default'
) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog SET lock_timeout = '2s' SET enable_seqscan = off AS $$
DECLARE
    mark bytea := substr(onceward.hash_v1('mark v1', 'release', uuid_send(fence)), 1, 16);
    found_row onceward.intent := onceward.owned_row(operation, key, tenant, fence, mark);
    moment timestamptz := onceward.this_moment();
    is_over boolean;
BEGIN
    IF found_row.made_by = mark THEN
        RETURN;
    ELSIF found_row.state NOT IN ('claimed', 'sent', 'overdue') THEN
        RAISE EXCEPTION 'the claim is not valid any more: the intent is %', found_row.state USING ERRCODE = 'OW003';
    END IF;
    found_row.updated_at := moment;
    -- In whole milliseconds: conditional writes of servers compare it.
    found_row.until := date_trunc('milliseconds', moment + least(greatest(not_before, interval '0'), interval '7 days'));
    is_over := coalesce(found_row.attempts >= found_row.max_attempts, false) OR coalesce(
        extract(epoch FROM found_row.until - found_row.created_at) * 1000 >= (found_row.entry->>'deliver_within')::numeric, false);
    -- A proof speaks for its own attempt only: an older doubt stays.
    found_row.state := CASE WHEN found_row.doubt_since IS NOT NULL THEN 'in_doubt'
        WHEN found_row.payload IS NOT NULL AND is_over THEN 'dead'
        WHEN found_row.payload IS NOT NULL THEN 'queued' ELSE 'open' END;
    found_row.until := CASE
        WHEN found_row.state = 'open' AND is_over THEN moment
        WHEN found_row.state IN ('open', 'queued') THEN found_row.until
        -- The courier tries a doubt again if the terms permit it. Without a time, it waits for a person.
        WHEN found_row.state = 'in_doubt' AND found_row.payload IS NOT NULL AND NOT is_over
            AND found_row.in_doubt IN ('retry', 'probe') THEN found_row.until
    END;
    UPDATE onceward.intent SET version = intent.version + 1, write_id = gen_random_uuid(), state = found_row.state, owner = NULL,
        fence = CASE WHEN found_row.state = 'in_doubt' THEN intent.fence END,
        until = found_row.until,
        purge_at = onceward.untried_until(found_row), updated_at = moment, last_error = left(release.error, 1000),
        made_by = mark, delivered_at = NULL
    WHERE intent.id = found_row.id;
END $$;

-- Records an intent for the courier, in this transaction.
CREATE FUNCTION onceward.enqueue(
    operation text, key text, payload bytea, tenant text DEFAULT 'default', fingerprint bytea DEFAULT NULL,
    tier text DEFAULT 'standard', retention interval DEFAULT NULL, tombstone interval DEFAULT NULL, delay interval DEFAULT '0',
    in_doubt text DEFAULT 'hold', priority text DEFAULT 'normal', deliver_within interval DEFAULT NULL,
    keep_payload boolean DEFAULT false, max_attempts integer DEFAULT NULL
) RETURNS onceward.answer LANGUAGE plpgsql
SET search_path = pg_catalog SET lock_timeout = '2s' SET enable_seqscan = off AS $$
DECLARE
    moment timestamptz;
    wanted bytea;
    found_row onceward.intent;
    new_row onceward.intent;
    answer onceward.answer;
BEGIN
    PERFORM onceward.check_name('operation', operation), onceward.check_name('key', key), onceward.check_name('tenant', tenant);
    IF payload IS NULL OR octet_length(payload) > 8388608 OR octet_length(fingerprint) <> 32 THEN
        RAISE EXCEPTION 'a payload has at most 8 MiB, and a fingerprint 32 bytes' USING ERRCODE = 'OW002';
    END IF;
    IF (priority IN ('high', 'normal', 'low')) IS NOT TRUE THEN
        RAISE EXCEPTION 'unknown priority %: use high, normal or low', quote_nullable(priority) USING ERRCODE = 'OW002';
    ELSIF max_attempts < 1 THEN
        RAISE EXCEPTION 'max_attempts is at least 1, or null for any number' USING ERRCODE = 'OW002';
    END IF;
    PERFORM onceward.check_length('delay', greatest(delay, interval '0')),
        onceward.check_length('deliver_within', coalesce(deliver_within, interval '0'));
    -- Without one of your own, the payload is what must be the same.
    fingerprint := coalesce(fingerprint, onceward.hash_v1('fingerprint v1', 'payload', 'payload', 'present', payload));
    PERFORM onceward.check_seal('{}', true);
    wanted := onceward.intent_id(tenant, operation, key);
    found_row := onceward.settled_row(wanted);
    answer := onceward.answer_of(found_row, fingerprint, NULL, onceward.this_moment());
    IF answer.decision IS NULL AND NOT onceward.lock_key(wanted) THEN
        answer.decision := 'in_flight';
        answer.retry_after := interval '100 milliseconds';
        RETURN answer;
    END IF;
    -- A batch of a server may have looked before this transaction had the lock, and records the key at this moment.
    FOR try IN 1..3 LOOP
        EXIT WHEN answer.decision IS NOT NULL;
        moment := onceward.this_moment();
        found_row := onceward.locked_row(wanted);
        answer := onceward.answer_of(found_row, fingerprint, NULL, moment);
        -- Work that was given back may be queued before its wait is over.
        IF found_row.state = 'open' AND answer.decision = 'in_flight' THEN
            answer := NULL;
        END IF;
        EXIT WHEN answer.decision IS NOT NULL;
        new_row := onceward.fresh(
            tenant, operation, key, fingerprint, NULL, tier, retention, tombstone, in_doubt, found_row, moment);
        IF found_row.id IS NOT NULL THEN
            new_row := onceward.tightened(new_row, tier, retention, tombstone, in_doubt);
        END IF;
        new_row.state := 'queued';
        new_row.payload := payload;
        new_row.attempts := 0;
        -- A direct call has no number of attempts.
        new_row.max_attempts := max_attempts;
        new_row.priority := CASE priority WHEN 'high' THEN 0 WHEN 'normal' THEN 1 ELSE 2 END;
        new_row.entry := json_strip_nulls(json_build_object('priority', priority,
            -- Counted from when a direct call recorded the intent, if one did.
            'deliver_within', onceward.milliseconds(deliver_within + (moment - new_row.created_at)), 'keeps_payload', CASE WHEN keep_payload THEN true END));
        new_row.until := date_trunc('milliseconds', moment + greatest(delay, interval '0'));
        EXIT WHEN onceward.put(new_row, found_row);
        new_row := NULL;
    END LOOP;
    IF answer.decision IS NULL AND new_row.id IS NULL THEN
        answer.decision := 'in_flight';
        answer.retry_after := interval '100 milliseconds';
        RETURN answer;
    END IF;
    answer.downstream_key := onceward.downstream_key(
        tenant, operation, key, coalesce(new_row.generation, found_row.generation, 0)::integer);
    IF answer.decision IS NULL THEN
        answer.decision := 'created';
        answer.attempt := new_row.attempts;
    END IF;
    RETURN answer;
END $$;

-- What is known about an intent. It changes nothing and takes no lock.
CREATE FUNCTION onceward.status(operation text, key text, tenant text DEFAULT 'default') RETURNS onceward.answer
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog SET enable_seqscan = off AS $$
DECLARE
    found_row onceward.intent;
    answer onceward.answer;
BEGIN
    SELECT * INTO found_row FROM onceward.intent WHERE intent.id = onceward.intent_id(status.tenant, status.operation, status.key);
    IF found_row.id IS NOT NULL THEN
        answer := onceward.answer_of(found_row, found_row.fingerprint, NULL, onceward.this_moment());
    END IF;
    IF answer.decision IS NOT NULL THEN
        answer.downstream_key := onceward.downstream_key(tenant, operation, key, coalesce(found_row.generation, 0)::integer);
    END IF;
    answer.decision := coalesce(answer.decision, CASE WHEN found_row.state = 'open' THEN 'open' ELSE 'absent' END);
    RETURN answer;
END $$;
