//! The plot: pairs per second as bars, one panel per storage, in a self-contained SVG.
//!
//! It has its own background, so that it is readable on white and on dark pages. The scale is linear: the length of a bar is
//! its value.

use super::format::grouped;
use super::summary::spread;
use crate::figures::Spread;
use crate::plan::{Storage, System};
use crate::run::Results;

const WIDTH: f64 = 860.0;
/// The left end of bars; labels are left of it.
const LEFT: f64 = 262.0;
/// The length of the longest bar. Its value has to fit next to it.
const MAX_BAR: f64 = 450.0;
const ROW: f64 = 30.0;
const BAR: f64 = 18.0;
/// Above the first panel: the title and the line below it.
const HEAD: f64 = 74.0;
/// Around each panel: its title above, its axis below.
const PANEL_HEAD: f64 = 30.0;
const PANEL_FOOT: f64 = 44.0;
/// Below the last panel.
const FOOT: f64 = 12.0;
/// An axis has about this many steps.
const STEPS: f64 = 5.0;

/// Draws all measured storage.
pub fn draw(results: &Results) -> String {
    let mut body = String::new();
    let mut top = HEAD;
    for storage in Storage::ALL {
        let bars: Vec<(System, Spread)> = System::ALL
            .into_iter()
            .filter_map(|system| Some((system, spread(results, storage, system, |figures| figures.pairs_per_second)?)))
            .collect();
        if !bars.is_empty() {
            body.push_str(&panel(storage, &bars, top));
            top += PANEL_HEAD + bars.len() as f64 * ROW + PANEL_FOOT;
        }
    }
    let height = top + FOOT;
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" aria-label="Pairs of claim and finish per second" font-family="system-ui, 'Segoe UI', Helvetica, Arial, sans-serif" font-size="13" fill="#1f2328">
<rect x="0.5" y="0.5" width="{}" height="{}" rx="8" fill="#ffffff" stroke="#d0d7de"/>
<text x="20" y="32" font-size="17" font-weight="600">Claim + finish, pairs per second, {} callers</text>
<text x="20" y="53" fill="#59636e">Longer is better. The thin line spans the slowest to the fastest of {} rounds. Pale: not on disk when acknowledged.</text>
{body}</svg>
"##,
        WIDTH - 1.0,
        height - 1.0,
        results.callers,
        results.rounds,
    )
}

fn panel(storage: Storage, bars: &[(System, Spread)], top: f64) -> String {
    let most = bars.iter().map(|(_, pairs)| pairs.most).fold(1.0, f64::max);
    let step = step(most / STEPS);
    let scale = MAX_BAR / most;
    let first = top + PANEL_HEAD;
    let bottom = first + bars.len() as f64 * ROW;
    let title = match storage {
        Storage::Tmpfs => "tmpfs: a sync costs nothing, only the work counts",
        Storage::Disk => "disk: syncs dominate",
    };
    let mut text = format!("<text x=\"20\" y=\"{:.0}\" font-weight=\"600\">{title}</text>\n", top + 14.0);
    let ticks = (0..).map(|tick| f64::from(tick) * step).take_while(|value| *value <= most);
    for value in ticks {
        let x = LEFT + value * scale;
        text.push_str(&format!(
            "<line x1=\"{x:.1}\" y1=\"{first:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\" stroke=\"#e4e8ec\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"11\" fill=\"#59636e\">{}</text>\n",
            bottom + 16.0,
            grouped(value),
        ));
    }
    for (index, (system, pairs)) in bars.iter().enumerate() {
        text.push_str(&bar(*system, *pairs, first + index as f64 * ROW + ROW / 2.0, scale));
    }
    text
}

fn bar(system: System, pairs: Spread, middle: f64, scale: f64) -> String {
    let [median, least, most] = [pairs.median, pairs.least, pairs.most].map(|value| value * scale);
    let weight = if system == System::Onceward { 600 } else { 400 };
    format!(
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" font-weight=\"{weight}\">{}</text>\
         <rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{BAR}\" rx=\"2\" {}/>\
         <line x1=\"{:.1}\" y1=\"{middle:.1}\" x2=\"{:.1}\" y2=\"{middle:.1}\" stroke=\"#1f2328\"/>\
         <text x=\"{:.1}\" y=\"{:.1}\" font-weight=\"{weight}\">{}</text>\n",
        LEFT - 10.0,
        middle + 4.5,
        system.label().trim_end_matches([' ', '¹', '²']),
        middle - BAR / 2.0,
        median.max(1.0),
        fill(system),
        LEFT + least,
        LEFT + most,
        LEFT + most.max(median) + 8.0,
        middle + 4.5,
        grouped(pairs.median),
    )
}

/// Onceward, the engines, and the library on top of them. A system that is not durable is pale.
fn fill(system: System) -> &'static str {
    match system {
        System::Onceward => "fill=\"#0f766e\"",
        System::IdemkitRedis | System::IdemkitPostgres => "fill=\"#a16207\"",
        system if system.is_durable() => "fill=\"#57748f\"",
        _ => "fill=\"#d5dee7\" stroke=\"#57748f\" stroke-dasharray=\"3 2\"",
    }
}

/// A round step of at least this size: 1, 2 or 5 followed by zeros.
fn step(least: f64) -> f64 {
    let power = 10_f64.powf(least.max(1.0).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * power);
    steps.into_iter().find(|step| *step >= least).unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn steps_are_round() {
        for (least, wanted) in [(1.0, 1.0), (13_200.0, 20_000.0), (20_000.0, 20_000.0), (600.0, 1_000.0), (0.0, 1.0)] {
            assert!((step(least) - wanted).abs() < 1e-9, "{least}: {}", step(least));
        }
    }

    #[test]
    fn every_system_has_a_bar_as_long_as_its_value() {
        let drawing = draw(&example());
        assert_eq!(drawing.matches("rx=\"2\"").count(), 14);
        let widths: Vec<f64> = drawing
            .split("rx=\"2\"")
            .filter_map(|part| part.rsplit("width=\"").next()?.split('"').next()?.parse().ok())
            .take(2)
            .collect();
        assert!((widths[0] / widths[1] - 3.0).abs() < 0.01, "{widths:?}");
        // The fastest round has the maximum length; a bar ends at the median.
        assert!((widths[0] - MAX_BAR * 66.0 / 72.0).abs() < 0.1, "{widths:?}");
        assert!(drawing.contains(">66,000<") && drawing.contains(">2,200<"), "{drawing}");
        assert!(!drawing.contains('¹'));
    }

    #[test]
    fn a_storage_that_was_not_measured_has_no_panel() {
        let mut results = example();
        results.samples.retain(|sample| sample.storage == Storage::Disk);
        assert!(!draw(&results).contains("tmpfs"));
    }
}
