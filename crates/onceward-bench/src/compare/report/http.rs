//! The gateway under load, as Markdown: a section for the results and one for the aims.

use super::format::{grouped, micros, number};
use crate::http::{Aim, Case, Http};

/// Every case: its name in the output of the command and its label on the page, in the order of the table.
const CASES: [(&str, &str); 7] = [
    ("echo", "bare echo (axum)"),
    ("nginx", "nginx → echo"),
    ("unguarded", "gateway → echo, unguarded"),
    ("guarded", "gateway → echo, guarded: a new key each time"),
    ("replay_one", "gateway, replays of one key"),
    ("replay_many", "gateway, replays of 1,024 keys"),
    ("store_pair", "the store's pair alone, without HTTP"),
];

/// The section with the results; empty if the gateway was not measured.
pub fn section(http: Option<&Http>) -> String {
    let Some(http) = http else { return String::new() };
    let nginx =
        http.nginx.as_ref().map(|version| format!(" nginx {version} with as many workers.")).unwrap_or_default();
    let mut text = format!(
        "### The gateway\n\n`onceward bench http` on tmpfs: {} connections with one request at a time on each, {} rounds of \
         {} s per case, interleaved. {} threads per server.{nginx} CPU is the processor time of the server under test, \
         without the service behind it and without the load generator.\n\n\
         | | requests/s | p50 / p99 | CPU per request |\n|---|--:|--:|--:|\n",
        http.connections,
        http.rounds,
        number(http.seconds / http.rounds.max(1) as f64).trim_end_matches('0').trim_end_matches('.'),
        http.threads,
    );
    text.extend(CASES.iter().filter_map(|(name, label)| Some(row(label, http.cases.get(*name)?))));
    if let Some((idle, after)) = http.idle.as_ref().and_then(|idle| Some((idle, idle.after_mb?))) {
        let before = idle.before_mb.map(|before| format!("; before, {before:.0} MB")).unwrap_or_default();
        text.push_str(&format!(
            "\nWith {} idle connections the gateway uses {after:.0} MB of memory{before}.\n",
            grouped(idle.connections as f64)
        ));
    }
    text
}

/// The section with the aims; empty if the gateway was not measured.
pub fn aims(http: Option<&Http>) -> String {
    let Some(http) = http else { return String::new() };
    let mut text = "## The gateway\n\n| aim | measured | |\n|---|--:|---|\n".to_owned();
    text.extend(http.aims.iter().map(aim_row));
    text
}

fn row(label: &str, case: &Case) -> String {
    format!(
        "| {label} | {} | {} / {} | {} |\n",
        grouped(case.requests_per_second),
        micros(case.p50_us),
        micros(case.p99_us),
        case.cpu_us_per_request.map(|cpu| format!("{} µs", number(cpu))).unwrap_or_default(),
    )
}

fn aim_row(aim: &Aim) -> String {
    let found = aim.measured.map(|value| match aim.unit.as_str() {
        "percent" => format!("{value:.0} %"),
        "times" => format!("{} ×", number(value)),
        "us" => format!("{value:.0} µs"),
        _ => format!("{} MB", grouped(value)),
    });
    let met = match aim.met {
        Some(true) => "met",
        Some(false) => "**missed**",
        None => "",
    };
    format!("| {} | {} | {met} |\n", aim.aim, found.as_deref().unwrap_or("not measured in this run"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> Http {
        // As the command prints it.
        serde_json::from_str(
            r#"{"store": "file:b.db", "connections": 64, "rounds": 5, "seconds": 5.0, "threads": 2, "nginx": "1.22.1",
                "cases": {"echo": {"requests_per_second": 53874.2, "p50_us": 1032.0, "p99_us": 3694.0, "cpu_us_per_request": 17.7},
                          "guarded": {"requests_per_second": 9136.0, "p50_us": 6458.0, "p99_us": 18149.0, "cpu_us_per_request": null}},
                "idle": {"connections": 5000, "before_mb": 20.1, "after_mb": 196.2, "not_measured": null},
                "aims": [{"aim": "replays", "limit": 70.0, "unit": "percent", "measured": 89.2, "met": true},
                         {"aim": "pass-through", "limit": 1.5, "unit": "times", "measured": 1.52, "met": false},
                         {"aim": "guarded", "limit": 40.0, "unit": "us", "measured": null, "met": null}]}"#,
        )
        .unwrap()
    }

    #[test]
    fn the_output_of_the_command_is_on_the_pages() {
        let text = section(Some(&example())) + &aims(Some(&example()));
        for line in [
            "64 connections with one request at a time on each, 5 rounds of 1 s per case",
            "2 threads per server. nginx 1.22.1 with as many workers.",
            "| bare echo (axum) | 53,874 | 1.03 ms / 3.69 ms | 17.7 µs |",
            "| gateway → echo, guarded: a new key each time | 9,136 | 6.46 ms / 18.1 ms |  |",
            "With 5,000 idle connections the gateway uses 196 MB of memory; before, 20 MB.",
            "| replays | 89 % | met |",
            "| pass-through | 1.52 × | **missed** |",
            "| guarded | not measured in this run |  |",
        ] {
            assert!(text.contains(line), "{line:?} is not in:\n{text}");
        }
        assert!(!text.contains("| nginx →"), "{text}");
    }

    #[test]
    fn a_run_without_the_gateway_has_no_section() {
        assert_eq!((section(None), aims(None)), (String::new(), String::new()));
    }
}
