//! What a copy says about how far it has come.

use std::sync::Mutex;

use onceward::copy::{CopyProgress, Options, copy};

use crate::copy::{Cut, contents, fill, memory};

#[tokio::test]
async fn a_copy_that_is_continued_shows_what_was_copied_before() {
    let mut step = 0;
    // Cut off after the first step that leaves records in the target.
    let (from, to) = loop {
        let (from, to) = (memory("from"), memory("to"));
        fill(&from, 600).await;
        assert!(copy(&from, &Cut::around(&to, step, false), Options::default(), &|_| {}).await.is_err(), "{step}");
        if !contents(&to).await.is_empty() {
            break (from, to);
        }
        step += 1;
    };
    let (here, all) = (contents(&to).await.len() as u64, contents(&from).await.len() as u64);
    assert!(here < all);
    let shown = Mutex::new(Vec::new());
    let note = |progress| {
        if let CopyProgress::Copying { records, total } = progress {
            shown.lock().unwrap().push((records, total));
        }
    };
    copy(&from, &to, Options::default(), &note).await.unwrap();
    assert_eq!(*shown.lock().unwrap(), [(here, all), (all, all)]);
}
