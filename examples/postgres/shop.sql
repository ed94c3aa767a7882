-- The business table of the examples. It has no unique constraint: that there is one row for each invoice is Onceward's work.
CREATE TABLE charge (
    invoice    text NOT NULL,
    cents      bigint NOT NULL,
    charged_at timestamptz NOT NULL DEFAULT now()
);
