//! Decides whether an SQL statement only reads. Dialects differ, so an ambiguous statement does not count as a read. Pure.

use super::super::members::Members;

/// Arguments that carry the statement, with case and separators ignored.
#[rustfmt::skip]
const STATEMENT_ARGUMENTS: &[&str] = &[
    "query", "querysql", "sql", "sqlquery", "sqlstatement", "statement",
];

/// Arguments that may carry more statements or other code.
const OTHER_CODE_ARGUMENTS: &[&str] =
    &["body", "code", "command", "commands", "mutation", "queries", "script", "sqls", "statements"];

/// Words that may write, or occur only in statements that do. They may be anywhere, because T-SQL needs no separator between two
/// statements.
#[rustfmt::skip]
const WRITES: &[&str] = &[
    "add", "alter", "analyse", "analyze", "attach", "backup", "begin", "bulk", "call", "checkpoint", "commit",
    "conversation", "copy", "create", "dbcc", "deallocate", "declare", "delete", "deny", "detach", "disable", "do",
    "drop", "dumpfile", "enable", "exec", "execute", "export", "go", "goto", "grant", "handler", "import", "insert",
    "install", "into", "kill", "load", "lock", "merge", "nextval", "notify", "optimize", "outfile", "prepare",
    "print", "purge", "put", "raiserror", "readtext", "receive", "reconfigure", "refresh", "reindex", "remove",
    "rename", "restore", "revert", "revoke", "rm", "rollback", "save", "set", "setuser", "shutdown", "throw", "tran",
    "transaction", "truncate", "undrop", "unset", "update", "updatetext", "upsert", "use", "vacuum", "waitfor",
    "while", "writetext",
];

/// Words that may be in front of a parenthesis: keywords, types, and functions without side effects in every dialect.
#[rustfmt::skip]
const PURE: &[&str] = &[
    "abs", "age", "all", "and", "any", "array", "array_agg", "array_length", "as", "avg", "between", "by", "case",
    "cast", "ceil", "ceiling", "char", "char_length", "coalesce", "concat", "concat_ws", "corr", "count", "cube",
    "current_schema", "current_setting", "database", "date", "date_add", "date_diff", "date_format", "date_part",
    "date_sub", "date_trunc", "dateadd", "datediff", "datetime", "day", "decimal", "dense_rank", "distinct", "else",
    "except", "exists", "exp", "extract", "filter", "first_value", "floor", "format", "from", "generate_series",
    "greatest", "group_concat", "grouping", "having", "hex", "hour", "if", "ifnull", "iif", "in", "instr",
    "intersect", "interval", "is", "isnull", "join", "json_agg", "json_array_length", "json_each", "json_extract",
    "json_object", "julianday", "lag", "last_value", "lateral", "lead", "least", "left", "length", "like", "limit",
    "ln", "log", "lower", "ltrim", "max", "md5", "median", "min", "minute", "mod", "month", "not", "now", "ntile",
    "nullif", "numeric", "offset", "on", "or", "over", "percentile_cont", "position", "power", "printf", "rank",
    "replace", "right", "rollup", "round", "row", "row_number", "rtrim", "second", "select", "sets", "some",
    "split_part", "sqrt", "stddev", "strftime", "string_agg", "strpos", "substr", "substring", "sum", "time", "trim",
    "union",
];

/// The rest of `PURE`.
#[rustfmt::skip]
const MORE_PURE: &[&str] = &[
    "to_char", "to_date", "to_timestamp", "total", "try_cast", "typeof", "unnest", "upper", "using", "values",
    "varchar", "variance", "when", "where", "with", "within", "year", "then",
];

/// Settings of SQLite and DuckDB that are read when no value follows.
#[rustfmt::skip]
const SETTINGS: &[&str] = &[
    "application_id", "collation_list", "compile_options", "database_list", "database_size", "encoding",
    "foreign_keys", "freelist_count", "journal_mode", "page_count", "page_size", "schema_version", "show_tables",
    "table_list", "user_version", "version",
];

