//! From a scene to lines of text. Pure: no terminal, no clock.

use super::plan::Fault;
use super::scene::{Cell, Doing, Lane, Row, Scene};
use super::world::World;

/// What a piece of text means, for a terminal with colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Strong,
    Faint,
    Good,
    Bad,
    Held,
}

/// A line of text in pieces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line(Vec<(Tone, String)>);

/// Everything fits the 80 columns that every terminal has.
pub(super) const WIDTH: usize = 78;
const MARGIN: usize = 2;
const LABEL: usize = 24;
const COLUMN: usize = 18;

/// How many invoices a strip shows side by side.
const STRIP: usize = 12;

/// Characters that the terminal may not have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Glyphs {
    once: char,
    waiting: char,
    rule: char,
    none: &'static str,
    separator: &'static str,
}

impl Glyphs {
    pub(super) const UNICODE: Self = Self { once: '●', waiting: '·', rule: '─', none: "–", separator: "·" };
    pub(super) const ASCII: Self = Self { once: 'o', waiting: '.', rule: '-', none: "-", separator: "|" };

    /// Those that the locale allows.
    pub(super) fn of_locale() -> Self {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let locale = set("LC_ALL").or_else(|| set("LC_CTYPE")).or_else(|| set("LANG")).unwrap_or_default();
        let locale = locale.to_ascii_lowercase();
        if locale.contains("utf-8") || locale.contains("utf8") { Self::UNICODE } else { Self::ASCII }
    }
}

impl Line {
    /// An indented line in one piece.
    pub(super) fn new(tone: Tone, text: impl Into<String>) -> Self {
        Self::default().then(Tone::Plain, " ".repeat(MARGIN)).then(tone, text)
    }

    /// Adds a piece.
    pub(super) fn then(mut self, tone: Tone, text: impl Into<String>) -> Self {
        self.0.push((tone, text.into()));
        self
    }

    /// Adds a piece that is padded to a width.
    pub(super) fn padded(self, tone: Tone, text: &str, width: usize) -> Self {
        let padding = width.saturating_sub(text.chars().count());
        self.then(tone, text).then(Tone::Plain, " ".repeat(padding))
    }

    /// A label and one text for each world.
    fn across(tone: Tone, label: &str, of: impl Fn(usize) -> (Tone, String)) -> Self {
        let line = Self::new(Tone::Plain, "").padded(tone, label, LABEL);
        (0..3).fold(line, |line, lane| {
            let (tone, text) = of(lane);
            line.padded(tone, &text, COLUMN)
        })
    }

    /// The text as it is written: with ANSI colours, or bare.
    pub(super) fn render(&self, colours: bool) -> String {
        let mut text = String::new();
        for (tone, piece) in &self.0 {
            let code = match tone {
                _ if !colours || piece.trim().is_empty() => "",
                Tone::Plain => "",
                Tone::Strong => "1",
                Tone::Faint => "2",
                Tone::Good => "32",
                Tone::Bad => "1;31",
                Tone::Held => "33",
            };
            if code.is_empty() {
                text.push_str(piece);
            } else {
                text.push_str(&format!("\x1b[{code}m{piece}\x1b[0m"));
            }
        }
        text.truncate(text.trim_end_matches(' ').len());
        text
    }
}

/// Breaks a text into indented lines.
pub(super) fn paragraph(tone: Tone, text: &str) -> Vec<Line> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.is_empty() => line.push_str(word),
            Some(line) if line.chars().count() + 1 + word.chars().count() <= WIDTH - MARGIN => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines.into_iter().map(|line| Line::new(tone, line)).collect()
}

/// The title, what is going on, and the heads of the columns.
pub(super) fn opening(scene: &Scene, glyphs: Glyphs) -> Vec<Line> {
    let title = Line::new(Tone::Strong, "Onceward demo")
        .then(Tone::Faint, format!(" {} seed {}", glyphs.separator, scene.seed));
    let story = format!(
        "An agent pays {} invoices; some answers come too late or never. It tries again, crashes (kill -9) and \
         resumes. The same faults in three worlds:",
        scene.payments()
    );
    let heads = [["without Onceward", "with Onceward,", "with Onceward,"], ["", "keys honoured", "keys ignored"]];
    let mut lines = vec![title, Line::default()];
    lines.extend(paragraph(Tone::Plain, &story));
    lines.push(Line::default());
    lines.extend(heads.map(|head| Line::across(Tone::Plain, "", |lane| (Tone::Strong, head[lane].to_owned()))));
    lines
}

/// One character for each invoice.
pub(super) fn strips(scene: &Scene, glyphs: Glyphs) -> Vec<Line> {
    let legend = format!("{} once 2 twice ? held", glyphs.once);
    let mut lines = Vec::new();
    for start in (0..scene.payments()).step_by(STRIP) {
        let label = if start == 0 { legend.as_str() } else { "" };
        let mut line = Line::new(Tone::Plain, "").padded(Tone::Faint, label, LABEL);
        for lane in &scene.lanes {
            let cells = lane.cells.iter().skip(start).take(STRIP);
            let mut width = 0;
            for cell in cells {
                let (tone, glyph) = match cell {
                    Cell::Waiting => (Tone::Faint, glyphs.waiting),
                    Cell::Once => (Tone::Good, glyphs.once),
                    Cell::Twice => (Tone::Bad, '2'),
                    Cell::Held => (Tone::Held, '?'),
                };
                line = line.then(tone, glyph);
                width += 1;
            }
            line = line.then(Tone::Plain, " ".repeat(COLUMN - width));
        }
        lines.push(line);
    }
    lines
}

