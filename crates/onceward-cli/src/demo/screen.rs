//! The output of the demo: redrawn in place on a terminal, plain lines anywhere else.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use super::plan::Plan;
use super::progress::{FaultRow, Progress};
use super::render::{self, Style, StyledLine, Symbols, WIDTH};

/// Pauses between payments add up to about this much on a terminal. With time-outs, probes and the steps of a
/// person, the demo then takes 15 seconds.
const PAYMENT_PAUSES: Duration = Duration::from_millis(10_500);
const PERSON_STEP: Duration = Duration::from_millis(1000);

/// Fewer payments take less time, not longer pauses.
const MAX_BEAT: Duration = Duration::from_millis(200);

/// A payment that meets a fault is shown as long as this many that do not.
const FAULT_WEIGHT: u32 = 6;

/// A live view with fewer rows would hide the faults.
const MIN_ROWS: usize = 3;

/// Pauses for the reader's eyes: no outcome depends on them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// After every payment.
    pub(super) payment: Duration,
    /// Before an agent retries or is started again.
    pub(super) retry: Duration,
    /// Between the steps of a person.
    pub(super) step: Duration,
}

/// Where the progress is shown.
#[derive(Debug)]
pub(super) struct Screen {
    live: Option<LiveView>,
    symbols: Symbols,
    colours: bool,
}

#[derive(Debug)]
struct LiveView {
    /// How many lines the last drawing has; the next one is drawn over it.
    drawn: usize,
    /// How many lines the terminal has.
    height: usize,
}

impl LiveView {
    /// How many faults fit: the terminal's lines without everything else, a blank line, the current activity, and
    /// the cursor.
    fn fault_rows(&self, progress: &Progress) -> usize {
        let symbols = Symbols::ASCII;
        let parts =
            [render::header(progress, symbols), render::strips(progress, symbols), render::totals(progress, symbols)];
        self.height.saturating_sub(parts.iter().map(Vec::len).sum::<usize>() + 3)
    }
}

impl Screen {
    /// Live on a terminal that is wide and high enough; plain everywhere else.
    pub(super) fn new(progress: &Progress) -> Self {
        let stdout = io::stdout();
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let is_terminal = stdout.is_terminal() && !is_dumb;
        let live = terminal_size::terminal_size_of(&stdout).filter(|_| is_terminal).and_then(|(width, height)| {
            let live = LiveView { drawn: 0, height: usize::from(height.0) };
            let fits = usize::from(width.0) > WIDTH && live.fault_rows(progress) >= MIN_ROWS;
            fits.then_some(live)
        });
        let colours = is_terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { live, symbols: Symbols::of_locale(), colours }
    }

    /// The pauses on this screen: none without a live view.
    pub(super) fn pace(&self, plan: &Plan) -> Pace {
        if self.live.is_none() {
            return Pace::default();
        }
        let faults = u32::try_from(plan.fault_count()).unwrap_or(u32::MAX);
        let payments = u32::try_from(plan.len()).unwrap_or(u32::MAX);
        let beats = payments.saturating_add(faults.saturating_mul(FAULT_WEIGHT)).max(1);
        let beat = (PAYMENT_PAUSES / beats).min(MAX_BEAT);
        Pace { payment: beat, retry: beat * (FAULT_WEIGHT - 1) / 2, step: PERSON_STEP }
    }

    /// Shows the beginning.
    pub(super) fn open(&mut self, progress: &Progress) -> io::Result<()> {
        if self.live.is_some() {
            self.write("\x1b[?25l")?;
            return self.update(progress);
        }
        self.lines(&render::header(progress, self.symbols))?;
        self.lines(&[StyledLine::default()])
    }

    /// Shows a change.
    pub(super) fn update(&mut self, progress: &Progress) -> io::Result<()> {
        let Some(live) = &self.live else { return Ok(()) };
        let hidden = progress.rows.len().saturating_sub(live.fault_rows(progress));
        let lines = self.frame(progress, &progress.rows[hidden..], Some(render::activity(progress)));
        self.draw(&lines)
    }

    /// Shows a payment that met a fault, once it has ended in all three worlds.
    pub(super) fn row(&mut self, progress: &Progress, row: &FaultRow) -> io::Result<()> {
        match self.live {
            Some(_) => self.update(progress),
            None => self.lines(&[render::row(progress, row)]),
        }
    }

    /// Shows the end of all payments: the last drawing stays.
    pub(super) fn close(&mut self, progress: &Progress) -> io::Result<()> {
        if self.live.is_none() {
            return self.lines(&render::totals(progress, self.symbols));
        }
        let lines = self.frame(progress, &progress.rows, None);
        self.draw(&lines)?;
        self.live = None;
        self.write("\x1b[?25h")
    }

    fn frame(&self, progress: &Progress, rows: &[FaultRow], activity: Option<StyledLine>) -> Vec<StyledLine> {
        let mut lines = render::header(progress, self.symbols);
        lines.extend(render::strips(progress, self.symbols));
        lines.push(StyledLine::default());
        lines.extend(rows.iter().map(|row| render::row(progress, row)));
        lines.extend(activity);
        lines.extend(render::totals(progress, self.symbols));
        lines
    }

    /// Adds lines below everything else.
    pub(super) fn lines(&mut self, lines: &[StyledLine]) -> io::Result<()> {
        let text: String = lines.iter().map(|line| line.render(self.colours) + "\n").collect();
        self.write(&text)
    }

    /// Adds a blank line and a paragraph.
    pub(super) fn paragraph(&mut self, text: &str) -> io::Result<()> {
        self.lines(&[StyledLine::default()])?;
        self.lines(&render::paragraph(Style::Plain, text))
    }

    /// Adds a numbered step.
    pub(super) fn step(&mut self, number: usize, text: &str) -> io::Result<()> {
        self.lines(&render::indented(Style::Plain, &format!("{number}. {text}"), render::STEP_INDENT))
    }

    fn draw(&mut self, lines: &[StyledLine]) -> io::Result<()> {
        let Some(live) = &mut self.live else { return Ok(()) };
        let mut text = String::new();
        if live.drawn > 0 {
            text.push_str(&format!("\x1b[{}A", live.drawn));
        }
        for line in lines {
            text.push_str(&format!("\r{}\x1b[K\n", line.render(self.colours)));
        }
        text.push_str("\x1b[J");
        live.drawn = lines.len();
        self.write(&text)
    }

    fn write(&self, text: &str) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        stdout.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.live.is_some() {
            // Interrupted: show the cursor again, and let the error message start on its own line.
            let _ = self.write("\x1b[?25h\n");
        }
    }
}