/// Settings that take the name of a table or an index.
#[rustfmt::skip]
const SETTINGS_OF: &[&str] = &[
    "foreign_key_check", "foreign_key_list", "index_info", "index_list", "index_xinfo", "storage_info", "table_info",
    "table_xinfo",
];

/// Objects of `SHOW` and `DESCRIBE`. The list keeps out requests in plain English.
#[rustfmt::skip]
const OBJECTS: &[&str] = &[
    "catalogs", "charset", "collation", "columns", "database", "databases", "engines", "errors", "events", "fields",
    "function", "functions", "grants", "index", "indexes", "keys", "objects", "plugins", "procedures", "processlist",
    "roles", "schema", "schemas", "search_path", "server_version", "sequences", "stages", "status", "streams", "table",
    "tables", "timezone", "triggers", "users", "variables", "version", "view", "views", "warehouses", "warnings",
];

/// Words that may be in front of an object of `SHOW`.
const BEFORE_OBJECTS: &[&str] = &["create", "extended", "full", "global", "open", "session", "terse"];

/// Words that may be between `EXPLAIN` and its statement.
const PLANS: &[&str] = &["extended", "format", "json", "plan", "query", "text", "tree", "verbose", "yaml"];

/// The longest statement that is parsed.
const MAX_BYTES: usize = 64 * 1024;

/// Whether the statement in a call's arguments only reads.
pub(crate) fn is_plain_read(arguments: &Members) -> bool {
    let spelled =
        |name: &str| name.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_ascii_lowercase();
    let mut names = arguments.names().filter(|name| STATEMENT_ARGUMENTS.contains(&spelled(name).as_str()));
    let (Some(name), None) = (names.next(), names.next()) else { return false };
    let carries_more = arguments.names().any(|name| OTHER_CODE_ARGUMENTS.contains(&spelled(name).as_str()));
    let statement = arguments.text(name).filter(|_| !carries_more && arguments.has_unique_names());
    statement.is_some_and(|statement| statement.len() <= MAX_BYTES && reads(&statement))
}

/// A token of a statement.
#[derive(Debug, PartialEq, Eq)]
enum Token {
    /// A keyword, a name or a number, in lower case.
    Word(String),
    Quoted,
    Sign(char),
}

fn reads(statement: &str) -> bool {
    let Some(mut tokens) = tokens(statement) else { return false };
    while tokens.last() == Some(&Token::Sign(';')) {
        tokens.pop();
    }
    // A second statement, or an assignment.
    let is_one = !tokens.contains(&Token::Sign(';')) && !tokens.windows(2).any(|two| is_signs(two, ':', '='));
    let Some((Token::Word(first), rest)) = tokens.split_first().filter(|_| is_one) else { return false };
    match first.as_str() {
        "select" | "with" => selects(&tokens),
        "show" => is_shown(rest),
        "describe" | "desc" => is_described(rest),
        "explain" => selects(without_plan(rest)),
        "pragma" => is_setting(rest),
        _ => false,
    }
}

fn selects(tokens: &[Token]) -> bool {
    let has_select = tokens.iter().any(|token| is_word(token, &["select"]));
    // In some databases another statement follows `->>`; in others it takes a member of an object.
    let goes_on = tokens.windows(4).any(|four| {
        let is_arrow = is_signs(four, '-', '>') && four[2] == Token::Sign('>');
        is_arrow && !matches!(&four[3], Token::Quoted) && !is_number(&four[3])
    });
    tokens.first().is_some_and(|first| is_word(first, &["select", "with"])) && has_select && !goes_on && is_pure(tokens)
}

fn is_word(token: &Token, words: &[&str]) -> bool {
    matches!(token, Token::Word(word) if words.contains(&word.as_str()))
}

fn is_number(token: &Token) -> bool {
    matches!(token, Token::Word(word) if word.bytes().all(|digit| digit.is_ascii_digit()))
}

