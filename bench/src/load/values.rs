//! How flags are written: sizes with units, times with units, and the words of some of them.

use std::time::Duration;

use protocol::compression::Codec;

use super::flags::RateWords;
use super::keys::Keys;

/// `123`, `16KiB`, `2GB`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let factor = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 1.0,
        "kb" => 1e3,
        "mb" => 1e6,
        "gb" => 1e9,
        "tb" => 1e12,
        "k" | "kib" => 1024.0,
        "m" | "mib" => 1024.0 * 1024.0,
        "g" | "gib" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(format!("'{unit}' is no unit of bytes; write 100, 16KiB or 2GB")),
    };
    match number.parse::<f64>() {
        Ok(number) if number >= 0.0 && number * factor < 1e18 => Ok((number * factor) as u64),
        _ => Err("it has to be a number of bytes, as 100, 16KiB or 2GB".into()),
    }
}

/// `500us`, `5ms`, `30s`, `2m`, `1h`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let factor = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ if text == "0" => 1.0,
        _ => return Err("it has to be a number with a unit, as 500us, 5ms, 30s, 2m or 1h".into()),
    };
    match number.parse::<f64>() {
        Ok(number) if (0.0..1e9).contains(&(number * factor)) => Ok(Duration::from_secs_f64(number * factor)),
        _ => Err("it has to be a number with a unit, as 500us, 5ms, 30s, 2m or 1h".into()),
    }
}

fn split(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| c.is_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number.trim(), unit.trim())
}

pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("it has to be NAME=VALUE, as retention.ms=60000".into()),
    }
}

pub(super) fn codec(text: &str) -> Result<Codec, String> {
    let found = Codec::ALL.into_iter().find(|codec| codec.name() == text);
    found.ok_or_else(|| "it has to be none, gzip, snappy, lz4 or zstd".into())
}

pub(super) fn keys(text: &str) -> Result<Keys, String> {
    match text {
        "none" => Ok(Keys::None),
        "none-round-robin" => Ok(Keys::NoneRoundRobin),
        "round-robin" => Ok(Keys::RoundRobin),
        "random" => Ok(Keys::Random),
        "zipf" => Ok(Keys::Zipf(1.0)),
        _ => text
            .strip_prefix("zipf:")
            .and_then(|exponent| exponent.parse().ok())
            .filter(|exponent| (0.0..=10.0).contains(exponent))
            .map(Keys::Zipf)
            .ok_or_else(|| {
                "it has to be none, none-round-robin, round-robin, random, zipf or zipf:EXPONENT (0 to 10)"
                    .into()
            }),
    }
}

pub(super) fn load_words(text: &str) -> Result<RateWords, String> {
    match text {
        "max" => Ok(RateWords::Maximum),
        "search" => Ok(RateWords::Search),
        _ => match text.replace(['_', ','], "").parse::<f64>() {
            Ok(rate) if rate > 0.0 && rate.is_finite() => Ok(RateWords::Rate(rate)),
            _ => Err("it has to be a number of messages a second above 0, max or search".into()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_have_units() {
        let sizes = ["100", "16KiB", "2GB", "1.5 MB", "64k"].map(bytes);
        assert_eq!(sizes, [100, 16_384, 2_000_000_000, 1_500_000, 65_536].map(Ok));
        assert!(bytes("5 apples").is_err_and(|what| what.contains("apples")));
        assert!(bytes("-1").is_err() && bytes("").is_err() && bytes("1e30").is_err());
        let times = ["500us", "5ms", "0", "1.5s", "2m", "1h"].map(duration);
        let expected = [500, 5_000, 0, 1_500_000, 120_000_000, 3_600_000_000].map(Duration::from_micros);
        assert_eq!(times, expected.map(Ok));
        assert!(duration("5").is_err() && duration("-1s").is_err() && duration("1d").is_err());
    }

    #[test]
    fn words_of_rates_and_keys() {
        assert_eq!(load_words("50_000"), Ok(RateWords::Rate(50_000.0)));
        assert_eq!(load_words("search"), Ok(RateWords::Search));
        assert!(load_words("0").is_err() && load_words("inf").is_err());
        assert_eq!(keys("zipf:1.2"), Ok(Keys::Zipf(1.2)));
        assert!(keys("zipf:x").is_err() && keys("any").is_err());
        assert_eq!(codec("zstd"), Ok(Codec::Zstd));
        assert_eq!(pair("a=b=c"), Ok(("a".into(), "b=c".into())));
        assert!(pair("=x").is_err());
    }
}
