//! Points in time and durations of ISO 8601 as `--to` takes them, without a time zone database: without a zone it is UTC,
//! as in Kafka's tool.

const MS_PER_SECOND: i64 = 1000;
const MS_PER_DAY: i64 = 86_400 * MS_PER_SECOND;

/// Reads `2026-11-30`, `2026-11-30T04:05`, `…:06`, `…:06.789`, each with `Z`, `+02:00`, `+0200` or nothing behind the
/// time; milliseconds since 1970. `None` when it is none of them or no day of the calendar.
pub(super) fn datetime(text: &str) -> Option<i64> {
    let (date, time) = match text.split_once(['T', 't', ' ']) {
        Some((date, time)) => (date, Some(time)),
        None => (text, None),
    };
    let day = date_of(date)?;
    let Some(time) = time else {
        return Some(day * MS_PER_DAY);
    };
    let (clock, zone_minutes) = split_zone(time)?;
    Some(day * MS_PER_DAY + clock_of(clock)? - zone_minutes * 60 * MS_PER_SECOND)
}

/// Reads `PT1H30M`, `P1DT12H`, `P2W`, `PT0.5S`; milliseconds. Years and months are refused: they have no fixed length.
pub(super) fn duration(text: &str) -> Option<i64> {
    let text = text.strip_prefix(['P', 'p'])?;
    let (days, time) = match text.split_once(['T', 't']) {
        Some((_, "")) => return None,
        Some((days, time)) => (days, time),
        None => (text, ""),
    };
    if days.is_empty() && time.is_empty() {
        return None;
    }
    let days = parts(days, &[('W', 7 * MS_PER_DAY), ('D', MS_PER_DAY)])?;
    let units = [
        ('H', 3600 * MS_PER_SECOND),
        ('M', 60 * MS_PER_SECOND),
        ('S', MS_PER_SECOND),
    ];
    days.checked_add(parts(time, &units)?)
}

/// Numbers with units, each unit at most once and in this order. Only seconds may have a fraction.
fn parts(mut text: &str, units: &[(char, i64)]) -> Option<i64> {
    let mut sum: i64 = 0;
    for &(unit, ms) in units {
        let Some(end) = text.find([unit, unit.to_ascii_lowercase()]) else {
            continue;
        };
        let (amount, rest) = (text.get(..end)?, text.get(end + 1..)?);
        let value = match amount.split_once('.') {
            Some((whole, fraction)) if unit == 'S' => digits(whole, 1..=12)?
                .checked_mul(ms)?
                .checked_add(milliseconds(fraction)?)?,
            Some(_) => return None,
            None => digits(amount, 1..=12)?.checked_mul(ms)?,
        };
        sum = sum.checked_add(value)?;
        text = rest;
    }
    text.is_empty().then_some(sum)
}

/// Days since 1970 of `YYYY-MM-DD`.
fn date_of(text: &str) -> Option<i64> {
    let mut fields = text.split('-');
    let year = digits(fields.next()?, 4..=4)?;
    let month = digits(fields.next()?, 2..=2).filter(|m| (1..=12).contains(m))?;
    let day = digits(fields.next()?, 2..=2)?;
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let last = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if fields.next().is_some() || !(1..=last).contains(&day) {
        return None;
    }
    // Years that begin in March have their leap day last, so that a month's days before it do not depend on the year.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days_before_month = (153 * month + 2) / 5;
    let days = 365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    // 719,468 days lie between the first of March of the year 0 and 1970.
    Some(days + days_before_month + day - 1 - 719_468)
}

/// Milliseconds of the day of `HH:MM[:SS[.fraction]]`.
fn clock_of(text: &str) -> Option<i64> {
    let mut fields = text.split(':');
    let hour = digits(fields.next()?, 2..=2).filter(|h| *h < 24)?;
    let minute = digits(fields.next()?, 2..=2).filter(|m| *m < 60)?;
    let (second, fraction) = match fields.next().map(|s| s.split_once('.').unwrap_or((s, "0"))) {
        Some((second, fraction)) => (
            digits(second, 2..=2).filter(|s| *s < 60)?,
            milliseconds(fraction)?,
        ),
        None => (0, 0),
    };
    if fields.next().is_some() {
        return None;
    }
    Some(((hour * 60 + minute) * 60 + second) * MS_PER_SECOND + fraction)
}

