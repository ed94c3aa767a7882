//! The identity of a call: keys, tenants, sessions and recipes, and which calls are refused.

use onceward::core::recipe::{Definition, Recipe};
use onceward::{Error, Failure, Ledger};
use serde_json::json;

use crate::{Effects, every_ledger};

#[tokio::test]
async fn an_effect_happens_once_and_every_repeat_gets_its_value() {
    for (ledger, _folder) in every_ledger().await {
        let effects = Effects::default();
        for attempt in 1..=5 {
            let effects = effects.clone();
            let done = ledger
                .operation("charge")
                .intent(&json!({"invoice": 7, "amount": 10}))
                .run(|_| async move { Ok(format!("receipt {}", effects.happen())) })
                .await
                .unwrap();
            assert_eq!((done.value.as_str(), done.replayed), ("receipt 1", attempt > 1));
            assert_eq!(done.expires_at.is_some(), attempt > 1);
        }
        assert_eq!(effects.count(), 1);
        assert_eq!((ledger.stats().acquired, ledger.stats().replayed), (1, 4));
    }
}

async fn receipt(ledger: &Ledger, build: impl FnOnce(onceward::CallBuilder) -> onceward::CallBuilder) -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let work = |_| async { Ok(NEXT.fetch_add(1, std::sync::atomic::Ordering::SeqCst)) };
    build(ledger.operation("charge")).run(work).await.unwrap().value
}

