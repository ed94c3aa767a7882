-- What was tried and did not happen is forgotten too, found here and never by scanning. The index holds nothing else, so that
-- no claim pays for it.
CREATE INDEX intent_untried ON intent (forget_at) WHERE state = 'open' AND forget_at IS NOT NULL;