/// What became of a payment that met a fault.
pub(super) fn row(scene: &Scene, row: &Row) -> Line {
    Line::across(Tone::Plain, &named(&row.invoice, row.fault), |lane| {
        let (tone, text) = match scene.lanes[lane].cells[row.number] {
            Cell::Waiting => (Tone::Faint, ""),
            Cell::Once => (Tone::Good, "charged once"),
            Cell::Twice => (Tone::Bad, "charged twice"),
            Cell::Held => (Tone::Held, "held for you"),
        };
        (tone, text.to_owned())
    })
}

fn named(invoice: &str, fault: Fault) -> String {
    format!("{invoice}  {}", fault.words())
}

/// What is happening now.
pub(super) fn now(scene: &Scene) -> Line {
    let label = match &scene.now {
        None => String::new(),
        Some((invoice, None)) => invoice.clone(),
        Some((invoice, Some(fault))) => named(invoice, *fault),
    };
    Line::across(Tone::Plain, &label, |lane| {
        let (tone, text) = match scene.lanes[lane].doing {
            Doing::Idle => (Tone::Faint, ""),
            Doing::Charging => (Tone::Faint, "paying"),
            Doing::Again => (Tone::Plain, "no answer: again"),
            Doing::Killed => (Tone::Bad, "kill -9"),
            Doing::Resumed => (Tone::Plain, "resumed"),
            Doing::Paid => (Tone::Faint, "paid"),
            Doing::Held => (Tone::Held, "held"),
        };
        (tone, text.to_owned())
    })
}

/// The totals.
pub(super) fn table(scene: &Scene, glyphs: Glyphs) -> Vec<Line> {
    let number = |tone: Tone, count: usize| (if count == 0 { Tone::Plain } else { tone }, format!("{count:>3}"));
    let background = |label: &str, of: &dyn Fn(&Lane) -> usize| {
        Line::across(Tone::Faint, label, |lane| (Tone::Faint, format!("{:>3}", of(&scene.lanes[lane]))))
    };
    let counted = |label: &str, tone: Tone, cell: Cell| {
        Line::across(Tone::Strong, label, |lane| match &scene.lanes[lane] {
            // Without a ledger there is nobody who could hold anything.
            lane if cell == Cell::Held && lane.world == World::Bare => (Tone::Faint, format!("{:>3}", glyphs.none)),
            lane => number(tone, lane.count(cell)),
        })
    };
    let rule: String = std::iter::repeat_n(glyphs.rule, WIDTH - MARGIN).collect();
    vec![
        Line::new(Tone::Faint, rule),
        background("agent killed", &|lane| lane.kills),
        background("agent tried again", &|lane| lane.again),
        counted("charged once", Tone::Good, Cell::Once),
        counted("charged twice", Tone::Bad, Cell::Twice),
        counted("held for you", Tone::Held, Cell::Held),
        Line::across(Tone::Strong, "charged too much, EUR", |lane| {
            let cents = scene.lanes[lane].overcharged_cents;
            (if cents == 0 { Tone::Plain } else { Tone::Bad }, money(cents))
        }),
    ]
}

/// Euros with cents, in line with the counts above; a plain 0 when there is nothing.
fn money(cents: u64) -> String {
    match cents {
        0 => format!("{:>3}", 0),
        cents => format!("{:>3}.{:02}", cents / 100, cents % 100),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::plan::Plan;

    fn scene() -> Scene {
        let mut scene = Scene::new(7, &Plan::new(7, 24));
        scene.lanes[0].cells[0] = Cell::Twice;
        scene.lanes[2].cells[0] = Cell::Held;
        scene.lanes[0].overcharged_cents = 123_450;
        scene
    }

    #[test]
    fn nothing_is_wider_than_the_narrowest_terminal() {
        for glyphs in [Glyphs::UNICODE, Glyphs::ASCII] {
            let scene = scene();
            let row = Row { number: 0, invoice: "INV-1001".into(), fault: Fault::LateAnswer };
            let lines = [opening(&scene, glyphs), strips(&scene, glyphs), vec![super::row(&scene, &row), now(&scene)]];
            for line in lines.concat().iter().chain(&table(&scene, glyphs)) {
                let text = line.render(false);
                assert!(text.chars().count() <= 79, "{text}");
            }
        }
    }

    #[test]
    fn colours_are_left_out_when_they_are_not_wanted() {
        let line = Line::new(Tone::Bad, "charged twice");
        assert_eq!(line.render(false), "  charged twice");
        assert_eq!(line.render(true), "  \x1b[1;31mcharged twice\x1b[0m");
    }
}