#[tokio::test]
async fn the_order_of_arguments_does_not_matter_and_their_values_do() {
    let ledger = Ledger::open("memory:").await.unwrap();
    let first = receipt(&ledger, |call| call.intent_json(br#"{"a": 1, "b": [2.0]}"#)).await;
    assert_eq!(first, receipt(&ledger, |call| call.intent_json(br#"{ "b":[2],"a":1 }"#)).await);
    assert_ne!(first, receipt(&ledger, |call| call.intent_json(br#"{"a": 1, "b": [3]}"#)).await);
    let big = receipt(&ledger, |call| call.intent_json(b"9007199254740993")).await;
    assert_ne!(big, receipt(&ledger, |call| call.intent_json(b"9007199254740992")).await);
}

#[tokio::test]
async fn tenants_operations_and_sessions_do_not_share_intents() {
    let ledger = Ledger::open("memory:").await.unwrap();
    let intent = json!({"invoice": 7});
    let receipts = [
        receipt(&ledger, |call| call.intent(&intent)).await,
        receipt(&ledger, |call| call.intent(&intent).tenant("acme")).await,
        receipt(&ledger, |call| call.intent(&intent).session("s1")).await,
        receipt(&ledger, |call| call.intent(&intent).session("s2")).await,
        receipt(&ledger, |_| ledger.operation("refund").intent(&intent)).await,
        receipt(&ledger, |_| ledger.consume("charge", "7")).await,
    ];
    let distinct: std::collections::BTreeSet<_> = receipts.iter().collect();
    assert_eq!(distinct.len(), receipts.len());
}

#[tokio::test]
async fn a_recipe_makes_a_reworded_memo_the_same_intent_and_another_amount_a_mismatch() {
    let definition: Definition = serde_json::from_value(json!({
        "key": ["/customer", "/invoice"], "match": ["/amount"], "normalise": ["trim"]
    }))
    .unwrap();
    let ledger = Ledger::builder().recipe("charge", Recipe::new(definition).unwrap()).open("memory:").await.unwrap();
    let first = receipt(&ledger, |call| {
        call.intent(&json!({"customer": "c", "invoice": 1, "amount": 10, "memo": "For the invoice"}))
    })
    .await;
    let again = json!({"customer": " c ", "invoice": 1, "amount": 10, "memo": "Payment of invoice 1"});
    assert_eq!(first, receipt(&ledger, |call| call.intent(&again)).await);

    let other = json!({"customer": "c", "invoice": 1, "amount": 11});
    let refused = ledger.operation("charge").intent(&other).run(|_| async { Ok(()) }).await;
    assert!(matches!(refused, Err(Error::Mismatch { .. })), "{refused:?}");

    let missing = ledger.operation("charge").intent(&json!({"customer": "c"})).run(|_| async { Ok(()) }).await;
    let message = missing.unwrap_err().to_string();
    assert!(message.contains("/invoice"), "{message}");
}

#[tokio::test]
async fn a_key_with_another_intent_is_a_mismatch() {
    for (ledger, _folder) in every_ledger().await {
        let call = |amount: u32| ledger.operation("charge").key("k").intent(&json!({"amount": amount}));
        call(10).run(|_| async { Ok(1) }).await.unwrap();
        let refused = call(11).run(|_| async { Ok(2) }).await;
        assert!(matches!(refused, Err(Error::Mismatch { .. })), "{refused:?}");
        assert_eq!(call(10).run(|_| async { Ok(3) }).await.unwrap().value, 1);
    }
}

#[tokio::test]
async fn bad_input_has_its_own_clear_error_and_never_reaches_the_store() {
    let ledger = Ledger::open("memory:").await.unwrap();
    let long = "x".repeat(256);
    let refused = [
        (ledger.operation("o").key(""), "the key is empty"),
        (ledger.operation("o").key(&long), "256"),
        (ledger.operation("o").key("a\nb"), "control character"),
        (ledger.operation("").key("k"), "the operation is empty"),
        (ledger.operation("o").key("k").tenant(""), "the tenant is empty"),
        (ledger.operation("o"), "needs a key or an intent"),
        (ledger.operation("o").intent_json(b"{\"a\":1,\"a\":2}"), "has the same name as an earlier one"),
        (ledger.operation("o").intent_json(b"{"), "the intent is refused"),
        (ledger.operation("o").intent_json(b"0.1000000000000000055"), "the intent is refused"),
        (ledger.operation("o").intent(&f64::NAN), "finite"),
    ];
    for (call, expected) in refused {
        let error = call.run(|_| async { Ok(()) }).await.unwrap_err();
        assert!(matches!(error, Error::Invalid(_)), "{error:?}");
        assert!(error.to_string().to_lowercase().contains(expected), "{error} should say: {expected}");
    }
    assert_eq!(ledger.counts().await.unwrap().0.len(), 0);
}

#[tokio::test]
async fn an_error_never_shows_the_key_or_the_intent() {
    let ledger = Ledger::open("memory:").await.unwrap();
    let call = |amount: u32| ledger.operation("charge").key("ana@example.org").intent(&json!({"secret": amount}));
    call(1).run(|_| async { Ok(()) }).await.unwrap();
    let error = call(2).run(|_| async { Ok(()) }).await.unwrap_err();
    let shown = format!("{error} {error:?} {:?}", call(2).call().unwrap());
    assert!(!shown.contains("ana@example.org") && !shown.contains("secret"), "{shown}");
    assert!(shown.contains("charge#"), "{shown}");
}

#[tokio::test]
async fn a_stored_value_of_another_type_is_an_error_and_not_a_second_run() {
    let ledger = Ledger::open("memory:").await.unwrap();
    ledger.operation("o").key("k").run(|_| async { Ok("text".to_owned()) }).await.unwrap();
    let other = ledger.operation("o").key("k").run(|_| async { Ok(7_u32) }).await;
    assert!(matches!(other, Err(Error::Unreadable { .. })), "{other:?}");
}

#[tokio::test]
async fn the_downstream_key_is_the_same_on_every_attempt_and_differs_between_intents() {
    let ledger = Ledger::open("memory:").await.unwrap();
    let key = async |tenant: &str, key: &str| {
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let call = ledger.operation("charge").tenant(tenant).key(key);
        let failed = call
            .run(|claim| async move {
                sender.send(claim.downstream_key().to_owned()).unwrap();
                Err::<(), _>(Failure::not_sent("refused"))
            })
            .await;
        assert!(failed.is_err());
        receiver.await.unwrap()
    };
    let first = key("a", "1").await;
    assert_eq!(first, key("a", "1").await);
    assert_ne!(first, key("a", "2").await);
    assert_ne!(first, key("b", "1").await);
    assert!(first.len() <= 255 && first.bytes().all(|byte| byte.is_ascii_graphic()));
}

#[tokio::test]
async fn with_a_client_key_every_field_of_the_recipe_must_match() {
    let definition: Definition =
        serde_json::from_value(json!({ "key": ["/customer", "/cents"], "match": ["/currency"] })).unwrap();
    let ledger = Ledger::builder().recipe("charge", Recipe::new(definition).unwrap()).open("memory:").await.unwrap();
    let call = |customer: &str, currency: &str, memo: &str| {
        let intent = json!({ "customer": customer, "cents": 10, "currency": currency, "memo": memo });
        ledger.operation("charge").key("client-key").intent(&intent)
    };
    call("a", "EUR", "x").run(|_| async { Ok(1) }).await.unwrap();
    assert!(call("a", "EUR", "reworded").run(|_| async { Ok(2) }).await.unwrap().replayed);
    for other in [call("b", "EUR", "x"), call("a", "USD", "x")] {
        let refused = other.run(|_| async { Ok(3) }).await;
        assert!(matches!(refused, Err(Error::Mismatch { .. })), "{refused:?}");
    }
}

#[tokio::test]
async fn the_order_of_builder_methods_does_not_matter() {
    use onceward::{InDoubt, OnError, Tier};
    let ledger = Ledger::builder()
        .policy("charge", onceward::Policy { in_doubt: InDoubt::Retry, ..onceward::Policy::default() })
        .open("memory:")
        .await
        .unwrap();
    let call = || ledger.operation("charge").key("k");
    let one = call().on_error(OnError::Doubt).tier(Tier::Notification).call().unwrap().policy;
    let other = call().tier(Tier::Notification).on_error(OnError::Doubt).call().unwrap().policy;
    assert_eq!(one, other);
    assert_eq!((one.on_error, one.tier, one.in_doubt), (OnError::Doubt, Some(Tier::Notification), InDoubt::Retry));
}

#[tokio::test]
async fn a_transactional_effect_is_refused_with_the_functions_that_can_have_one() {
    let ledger = Ledger::open("memory:").await.unwrap();
    let policy =
        onceward::Policy { effect: onceward::core::policy::Effect::Transactional, ..onceward::Policy::default() };
    let refused = ledger.operation("o").key("k").policy(policy).run(|_| async { Ok(()) }).await;
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("transactional") && refused.contains("onceward.claim"), "{refused}");
}
