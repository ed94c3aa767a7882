//! Formats numbers for people.

/// An integer with thousands separators; three significant digits below a hundred.
pub fn number(value: f64) -> String {
    match value {
        value if value.abs() < 9.95 => format!("{value:.2}"),
        value if value.abs() < 99.5 => format!("{value:.1}"),
        value => grouped(value),
    }
}

/// An integer with thousands separators.
pub fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = if value < 0.0 { "-".to_owned() } else { String::new() };
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A duration given in microseconds.
pub fn micros(value: f64) -> String {
    if value < 1_000.0 { format!("{value:.0} µs") } else { format!("{} ms", number(value / 1_000.0)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_numbers_are_grouped_and_small_ones_precise() {
        assert_eq!(number(1_234_567.4), "1,234,567");
        assert_eq!(number(1_000.0), "1,000");
        assert_eq!(number(999.4), "999");
        assert_eq!(number(14.26), "14.3");
        assert_eq!(number(0.304), "0.30");
        assert_eq!(grouped(-1_500.0), "-1,500");
    }

    #[test]
    fn a_time_changes_its_unit() {
        assert_eq!(micros(870.4), "870 µs");
        assert_eq!(micros(1_870.4), "1.87 ms");
        assert_eq!(micros(21_300.0), "21.3 ms");
    }
}