/// `TABLES`, `FULL COLUMNS FROM a.b`, `CREATE TABLE t`, `TABLES LIKE 'x'`, and nothing after that.
fn is_shown(tokens: &[Token]) -> bool {
    let (makes, objects) = match tokens {
        [before, rest @ ..] if is_word(before, BEFORE_OBJECTS) => (is_word(before, &["create"]), rest),
        _ => (false, tokens),
    };
    let Some((object, mut rest)) = objects.split_first().filter(|(object, _)| is_word(object, OBJECTS)) else {
        return false;
    };
    if makes {
        return is_word(object, &["database", "function", "schema", "table", "view"]) && named(rest) == Some(&[]);
    }
    while let [from, after @ ..] = rest
        && is_word(from, &["from", "in"])
    {
        let Some(after) = named(after) else { return false };
        rest = after;
    }
    match rest {
        [] => true,
        [like, Token::Quoted] => is_word(like, &["like"]),
        [limit, number] => is_word(limit, &["limit"]) && is_number(number),
        _ => false,
    }
}

/// A name or a query.
fn is_described(tokens: &[Token]) -> bool {
    let name = match tokens {
        [object, name @ ..] if is_word(object, OBJECTS) && !name.is_empty() => name,
        _ => tokens,
    };
    named(name) == Some(&[]) || selects(tokens)
}

/// The tokens after a name, which may have several parts.
fn named(tokens: &[Token]) -> Option<&[Token]> {
    let (Token::Word(_) | Token::Quoted, mut rest) = tokens.split_first()? else { return None };
    while let [Token::Sign('.'), Token::Word(_) | Token::Quoted, after @ ..] = rest {
        rest = after;
    }
    Some(rest)
}

/// The statement after `EXPLAIN` and its options. `EXPLAIN PLAN FOR` is not accepted: it stores the plan.
fn without_plan(tokens: &[Token]) -> &[Token] {
    let is_plan = |token: &Token| matches!(token, Token::Sign('(' | ')' | ',' | '=')) || is_word(token, PLANS);
    let until = tokens.iter().position(|token| !is_plan(token)).unwrap_or(tokens.len());
    &tokens[until..]
}

fn is_signs(two: &[Token], one: char, other: char) -> bool {
    two[0] == Token::Sign(one) && two[1] == Token::Sign(other)
}

/// Whether no token may write, and every called function is known to have no side effects.
fn is_pure(tokens: &[Token]) -> bool {
    tokens.iter().enumerate().all(|(at, token)| {
        let before = at.checked_sub(1).and_then(|at| tokens.get(at));
        let is_called = tokens.get(at + 1) == Some(&Token::Sign('('));
        let is_qualified = before == Some(&Token::Sign('.'));
        match token {
            Token::Word(word) if is_called => {
                let is_known = PURE.contains(&word.as_str()) || MORE_PURE.contains(&word.as_str());
                is_known && !is_qualified
            }
            // `NEXT VALUE FOR` takes a number from a sequence; `REPLACE INTO` writes.
            Token::Word(word) if word == "value" => !matches!(before, Some(Token::Word(next)) if next == "next"),
            Token::Word(word) => !WRITES.contains(&word.as_str()) && word != "replace",
            Token::Quoted => !is_called,
            Token::Sign(_) => true,
        }
    })
}

fn is_setting(tokens: &[Token]) -> bool {
    match tokens {
        [Token::Word(name)] => SETTINGS.contains(&name.as_str()),
        [Token::Word(name), Token::Sign('('), Token::Word(_) | Token::Quoted, Token::Sign(')')] => {
            SETTINGS_OF.contains(&name.as_str())
        }
        _ => false,
    }
}

