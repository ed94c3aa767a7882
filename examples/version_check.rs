//! Optimistic version checks: an edit holds only if the document still has the version that its author read. The check decides
//! between different edits; the ledger keeps the retry of an edit from conflicting with itself.
//!
//! `cargo run -p onceward --example version_check`

// An example talks to its reader.
#![allow(clippy::print_stdout)]

use onceward::blocking::{Claim, Ledger};
use onceward::{Done, Error, Failure, InDoubt};
use rusqlite::{Connection, OptionalExtension, params};
use serde::Serialize;

/// An edit is the same if document, version and new text are the same.
#[derive(Serialize)]
struct Edit {
    document: u32,
    expected_version: u32,
    text: &'static str,
}

/// Writes the edit, and the key of its intent, in one conditional update.
fn write(documents: &Connection, edit: &Edit, claim: &Claim) -> Result<u32, Failure> {
    let next = edit.expected_version + 1;
    let updated = documents.execute(
        "UPDATE document SET version = ?1, text = ?2, edit = ?3 WHERE id = ?4 AND version = ?5",
        params![next, edit.text, claim.downstream_key(), edit.document, edit.expected_version],
    )?;
    if updated == 1 {
        return Ok(next);
    }
    // Another edit came first. It may be an earlier attempt of this edit whose answer was lost: the row has the key.
    let (version, by): (u32, String) = documents
        .query_row("SELECT version, edit FROM document WHERE id = ?1", [edit.document], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .optional()?
        .ok_or_else(|| Failure::permanent("the document does not exist"))?;
    if version == next && by == claim.downstream_key() {
        return Ok(next);
    }
    // Final: this edit can never hold. Its author has to read again and make another edit.
    Err(Failure::permanent(format!("conflict: the document has version {version} by now")))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let documents = Connection::open(folder.path().join("documents.db"))?;
    documents.execute_batch(
        "CREATE TABLE document (id INTEGER PRIMARY KEY, version INTEGER, text TEXT, edit TEXT);
         INSERT INTO document VALUES (1, 1, 'draft', '');",
    )?;
    let ledger = Ledger::open(folder.path().join("ledger.db"))?;
    let mut writes = 0;
    let mut save = |edit: &Edit, answer_is_lost: bool| -> Result<Done<u32>, Error> {
        // The row says whether an earlier attempt was ours, so trying again is safe.
        let call = ledger.operation("edit_document").in_doubt(InDoubt::Retry).intent(edit);
        call.run(|claim| {
            writes += 1;
            let version = write(&documents, edit, &claim)?;
            if answer_is_lost { Err(Failure::unknown("connection lost after COMMIT")) } else { Ok(version) }
        })
    };
    let conflict = |result: Result<Done<u32>, Error>| match result {
        Err(Error::Failed { failure, replayed, .. }) => (failure.message().to_owned(), replayed),
        other => (format!("no conflict: {other:?}"), false),
    };
    let edit = |expected_version, text| Edit { document: 1, expected_version, text };

    // Ana and Ben both read version 1. Ana saves first; her retry does not conflict with her own edit.
    let ana = edit(1, "Ana's words");
    assert_eq!(save(&ana, false)?.value, 2);
    let again = save(&ana, false)?;
    assert!(again.replayed && again.value == 2);
    println!("Ana saves, and repeats herself: version {}", again.value);

    // Ben lost the race. He gets a conflict, and the same conflict when he tries again, without another read of the table.
    let ben = edit(1, "Ben's words");
    let told = "conflict: the document has version 2 by now".to_owned();
    assert_eq!(conflict(save(&ben, false)), (told.clone(), false));
    assert_eq!(conflict(save(&ben, false)), (told.clone(), true));
    println!("Ben saves on an old version:    {told}");

    // He reads again and saves on version 2. The answer is lost; he tries again, and finds his own edit.
    let ben = edit(2, "Ana's words, and Ben's");
    assert!(save(&ben, true).is_err());
    let saved = save(&ben, false)?;
    assert_eq!((saved.value, saved.replayed), (3, false));
    println!("Ben reads again and saves:      version {}, although one answer was lost", saved.value);

    // A conflict stays a conflict, although the document has changed since.
    assert_eq!(conflict(save(&edit(1, "Ben's words"), false)), (told, true));
    let (version, text): (u32, String) =
        documents.query_row("SELECT version, text FROM document", [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    assert_eq!((version, text.as_str()), (3, "Ana's words, and Ben's"));
    assert_eq!(writes, 4, "repeats of settled edits do not touch the table");
    Ok(())
}
