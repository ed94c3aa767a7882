//! `providers`: what is publicly known about providers.

use crate::test_folder::TestFolder;

#[test]
fn the_table_has_every_provider_with_sources_and_dates() {
    let folder = TestFolder::new();
    let answer = folder.onceward(&["providers"]);
    answer.says(0, &[]);
    for line in [
        "stripe: Stripe, API v1",
        "slack_webhook: Slack, incoming webhooks",
        "key             header `Idempotency-Key`",
        "key             field `/dedup_key` of the body",
        "key             none is documented",
        "longest key     255 characters",
        "proven refusals unknown: ",
        "https://docs.stripe.com/api/idempotent_requests (2026-11-19)",
    ] {
        assert!(answer.out().contains(line), "{line:?} is not in:\n{}", answer.out());
    }
    assert!(!folder.path("onceward.db").exists());
}

#[test]
fn one_provider_is_shown_by_its_name() {
    let answer = TestFolder::new().onceward(&["providers", "twilio"]);
    answer.says(0, &[]);
    assert!(answer.out().starts_with("twilio: ") && !answer.out().contains("stripe: "), "{}", answer.out());
}

#[test]
fn programs_get_the_facts_as_data() {
    let folder = TestFolder::new();
    let all = folder.json(&["providers", "--json"]);
    assert_eq!(all["providers"].as_array().unwrap().len(), 9);
    let stripe = &folder.json(&["providers", "stripe", "--json"])["providers"][0];
    assert_eq!(stripe["key"]["value"]["header"], "Idempotency-Key");
    assert_eq!(stripe["remembers_key"]["value"]["hours"], 24);
    assert_eq!(stripe["refusals"]["value"][0]["status"], 429);
    assert_eq!(stripe["key"]["sources"][0]["checked"], "2026-11-19");
    let slack = &folder.json(&["providers", "slack", "--json"])["providers"][0];
    assert_eq!((&slack["key"]["value"], &slack["refusals"]["status"]), (&"none_documented".into(), &"unknown".into()));
}

#[test]
fn an_unknown_provider_is_told_the_known_ones() {
    TestFolder::new().onceward(&["providers", "strip"]).says(64, &["unknown provider `strip`", "stripe"]);
}