/// The tokens of a statement. `None` where dialects disagree on where a token ends: backslashes, dollar quotes, nested or
/// executable comments, brackets, `#`, and characters that end a line or a word in only some dialects.
fn tokens(statement: &str) -> Option<Vec<Token>> {
    let is_odd =
        |sign: char| (sign.is_control() && !matches!(sign, '\n' | '\t')) || matches!(sign, '\u{2028}' | '\u{2029}');
    if statement.replace("\r\n", "\n").contains(is_odd) {
        return None;
    }
    let mut tokens = Vec::new();
    let mut rest = statement.chars().peekable();
    while let Some(sign) = rest.next() {
        let next = rest.peek().copied().unwrap_or(' ');
        match sign {
            _ if sign.is_ascii_whitespace() => {}
            '\\' | '#' | '[' | ']' => return None,
            _ if sign.is_whitespace() => return None,
            '$' if !next.is_ascii_digit() => return None,
            '\'' | '"' | '`' => {
                quoted(&mut rest, sign)?;
                tokens.push(Token::Quoted);
            }
            '-' if next == '-' => {
                rest.next();
                if rest.peek().is_some_and(|next| !next.is_ascii_whitespace()) {
                    return None;
                }
                rest.by_ref().find(|sign| *sign == '\n');
            }
            '/' if next == '*' => {
                rest.next();
                comment(&mut rest)?;
            }
            _ if sign.is_alphanumeric() || sign == '_' => {
                let mut word = String::from(sign);
                while let Some(sign) = rest.next_if(|sign| sign.is_alphanumeric() || *sign == '_') {
                    word.push(sign);
                }
                tokens.push(Token::Word(word.to_lowercase()));
            }
            _ => tokens.push(Token::Sign(sign)),
        }
    }
    Some(tokens)
}

type Rest<'a> = std::iter::Peekable<std::str::Chars<'a>>;

/// Skips to the closing quote. Two quotes inside are an escaped quote.
fn quoted(rest: &mut Rest<'_>, quote: char) -> Option<()> {
    loop {
        match rest.next()? {
            '\\' => return None,
            // Not all dialects quote with backticks.
            ';' | '\'' | '"' | '-' if quote == '`' => return None,
            sign if sign == quote && rest.next_if_eq(&quote).is_none() => return Some(()),
            _ => {}
        }
    }
}

