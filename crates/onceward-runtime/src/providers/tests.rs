//! The data is complete, and in the form that sinks and probes take.

use std::collections::BTreeSet;

use onceward::core::json::Pointer;

use super::*;

/// Every fact of a provider as JSON, with the name of its field.
fn facts(provider: &Provider) -> Vec<(String, serde_json::Value)> {
    let value = serde_json::to_value(provider).unwrap();
    let fields = value.as_object().unwrap().clone();
    fields.into_iter().filter(|(_, value)| value.get("status").is_some()).collect()
}

fn is_pointer_to_a_field(pointer: &str) -> bool {
    Pointer::parse(pointer).is_ok_and(|pointer| !pointer.segments().is_empty())
}

#[test]
fn a_provider_is_found_by_its_name() {
    for provider in ALL {
        assert_eq!(Provider::named(provider.name).unwrap().title, provider.title);
    }
    let names: BTreeSet<_> = ALL.iter().map(|provider| provider.name).collect();
    assert_eq!(names.len(), ALL.len());
    assert!(Provider::named("Stripe").is_none());
}

#[test]
fn every_fact_has_a_source_with_a_date() {
    for provider in ALL {
        let facts = facts(provider);
        assert!(facts.len() >= 7, "{}", provider.name);
        for (field, fact) in facts {
            let place = format!("{}.{field}", provider.name);
            if fact["status"] == "not_applicable" {
                assert_eq!(fact["note"], "there is no key", "{place}");
                continue;
            }
            let sources = fact["sources"].as_array().unwrap();
            assert!(!sources.is_empty(), "{place} has no source");
            for source in sources {
                assert!(source["url"].as_str().unwrap().starts_with("https://"), "{place}");
                let checked = source["checked"].as_str().unwrap();
                let is_date = checked.len() == 10 && checked.split('-').map(str::len).eq([4, 2, 2]);
                assert!(is_date, "{place}: {checked}");
            }
        }
    }
}

#[test]
fn only_what_a_missing_key_leaves_open_does_not_apply() {
    for provider in ALL {
        let has_no_key = matches!(provider.key.value(), Some(KeyPlace::NoneDocumented));
        for (field, fact) in facts(provider) {
            let about_key = ["longest_key", "remembers_key", "failed_answers"].contains(&field.as_str());
            let does_not_apply = fact["status"] == "not_applicable";
            assert_eq!(does_not_apply, about_key && has_no_key, "{}.{field}", provider.name);
        }
    }
}

#[test]
fn keys_pointers_and_headers_have_the_form_that_sinks_take() {
    for provider in ALL {
        match provider.key.value() {
            Some(KeyPlace::Header(name)) => assert!(name.parse::<http::HeaderName>().is_ok(), "{name}"),
            Some(KeyPlace::Body(pointer)) => assert!(is_pointer_to_a_field(pointer), "{pointer}"),
            Some(KeyPlace::NoneDocumented) | None => assert_eq!(provider.downstream_key(), None),
        }
        match provider.reference.value() {
            Some(ReferencePlace::Header(name)) => assert!(name.parse::<http::HeaderName>().is_ok(), "{name}"),
            Some(ReferencePlace::Body(pointer)) => assert!(is_pointer_to_a_field(pointer), "{pointer}"),
            Some(ReferencePlace::NotGiven) | None => {}
        }
        if let Some(failure) = provider.body_failure.as_ref().and_then(Fact::value) {
            assert!(is_pointer_to_a_field(failure.pointer) && is_pointer_to_a_field(failure.error));
            assert!(serde_json::from_str::<serde_json::Value>(failure.fails_if).is_ok());
        }
    }
}

#[test]
fn a_downstream_key_fits_into_every_provider_that_takes_one() {
    let downstream_key = format!("once_v1_{}", "0".repeat(32));
    for provider in ALL {
        if let Some(longest) = provider.longest_key.value() {
            assert!(downstream_key.len() <= usize::from(*longest), "{}", provider.name);
        }
        assert!(!downstream_key.contains('.'));
    }
}

#[test]
fn a_proof_has_a_status_of_a_failure() {
    for provider in ALL {
        for proof in provider.refusals.value().into_iter().flat_map(|proofs| proofs.iter()) {
            assert!((400..600).contains(&proof.status), "{}", provider.name);
            // Nothing proves that an overloaded or broken server did nothing.
            assert!(proof.status < 500 && proof.status != 408, "{}", provider.name);
        }
    }
    assert_eq!(Provider::named("twilio").unwrap().retryable_refusals().collect::<Vec<_>>(), [429]);
    assert_eq!(Provider::named("slack_webhook").unwrap().retryable_refusals().count(), 0);
}

#[test]
fn a_probe_asks_for_the_key_at_the_host_of_the_provider() {
    let mut probes = 0;
    for provider in ALL {
        let Some(probe) = provider.probe() else { continue };
        probes += 1;
        assert!(probe.url.starts_with("https://") && probe.url.matches("{{ key }}").count() == 1, "{}", provider.name);
        assert!(probe.mark.is_empty() || probe.mark.contains("{{ key }}"), "{}", provider.name);
        assert!(is_pointer_to_a_field(probe.found), "{}", provider.name);
        let url = probe.url.replace("{{ key }}", "once_v1_0");
        let uri: http::Uri = url.parse().unwrap();
        let host = uri.host().unwrap();
        let domain = host.split_once('.').unwrap().1;
        assert!(provider.request.contains(domain), "{}: {host}", provider.name);
    }
    assert_eq!(probes, 3);
}

#[test]
fn what_is_known_becomes_settings() {
    let stripe = Provider::named("stripe").unwrap();
    assert_eq!(stripe.downstream_key().as_deref(), Some("header:Idempotency-Key"));
    assert_eq!(stripe.honours_key_for(), Some(Duration::from_secs(86_400)));
    let pagerduty = Provider::named("pagerduty").unwrap();
    assert_eq!(pagerduty.downstream_key().as_deref(), Some("body:/dedup_key"));
    assert_eq!(pagerduty.honours_key_for(), None);
    assert_eq!(Provider::named("postmark").unwrap().downstream_key(), None);
    assert_eq!(Provider::named("slack_webhook").unwrap().downstream_key(), None);
}

#[test]
fn the_table_says_what_is_unknown_and_where_each_fact_is_from() {
    let text = text(&ALL);
    for provider in ALL {
        assert!(text.contains(&format!("{}: {}\n", provider.name, provider.title)));
    }
    assert!(
        text.contains("unknown: ") && text.contains("https://docs.stripe.com/api/idempotent_requests (2026-11-19)")
    );
    assert!(!text.contains("..") && !text.contains("  \n"));
    assert!(!text.lines().any(|line| line.ends_with(' ')));
}

#[test]
fn every_provider_has_a_section_and_every_row_three_cells() {
    let page = page();
    for provider in ALL {
        assert!(page.contains(&format!("\n## {} (`{}`)\n", provider.title, provider.name)));
    }
    for row in page.lines().filter(|line| line.starts_with('|')) {
        assert_eq!(row.matches('|').count(), 4, "{row}");
    }
}
