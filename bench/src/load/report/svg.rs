//! Line plots as SVG: no script, no font, no file besides.

use std::fmt::Write as _;

/// Sizes, in the plot's own units.
const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 45.0;

/// Width of a name in the legend.
const LEGEND: f64 = 175.0;

/// Points of a line at most: more are not told apart at this width.
const POINTS_MAX: usize = 1000;

/// Colours of lines, told apart also by those who see few colours.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// How values lie on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// Evenly.
    Linear,
    /// By powers of ten.
    Logarithmic,
    /// Percentiles: 90, 99, 99.9 lie evenly.
    Percentile,
}

/// A line.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// A plot.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    pub(crate) title: String,
    pub(crate) x: (&'static str, Scale),
    pub(crate) y: (&'static str, Scale),
    pub(crate) lines: Vec<Line>,
}

impl Scale {
    /// The place of a value, not yet in the plot's units. What the scale has no place for lies at its edge.
    fn place(self, value: f64) -> f64 {
        match self {
            Self::Linear => value,
            Self::Logarithmic => value.max(1e-3).log10(),
            Self::Percentile => -(1.0 - value.clamp(0.0, 99.999) / 100.0).log10(),
        }
    }

    /// Values that get a mark, for values from the least to the most.
    fn ticks(self, least: f64, most: f64) -> Vec<f64> {
        match self {
            Self::Percentile => vec![0.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999],
            Self::Logarithmic => {
                let (from, to) = (self.place(least).floor() as i32, self.place(most).ceil() as i32);
                (from..=to).map(|power| 10f64.powi(power)).collect()
            }
            Self::Linear => {
                let step = step_of(most - least);
                let first = (least / step).ceil() as i64;
                let last = (most / step).floor() as i64;
                (first..=last).map(|number| number as f64 * step).collect()
            }
        }
    }
}

/// 1, 2 or 5 times a power of ten, so that about six marks fit.
fn step_of(span: f64) -> f64 {
    let raw = (span / 6.0).max(1e-9);
    let power = 10f64.powf(raw.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|factor| factor * power >= raw);
    factor.unwrap_or(10.0) * power
}

/// An axis: from a value to a place in the plot.
struct Axis {
    scale: Scale,
    least: f64,
    most: f64,
    from: f64,
    to: f64,
}

impl Axis {
    fn new(scale: Scale, values: impl Iterator<Item = f64>, (from, to): (f64, f64)) -> Self {
        let (mut least, mut most) = match scale {
            Scale::Linear => (0.0, f64::MIN),
            Scale::Percentile => (0.0, 99.999),
            Scale::Logarithmic => (f64::MAX, f64::MIN),
        };
        let is_there = |value: &f64| value.is_finite() && (*value > 0.0 || scale != Scale::Logarithmic);
        for value in values.filter(is_there) {
            least = f64::min(
                least,
                value.max(if scale == Scale::Logarithmic { 1e-3 } else { value }),
            );
            most = f64::max(most, value);
        }
        if most <= least {
            most = if most > f64::MIN { least + 1.0 } else { 1.0 };
            least = least.min(most - 1.0).max(if scale == Scale::Logarithmic {
                1e-3
            } else {
                f64::MIN
            });
        }
        Self {
            scale,
            least,
            most,
            from,
            to,
        }
    }

    fn at(&self, value: f64) -> f64 {
        let (least, most) = (self.scale.place(self.least), self.scale.place(self.most));
        let share = ((self.scale.place(value) - least) / (most - least)).clamp(0.0, 1.0);
        self.from + share * (self.to - self.from)
    }

    fn ticks(&self) -> Vec<f64> {
        let ticks = self.scale.ticks(self.least, self.most).into_iter();
        ticks
            .filter(|tick| *tick >= self.least * 0.999 && *tick <= self.most * 1.001)
            .collect()
    }
}

impl Plot {
    /// The plot as an `svg` element.
    pub(crate) fn svg(&self) -> String {
        let all = || self.lines.iter().flat_map(|line| line.points.iter());
        let x = Axis::new(self.x.1, all().map(|point| point.0), (LEFT, WIDTH - RIGHT));
        let y = Axis::new(self.y.1, all().map(|point| point.1), (HEIGHT - BOTTOM, TOP));
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" font-family=\"sans-serif\" font-size=\"11\"><title>{}</title>",
            escape(&self.title)
        );
        text(&mut out, (LEFT, TOP - 12.0), "start", &self.title);
        self.grid(&x, &y, &mut out);
        for (number, line) in self.lines.iter().enumerate() {
            let colour = COLOURS[number % COLOURS.len()];
            for points in self.runs(line) {
                let at =
                    |(x_value, y_value): &(f64, f64)| format!("{:.1},{:.1}", x.at(*x_value), y.at(*y_value));
                let points: Vec<String> = points.iter().map(at).collect();
                let _ = write!(
                    out,
                    "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.6\" points=\"{}\"/>",
                    points.join(" ")
                );
            }
            let place = WIDTH - RIGHT - LEGEND * (self.lines.len() - number) as f64;
            let _ = write!(
                out,
                "<rect x=\"{place:.1}\" y=\"{:.1}\" width=\"14\" height=\"3\" fill=\"{colour}\"/>",
                TOP - 17.0
            );
            text(&mut out, (place + 18.0, TOP - 12.0), "start", &line.name);
        }
        out.push_str("</svg>");
        out
    }

    /// The points of a line that are drawn, in runs between gaps: a value that is none, or nothing on a scale of powers.
    fn runs(&self, line: &Line) -> Vec<Vec<(f64, f64)>> {
        let step = line.points.len().div_ceil(POINTS_MAX).max(1);
        let mut runs = vec![Vec::new()];
        for part in line.points.chunks(step) {
            // The highest of those that fall together, so that no peak is lost.
            let highest = part.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
            let is_shown = |value: f64| value.is_finite() && (value > 0.0 || self.y.1 != Scale::Logarithmic);
            match highest.filter(|(at, value)| at.is_finite() && is_shown(*value)) {
                Some(point) => runs.last_mut().expect("it begins with one").push(point),
                None => runs.push(Vec::new()),
            }
        }
        runs.retain(|run| !run.is_empty());
        runs
    }

    fn grid(&self, x: &Axis, y: &Axis, out: &mut String) {
        for tick in y.ticks() {
            let at = y.at(tick);
            let _ = write!(
                out,
                "<line x1=\"{LEFT}\" y1=\"{at:.1}\" x2=\"{}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>",
                WIDTH - RIGHT
            );
            text(out, (LEFT - 6.0, at + 4.0), "end", &number(tick));
        }
        for tick in x.ticks() {
            let at = x.at(tick);
            let _ = write!(
                out,
                "<line x1=\"{at:.1}\" y1=\"{TOP}\" x2=\"{at:.1}\" y2=\"{}\" stroke=\"#eee\"/>",
                HEIGHT - BOTTOM
            );
            text(out, (at, HEIGHT - BOTTOM + 15.0), "middle", &number(tick));
        }
        text(
            out,
            (f64::midpoint(LEFT, WIDTH - RIGHT), HEIGHT - 8.0),
            "middle",
            self.x.0,
        );
        let _ = write!(
            out,
            "<text transform=\"translate(14,{:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            f64::midpoint(TOP, HEIGHT - BOTTOM),
            escape(self.y.0)
        );
    }
}

