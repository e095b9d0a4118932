//! Numbers of JSON, compared by their value: a `f64` takes neighbours for equal beyond 2^53.

use std::cmp::Ordering;

/// A number: `0.DIGITS` times ten to the power of `exponent`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decimal {
    is_negative: bool,
    /// Without zeros at the beginning or the end; empty for zero.
    digits: String,
    exponent: i64,
}

impl Decimal {
    /// Reads a number as JSON writes it; None if it is none, or its exponent is beyond 64 bits.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (is_negative, text) = match text.strip_prefix('-') {
            Some(text) => (true, text),
            None => (false, text),
        };
        let (number, power) = match text.split_once(['e', 'E']) {
            Some((number, power)) => (number, power.strip_prefix('+').unwrap_or(power).parse::<i64>().ok()?),
            None => (text, 0),
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        let all = [whole, fraction].concat();
        if whole.is_empty() || !all.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let digits = all.trim_start_matches('0');
        let leading = i64::try_from(all.len() - digits.len()).ok()?;
        let point = i64::try_from(whole.len()).ok()?.checked_sub(leading)?;
        let digits = digits.trim_end_matches('0').to_owned();
        // There is one zero, however it is written.
        if digits.is_empty() {
            return Some(Self { is_negative: false, digits, exponent: 0 });
        }
        Some(Self { is_negative, digits, exponent: point.checked_add(power)? })
    }

    fn size(&self, other: &Self) -> Ordering {
        match (self.digits.is_empty(), other.digits.is_empty()) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            (false, false) => self.exponent.cmp(&other.exponent).then_with(|| self.digits.cmp(&other.digits)),
        }
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.is_negative, other.is_negative) {
            (false, false) => self.size(other),
            (true, true) => other.size(self),
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compare(a: &str, b: &str) -> Ordering {
        Decimal::parse(a).unwrap().cmp(&Decimal::parse(b).unwrap())
    }

    #[test]
    fn numbers_compare_by_value_however_they_are_written() {
        for (a, b) in
            [("1", "1.0"), ("100", "1e2"), ("0.05", "5E-2"), ("-0", "0"), ("0e9", "0.00"), ("1e+3", "1000")]
        {
            assert_eq!(compare(a, b), Ordering::Equal, "{a} {b}");
        }
        for (less, more) in [
            ("9007199254740992", "9007199254740993"),
            ("18446744073709551614", "18446744073709551615"),
            ("99.999999999999999999", "100"),
            ("-1e400", "-1"),
            ("-1", "0"),
            ("0", "1e-400"),
            ("9", "10"),
            ("0.12", "0.123"),
        ] {
            assert_eq!(compare(less, more), Ordering::Less, "{less} {more}");
            assert_eq!(compare(more, less), Ordering::Greater, "{less} {more}");
        }
    }

    #[test]
    fn what_is_no_number_is_not_read() {
        for text in ["", "-", "x", ".5", "1e", "1e99999999999999999999", "inf", "NaN", "0x1", "1_000"] {
            assert_eq!(Decimal::parse(text), None, "{text}");
        }
    }
}