/// The time without its zone, and the zone in minutes east of UTC.
fn split_zone(text: &str) -> Option<(&str, i64)> {
    if let Some(clock) = text.strip_suffix(['Z', 'z']) {
        return Some((clock, 0));
    }
    let Some(at) = text.find(['+', '-']) else {
        return Some((text, 0));
    };
    let (clock, zone) = (text.get(..at)?, text.get(at..)?);
    let sign = if zone.starts_with('-') { -1 } else { 1 };
    let zone = zone.get(1..)?;
    let (hours, minutes) = match zone.split_once(':') {
        Some((hours, minutes)) => (hours, minutes),
        None if zone.len() == 2 => (zone, "00"),
        None => (zone.get(..2)?, zone.get(2..)?),
    };
    let hours = digits(hours, 2..=2).filter(|h| *h <= 18)?;
    let minutes = digits(minutes, 2..=2).filter(|m| *m < 60)?;
    Some((clock, sign * (hours * 60 + minutes)))
}

/// The first three digits behind a point; more are cut off.
fn milliseconds(fraction: &str) -> Option<i64> {
    digits(fraction, 1..=9)?;
    digits(format!("{fraction}00").get(..3)?, 3..=3)
}

fn digits(text: &str, count: std::ops::RangeInclusive<usize>) -> Option<i64> {
    let is_number = count.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    if is_number { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_in_time() {
        for (text, ms) in [
            ("1970-01-01", 0),
            ("1970-01-01T00:00:00.001Z", 1),
            ("2000-02-29T12:00", 951_825_600_000),
            ("2026-11-30T03:04:05.678Z", 1_796_007_845_678),
            ("2026-11-30T03:04:05.6789", 1_796_007_845_678),
            ("2026-11-30T05:04:05+02:00", 1_796_007_845_000),
            ("2026-11-29T22:34:05-0430", 1_796_007_845_000),
            ("2026-11-30 04:04:05+01", 1_796_007_845_000),
            ("1969-12-31T23:59:59Z", -1000),
        ] {
            assert_eq!(datetime(text), Some(ms), "{text}");
        }
    }

    #[test]
    fn what_is_no_point_in_time_is_refused() {
        for text in [
            "",
            "now",
            "2026",
            "2026-13-01",
            "2026-02-29",
            "1900-02-29",
            "2026-11-31",
            "2026-1-1",
            "2026-11-30T",
            "2026-11-30T24:00",
            "2026-11-30T03",
            "2026-11-30T03:04:60",
            "2026-11-30T03:04:05.",
            "2026-11-30T03:04+",
            "2026-11-30T03:04+2",
            "2026-11-30T03:04+19:00",
            "2026-11-30T03:04Zx",
            "2026-11-30-01",
            "99999-01-01",
            "2026-11-30T03:04:05:06",
            "é026-11-30",
            "2026-11-30T03:04+é1",
        ] {
            assert_eq!(datetime(text), None, "{text}");
        }
    }

    #[test]
    fn durations() {
        for (text, ms) in [
            ("PT1H", Some(3_600_000)),
            ("P1DT2H3M4.5S", Some(93_784_500)),
            ("p1dt1m", Some(86_460_000)),
            ("P2W", Some(14 * MS_PER_DAY)),
            ("PT0S", Some(0)),
            ("P", None),
            ("PT", None),
            ("P1DT", None),
            ("P1M", None),
            ("P1Y", None),
            ("PT1M1H", None),
            ("PT1.5H", None),
            ("1H", None),
            ("PTé", None),
            ("P999999999999W", None),
            ("PT-1H", None),
        ] {
            assert_eq!(duration(text), ms, "{text}");
        }
    }
}