fn text(out: &mut String, (x, y): (f64, f64), anchor: &str, words: &str) {
    let _ = write!(
        out,
        "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>",
        escape(words)
    );
}

/// A number of an axis, short.
fn number(value: f64) -> String {
    let (value, unit) = match value.abs() {
        large if large >= 1e9 => (value / 1e9, "G"),
        large if large >= 1e6 => (value / 1e6, "M"),
        large if large >= 10_000.0 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{value:.3}");
    let short = text.trim_end_matches('0').trim_end_matches('.');
    format!("{}{unit}", if short.is_empty() { "0" } else { short })
}

/// Text within an element or attribute.
pub(super) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

/// Whether each element is closed and nothing is open at the end; a reader for tests, of what is written here.
#[cfg(test)]
pub(crate) fn is_well_formed(text: &str) -> Result<(), String> {
    let mut open: Vec<String> = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        if rest[..at].contains('>') {
            return Err(format!(
                "a stray > before {:?}",
                &rest[at..rest.len().min(at + 40)]
            ));
        }
        let end = rest[at..].find('>').ok_or("a < without >")? + at;
        let tag = &rest[at + 1..end];
        if !tag.matches('"').count().is_multiple_of(2) || tag.contains('<') {
            return Err(format!("quotes in <{tag}>"));
        }
        let name = tag
            .trim_start_matches('/')
            .split([' ', '/'])
            .next()
            .unwrap_or_default()
            .to_owned();
        match tag {
            tag if tag.starts_with('/') => {
                if open.pop().as_ref() != Some(&name) {
                    return Err(format!("</{name}> closes nothing"));
                }
            }
            tag if tag.ends_with('/') || tag.starts_with('!') || matches!(name.as_str(), "meta") => {}
            _ => open.push(name),
        }
        rest = &rest[end + 1..];
    }
    if open.is_empty() {
        Ok(())
    } else {
        Err(format!("open at the end: {open:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(lines: Vec<Line>, x: Scale, y: Scale) -> String {
        Plot {
            title: "a < b & \"c\"".into(),
            x: ("seconds", x),
            y: ("ms", y),
            lines,
        }
        .svg()
    }

    fn line(points: Vec<(f64, f64)>) -> Line {
        Line {
            name: "p99 > p50".into(),
            points,
        }
    }

    #[test]
    fn any_plot_is_well_formed_and_has_only_numbers_in_it() {
        let scales = [Scale::Linear, Scale::Logarithmic, Scale::Percentile];
        let cases = [
            vec![],
            vec![line(vec![])],
            vec![line(vec![(0.0, 0.0)])],
            vec![line(vec![(1.0, 5.0), (2.0, 5.0)])],
            vec![
                line(vec![(0.0, f64::NAN), (50.0, 1e9), (99.999, 1e-9)]),
                line((0..5000).map(|n| (f64::from(n), 3.0)).collect()),
            ],
        ];
        for x in scales {
            for y in [Scale::Linear, Scale::Logarithmic] {
                for lines in &cases {
                    let svg = plot(lines.clone(), x, y);
                    assert_eq!(is_well_formed(&svg), Ok(()), "{svg}");
                    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
                }
            }
        }
        assert!(is_well_formed("<a><b></a>").is_err() && is_well_formed("<a").is_err());
        assert!(is_well_formed("<a>x > y</a>").is_err() && is_well_formed("<a>").is_err());
    }

    #[test]
    fn a_peak_among_many_points_is_drawn() {
        let points = (0..100_000)
            .map(|n| (f64::from(n), if n == 77_777 { 1000.0 } else { 1.0 }))
            .collect();
        let svg = plot(vec![line(points)], Scale::Linear, Scale::Linear);
        assert!(svg.contains(&format!(",{TOP:.1} ")), "the peak lies at the top");
        assert!(svg.len() < 40_000);
    }

    #[test]
    fn a_second_without_messages_is_a_gap_in_the_latencies() {
        let line = line(vec![
            (1.0, 5.0),
            (2.0, 0.0),
            (3.0, 7.0),
            (4.0, 8.0),
            (5.0, f64::NAN),
        ]);
        let plot = Plot {
            title: String::new(),
            x: ("s", Scale::Linear),
            y: ("ms", Scale::Logarithmic),
            lines: vec![],
        };
        assert_eq!(plot.runs(&line), [vec![(1.0, 5.0)], vec![(3.0, 7.0), (4.0, 8.0)]]);
    }

    #[test]
    fn marks_are_round_and_within_the_axis() {
        assert_eq!(
            Scale::Linear.ticks(0.0, 100.0),
            [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]
        );
        assert_eq!(
            ["0", "0.001", "12.5", "50k", "2M"],
            [0.0, 0.001, 12.5, 50_000.0, 2e6]
                .map(number)
                .each_ref()
                .map(String::as_str)
        );
        let axis = Axis::new(Scale::Percentile, [0.0, 100.0].into_iter(), (0.0, 500.0));
        let places = [0.0, 90.0, 99.0, 99.9].map(|percent| axis.at(percent).round());
        assert_eq!(places, [0.0, 100.0, 200.0, 300.0]);
    }
}
