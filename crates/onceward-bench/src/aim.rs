//! An aim that was fixed before the measurement, and whether it was met.

use serde::Serialize;

/// One aim and its measurement.
#[derive(Debug, Serialize)]
pub(super) struct Aim {
    pub(super) aim: &'static str,
    limit: f64,
    unit: Unit,
    /// Null if it was not measured.
    measured: Option<f64>,
    pub(super) met: Option<bool>,
    #[serde(skip)]
    at_least: bool,
}

#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Unit {
    Percent,
    Times,
    Us,
    Mb,
    Count,
}

impl Aim {
    pub(super) fn at_least(aim: &'static str, limit: f64, unit: Unit, measured: Option<f64>) -> Self {
        let met = measured.map(|measured| measured >= limit);
        Self { aim, limit, unit, measured, met, at_least: true }
    }

    pub(super) fn at_most(aim: &'static str, limit: f64, unit: Unit, measured: Option<f64>) -> Self {
        Self { aim, limit, unit, measured, met: measured.map(|measured| measured <= limit), at_least: false }
    }

    /// For people: the measured value, and by how much it missed the aim.
    pub(super) fn text(&self) -> String {
        let Some(measured) = self.measured else { return "not measured".to_owned() };
        let by = if self.at_least { self.limit - measured } else { measured - self.limit };
        let found = self.unit.format(measured);
        match self.met {
            Some(true) => format!("{found}, met"),
            _ => format!("{found}, MISSED by {}", self.unit.format(by)),
        }
    }
}

impl Unit {
    fn format(self, value: f64) -> String {
        match self {
            Self::Percent => format!("{value:.1} %"),
            Self::Times => format!("{value:.2} ×"),
            Self::Us => format!("{value:.1} µs"),
            Self::Mb => format!("{value:.1} MB"),
            Self::Count => format!("{value:.2}"),
        }
    }
}
