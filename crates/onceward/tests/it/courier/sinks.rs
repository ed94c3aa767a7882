//! What a sink and its route ask of a courier besides attempts.

use super::*;

#[tokio::test]
async fn an_attempt_that_awaits_a_person_is_not_repeated_even_under_retry() {
    for in_doubt in [InDoubt::Hold, InDoubt::Retry, InDoubt::Probe] {
        let ledger = ledger(Policy { in_doubt, ..Policy::default() }).await;
        let error = || "it asked for input".to_owned();
        let sink = Scripted::new(move |_, _| SinkResult::AwaitsPerson { error: error(), health: Health::Working });
        queue(&ledger, "a").await;
        deliver_until(&ledger, quick(sink.clone()), async || status(&ledger, "a").await == Some(Status::InDoubt)).await;
        let looks = AtomicUsize::new(0);
        deliver_until(&ledger, quick(sink.clone()), async || looks.fetch_add(1, Ordering::SeqCst) > 100).await;
        assert_eq!((sink.calls(), sink.looked_up.load(Ordering::SeqCst)), (1, 0), "{in_doubt:?}");
    }
}

#[tokio::test]
async fn a_courier_that_stops_closes_its_sinks() {
    let ledger = ledger(Policy::default()).await;
    let sink = Scripted::new(|_, _| delivered());
    queue(&ledger, "a").await;
    deliver_until(&ledger, quick(sink.clone()), async || status(&ledger, "a").await == Some(Status::Done)).await;
    assert_eq!(sink.closed.load(Ordering::SeqCst), 1);
    Courier::new(ledger.clone()).route(MAIL, quick(sink.clone())).unwrap().run_until_idle().await;
    assert_eq!(sink.closed.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn an_outcome_over_the_limit_of_the_route_is_done_and_not_kept() {
    let ledger = ledger(Policy::default()).await;
    let sink = Scripted::new(|_, _| delivered());
    queue(&ledger, "a").await;
    let route = Route { keep_limit: 3, ..quick(sink.clone()) };
    deliver_until(&ledger, route, async || status(&ledger, "a").await == Some(Status::Done)).await;
    let again = queue(&ledger, "a").await;
    assert!(matches!(again, Enqueued::Existing(Decision::OutcomeNotKept { .. })), "{again:?}");
}

#[tokio::test]
async fn a_sink_that_panics_leaves_a_doubt_and_the_courier_goes_on() {
    let ledger = ledger(Policy::default()).await;
    let sink = Scripted::new(|parcel, _| match parcel.identity.key.as_str() {
        "poison" => panic!("a bug in the sink"),
        _ => delivered(),
    });
    queue(&ledger, "poison").await;
    queue(&ledger, "letter").await;
    deliver_until(&ledger, quick(sink.clone()), async || {
        let both = (status(&ledger, "poison").await, status(&ledger, "letter").await);
        both == (Some(Status::InDoubt), Some(Status::Done))
    })
    .await;
}
