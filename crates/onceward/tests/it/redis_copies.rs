//! Whole ledgers moved into Redis and out of it.

use std::sync::Arc;

use onceward::clock::SystemClock;
use onceward::copy::{Options, Side, copy};
use onceward::store::memory::Memory;
use onceward::store::{Error, Inserted, Store};
use onceward::{Failure, Ledger};

use crate::redis::server;
use crate::redis_faults::{SINGLE, claim, event, made};

#[tokio::test(flavor = "multi_thread")]
async fn a_whole_ledger_moves_into_redis_and_out_again() {
    for variable in [SINGLE, "ONCEWARD_TEST_REDIS_CLUSTER"] {
        let Some(url) = server(variable) else { return };
        let side = |store: Arc<dyn Store>, name: &str| Side { store, name: name.to_owned() };
        let first = side(Arc::new(Memory::new(Arc::new(SystemClock))), "memory: 1");
        let middle = side(Arc::new(made(&url).await), "redis");
        let last = side(Arc::new(Memory::new(Arc::new(SystemClock))), "memory: 2");
        let ledger = |side: &Side| Ledger::builder().on(Arc::clone(&side.store));
        for number in 0..200 {
            let call = ledger(&first).operation("mail").tenant("acme").key(&format!("done-{number}"));
            call.run(|_| async move { Ok(number) }).await.unwrap();
        }
        let doubted = ledger(&first).operation("mail").key("doubt");
        assert!(doubted.run(|_| async { Err::<u32, _>(Failure::unknown("time-out")) }).await.is_err());
        let id = doubted.call().unwrap().identity.digest();
        first.store.append(id, event("ü")).await.unwrap();
        let counts = first.store.counts(None).await.unwrap();
        for (from, to) in [(&first, &middle), (&middle, &last)] {
            let copied = copy(from, to, Options::default(), &|_| {}).await.unwrap();
            let totals = copied.totals.unwrap();
            assert_eq!((totals.count(), totals.entries), (201, 1));
            assert_eq!(to.store.counts(None).await.unwrap(), counts);
            assert_eq!(to.store.trail(id).await.unwrap().len(), 1);
            let again = from.store.insert(claim("new", 1), None).await;
            assert!(matches!(again, Err(Error::Sealed { .. })), "{again:?}");
            let replayed = ledger(to).operation("mail").tenant("acme").key("done-7");
            let replayed = replayed.run(|_| async { Ok(0) }).await.unwrap();
            assert_eq!((replayed.value, replayed.replayed), (7, true));
        }
        // A ledger with records cannot receive a copy.
        let url = server(variable).unwrap();
        let filled = side(Arc::new(made(&url).await), "filled");
        filled.store.insert(claim("there", 1), None).await.unwrap();
        let error = copy(&last, &filled, Options::default(), &|_| {}).await.unwrap_err();
        assert!(error.to_string().contains("empty ledger"), "{error}");
        assert!(matches!(filled.store.insert(claim("next", 1), None).await.unwrap(), Inserted::Created { .. }));
    }
}