/// Skips to the end of a comment. Some databases execute comments that begin with `!` or `+`.
fn comment(rest: &mut Rest<'_>) -> Option<()> {
    if matches!(rest.peek(), Some('!' | '+' | 'M')) {
        return None;
    }
    loop {
        match (rest.next()?, rest.peek()) {
            ('*', Some('/')) => {
                rest.next();
                return Some(());
            }
            ('/', Some('*')) => return None,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_that_only_read() {
        for statement in [
            "SELECT * FROM users",
            "select 1;",
            "  -- why\nSELECT count(*), max(a.b) FROM \"a\" WHERE c = 'it''s; DELETE' /* all */ ;",
            "WITH x AS (SELECT 1) SELECT * FROM x ORDER BY 1 LIMIT 5",
            "SELECT upper(replace(a, 'x', 'y')) FROM t WHERE id IN ($1, ?) AND b BETWEEN (1) AND 2",
            "SHOW TABLES",
            "EXPLAIN SELECT * FROM t",
            "EXPLAIN QUERY PLAN SELECT 1",
            "EXPLAIN (FORMAT JSON) SELECT * FROM t",
            "EXPLAIN FORMAT=JSON WITH x AS (SELECT 1) SELECT * FROM x",
            "SHOW FULL COLUMNS FROM `t` FROM a.b",
            "SHOW CREATE TABLE a.t",
            "SHOW TABLES LIKE 'a%'",
            "show search_path;",
            "DESCRIBE t",
            "DESC TABLE a.\"b\"",
            "SELECT 1 -- why\r\nFROM t",
            "SELECT a ->> 'b', a -> 1 FROM t",
            "PRAGMA table_info(users)",
            "PRAGMA user_version",
        ] {
            assert!(reads(statement), "{statement}");
        }
    }

    #[test]
    fn statements_that_write_or_may_write() {
        for statement in [
            "",
            "INSERT INTO t VALUES (1)",
            "SELECT 1; DELETE FROM t",
            "WITH x AS (DELETE FROM t RETURNING *) SELECT * FROM x",
            "WITH x AS (SELECT 1) INSERT INTO t SELECT * FROM x",
            "SELECT * INTO copy FROM t",
            "SELECT nextval('s')",
            "SELECT pg_terminate_backend(1)",
            "SELECT mine.count(1)",
            "SELECT \"count\"(1)",
            "SELECT NEXT VALUE FOR s",
            "SELECT * FROM t FOR UPDATE",
            "SELECT @a := 1",
            "SELECT 'a\\'; DELETE FROM t; --'",
            "SELECT 1 --1; DELETE FROM t",
            "SELECT 1 /*! INTO OUTFILE 'x' */",
            "SELECT 1 /* /* */ ; DELETE FROM t -- */",
            "SELECT $$a$$",
            "SELECT 'unfinished",
            "SELECT 1 # ; DELETE",
            "EXPLAIN ANALYZE DELETE FROM t",
            "EXPLAIN (ANALYZE, BUFFERS) DELETE FROM t",
            "EXPLAIN PLAN FOR SELECT 1",
            "PRAGMA user_version = 5",
            "PRAGMA user_version(5)",
            "PRAGMA journal_mode(WAL)",
            "PRAGMA wal_checkpoint",
            "MATCH (n) DELETE n",
            "how do I delete a table?",
            "FROM t",
        ] {
            assert!(!reads(statement), "{statement}");
        }
    }

    #[test]
    fn statements_that_write_in_one_dialect() {
        for statement in [
            "SELECT 1 -- \rDELETE FROM t",
            "SELECT 1 -- \r; DELETE FROM t\n",
            "SELECT 'a\rb'",
            "SELECT 1 -- \u{2028}DELETE FROM t",
            "SELECT 1 --\u{a0}; DELETE FROM t",
            "SELECT [a'] FROM t; DELETE FROM t --']",
            "SELECT 1 AS [\"]; DELETE FROM t; --\"",
            "SELECT ` ; DELETE FROM t ; SELECT `",
            "SELECT 1 BACKUP DATABASE a TO DISK = 'x'",
            "SELECT 1 RESTORE DATABASE a FROM DISK = 'x'",
            "SELECT 1 SHUTDOWN",
            "SELECT 1 DENY SELECT ON t TO bob",
            "SELECT 1 RECEIVE * FROM q",
            "SELECT 1 DISABLE TRIGGER a ON t",
            "SELECT 1 ENABLE TRIGGER a ON t",
            "SELECT 1 RECONFIGURE",
            "SELECT 1 KILL 53",
            "SELECT 1 DBCC SHRINKDATABASE",
            "SELECT 1 EXEC sp_x",
            "SELECT 1 WAITFOR DELAY '1:00'",
            "SELECT 1 USE other",
            "SELECT 1\nGO\n",
            "SELECT 1 END CONVERSATION @a",
            "SHOW TABLES ->> DELETE FROM t",
            "SELECT 1 ->> REMOVE @stage",
            "show me overdue invoices and email every customer a reminder",
            "show tables to every customer",
            "describe the invoices and email them",
            "explain to the customer that we refund",
            "SHOW",
            "DESCRIBE",
            "EXPLAIN QUERY PLAN DELETE FROM t",
            "EXPLAIN (ANALYZE) SELECT 1",
        ] {
            assert!(!reads(statement), "{statement}");
        }
    }

    #[test]
    fn the_statement_is_found_among_the_arguments() {
        for (arguments, expected) in [
            (r#"{"sql":"SELECT 1"}"#, true),
            (r#"{"sqlQuery":"SELECT 1","database":"x","limit":5}"#, true),
            (r#"{"query":"SELECT 1","statement":"DELETE FROM t"}"#, false),
            (r#"{"query":"SELECT 1","statements":["DELETE FROM t"]}"#, false),
            (r#"{"query":["SELECT 1"]}"#, false),
            (r#"{"text":"SELECT 1"}"#, false),
            (r#"{"query":"SELECT 1","Query":"DELETE FROM t"}"#, false),
            ("{}", false),
        ] {
            assert_eq!(is_plain_read(&Members::read(arguments).unwrap()), expected, "{arguments}");
        }
    }
}
