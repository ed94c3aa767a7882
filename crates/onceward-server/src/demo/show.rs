//! Two ways to show a scene: redrawn in place on a terminal, or as plain lines anywhere else.

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use super::paint::{self, Glyphs, Line, Tone, WIDTH};
use super::plan::Plan;
use super::scene::{Row, Scene};

/// The payments take about this long on a terminal, the settling about a third of it: 15 seconds in all.
const PAYMENTS_TAKE: Duration = Duration::from_millis(12_000);
const SETTLING_STEP: Duration = Duration::from_millis(1100);

/// Few payments take less time, not longer pauses.
const LONGEST_BEAT: Duration = Duration::from_millis(200);

/// A payment that meets a fault is shown as long as this many that do not.
const FAULT_WEIGHT: u32 = 6;

/// A live view smaller than this would hide what it is for.
const LEAST_ROWS: usize = 3;

/// How fast things happen. Only for the eyes: no outcome depends on it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// After every payment.
    pub(super) payment: Duration,
    /// Before an agent tries again or is started again.
    pub(super) again: Duration,
    /// Between the steps of settling.
    pub(super) step: Duration,
}

/// Where the scene is shown.
#[derive(Debug)]
pub(super) struct Show {
    live: Option<Live>,
    glyphs: Glyphs,
    colours: bool,
}

#[derive(Debug)]
struct Live {
    /// How many lines the last drawing has; the next one goes over it.
    drawn: usize,
    /// How many lines the terminal has.
    height: usize,
}

impl Live {
    /// How many faults can be shown: what is left of the terminal beside everything else, a blank line, what is
    /// happening now, and the cursor.
    fn room(&self, scene: &Scene) -> usize {
        let glyphs = Glyphs::ASCII;
        let parts = [paint::opening(scene, glyphs), paint::strips(scene, glyphs), paint::table(scene, glyphs)];
        self.height.saturating_sub(parts.iter().map(Vec::len).sum::<usize>() + 3)
    }
}

impl Show {
    /// Live on a terminal that is wide and high enough; plain everywhere else.
    pub(super) fn new(scene: &Scene) -> Self {
        let stdout = io::stdout();
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let terminal = stdout.is_terminal() && !dumb;
        let live = terminal_size::terminal_size_of(&stdout).filter(|_| terminal).and_then(|(width, height)| {
            let live = Live { drawn: 0, height: usize::from(height.0) };
            let fits = usize::from(width.0) > WIDTH && live.room(scene) >= LEAST_ROWS;
            fits.then_some(live)
        });
        let colours = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { live, glyphs: Glyphs::of_locale(), colours }
    }

    /// How fast things should happen here.
    pub(super) fn pace(&self, plan: &Plan) -> Pace {
        if self.live.is_none() {
            return Pace::default();
        }
        let faults = u32::try_from(plan.faults()).unwrap_or(u32::MAX);
        let payments = u32::try_from(plan.len()).unwrap_or(u32::MAX);
        let beats = payments.saturating_add(faults.saturating_mul(FAULT_WEIGHT)).max(1);
        let beat = (PAYMENTS_TAKE / beats).min(LONGEST_BEAT);
        Pace { payment: beat, again: beat * (FAULT_WEIGHT - 1) / 2, step: SETTLING_STEP }
    }

    /// The beginning.
    pub(super) fn open(&mut self, scene: &Scene) -> io::Result<()> {
        if self.live.is_some() {
            self.write("\x1b[?25l")?;
            return self.update(scene);
        }
        self.lines(&paint::opening(scene, self.glyphs))?;
        self.lines(&[Line::default()])
    }

    /// Something has changed.
    pub(super) fn update(&mut self, scene: &Scene) -> io::Result<()> {
        let Some(live) = &self.live else { return Ok(()) };
        let hidden = scene.rows.len().saturating_sub(live.room(scene));
        let lines = self.frame(scene, &scene.rows[hidden..], Some(paint::now(scene)));
        self.draw(&lines)
    }

    /// A payment that met a fault is through in all three worlds.
    pub(super) fn row(&mut self, scene: &Scene, row: &Row) -> io::Result<()> {
        match self.live {
            Some(_) => self.update(scene),
            None => self.lines(&[paint::row(scene, row)]),
        }
    }

    /// All payments are through: what is shown now stays.
    pub(super) fn close(&mut self, scene: &Scene) -> io::Result<()> {
        if self.live.is_none() {
            return self.lines(&paint::table(scene, self.glyphs));
        }
        let lines = self.frame(scene, &scene.rows, None);
        self.draw(&lines)?;
        self.live = None;
        self.write("\x1b[?25h")
    }

    fn frame(&self, scene: &Scene, rows: &[Row], now: Option<Line>) -> Vec<Line> {
        let mut lines = paint::opening(scene, self.glyphs);
        lines.extend(paint::strips(scene, self.glyphs));
        lines.push(Line::default());
        lines.extend(rows.iter().map(|row| paint::row(scene, row)));
        lines.extend(now);
        lines.extend(paint::table(scene, self.glyphs));
        lines
    }

    /// Text under everything else.
    pub(super) fn lines(&mut self, lines: &[Line]) -> io::Result<()> {
        let text: String = lines.iter().map(|line| line.render(self.colours) + "\n").collect();
        self.write(&text)
    }

    /// A paragraph under everything else.
    pub(super) fn paragraph(&mut self, text: &str) -> io::Result<()> {
        self.lines(&[Line::default()])?;
        self.lines(&paint::paragraph(Tone::Plain, text))
    }

    fn draw(&mut self, lines: &[Line]) -> io::Result<()> {
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

impl Drop for Show {
    fn drop(&mut self) {
        if self.live.is_some() {
            // Interrupted: the cursor comes back, and what is said next starts on a line of its own.
            let _ = self.write("\x1b[?25h\n");
        }
    }
}
