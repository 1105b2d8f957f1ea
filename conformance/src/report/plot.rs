//! A figure as SVG: curves with markers, the paper's values as broken lines, a legend, logarithmic or linear
//! axes.
//!
//! Values are placed on their axes here ([`Scale`] gives the position), and the drawing itself is linear: so
//! ticks stand at powers of two where sizes of messages are shown. Every colour is one of [`PALETTE`] or
//! [`INK`], [`GRID`]; a page gives each its counterpart on a dark ground ([`dark_rules`]). The ground is
//! transparent. Curves differ in markers too, not by colour alone.

use std::fmt;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind};
use plotters::element::{Drawable, EmptyElement, PathElement, PointCollection};
use plotters::prelude::{
    ChartBuilder, Color, DashedLineSeries, DrawingBackend, IntoDrawingArea, IntoFont, LineSeries, RGBColor, SVGBackend,
    Text, TextStyle,
};
use plotters_backend::DrawingErrorKind;

use rerail_sim::figures::{Axis, Figure, Scale, Series};

use super::text::{heading, on_axis, quantity};

/// Width and height, in pixels where nothing scales it.
const SIZE: (u32, u32) = (760, 440);

/// A colour, and its counterpart on a dark ground.
pub(super) type Shade = (RGBColor, &'static str);

/// Text, axes, and what the paper states.
pub(super) const INK: Shade = (RGBColor(0x22, 0x22, 0x26), "#e4e4e8");

/// Lines behind the curves.
pub(super) const GRID: Shade = (RGBColor(0xd8, 0xd8, 0xde), "#3c3c44");

/// The curves', in turn: colours that people with colour blindness can distinguish (Okabe and Ito, 2008).
pub(super) const PALETTE: &[Shade] = &[
    (RGBColor(0x00, 0x72, 0xb2), "#56b4e9"),
    (RGBColor(0xd5, 0x5e, 0x00), "#ff9d4d"),
    (RGBColor(0x00, 0x9e, 0x73), "#3fd0a4"),
    (RGBColor(0xcc, 0x79, 0xa7), "#eaa6cb"),
    (RGBColor(0x8a, 0x6d, 0x00), "#f0e442"),
    (RGBColor(0x55, 0x55, 0xaa), "#a9a9f0"),
];

/// Where something is drawn.
type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// Why a figure can't be drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlotError {
    /// There is no curve.
    NoSeries,
    /// A curve has no points.
    Empty {
        /// Its name.
        series: String,
    },
    /// A value is not a finite number, or not above zero on a logarithmic axis.
    Value {
        /// The curve's name, or that of what the paper states.
        series: String,
        /// The axis.
        axis: String,
        /// The value.
        value: String,
    },
    /// The drawing failed.
    Drawing {
        /// Why.
        why: String,
    },
}

impl fmt::Display for PlotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PlotError::NoSeries => f.write_str("there is no curve to draw"),
            PlotError::Empty { series } => write!(f, "the curve \"{series}\" has no points"),
            PlotError::Value { series, axis, value } => {
                write!(f, "\"{series}\" can't be drawn: {value} has no place on the axis \"{axis}\"")
            }
            PlotError::Drawing { why } => write!(f, "drawing failed: {why}"),
        }
    }
}

impl std::error::Error for PlotError {}

/// The figure as an `svg` element; text in it is escaped.
///
/// # Errors
/// [`PlotError`] for a figure without curves, a curve without points, and values that have no place on their
/// axis.
pub fn svg(figure: &Figure) -> Result<String, PlotError> {
    if figure.series.is_empty() {
        return Err(PlotError::NoSeries);
    }
    let curves: Vec<Vec<(f64, f64)>> = figure.series.iter().map(|one| curve(figure, one)).collect::<Result<_, _>>()?;
    let level = |name: &str, value| place(&figure.y, name, value);
    let levels: Vec<f64> = figure.stated.iter().map(|one| level(&one.name, one.value)).collect::<Result<_, _>>()?;
    let points = || curves.iter().flatten();
    let x = Range::around(figure.x.scale, points().map(|point| point.0));
    let y = Range::around(figure.y.scale, points().map(|point| point.1).chain(levels.iter().copied()));
    let mut text = String::new();
    draw(&mut text, figure, &curves, &levels, &x, &y).map_err(|why| PlotError::Drawing { why })?;
    let label = super::page::escape(&format!("{}: {}", figure.source, figure.title));
    Ok(text.replacen("<svg ", &format!("<svg role=\"img\" aria-label=\"{label}\" "), 1))
}

/// Rules of style that give every colour of a plot its counterpart on a dark ground.
pub fn dark_rules() -> String {
    let shades = [INK, GRID].into_iter().chain(PALETTE.iter().copied());
    let rule = |(RGBColor(red, green, blue), dark): Shade| {
        let light = format!("#{red:02X}{green:02X}{blue:02X}");
        format!("svg [fill=\"{light}\"] {{ fill: {dark} }}\nsvg [stroke=\"{light}\"] {{ stroke: {dark} }}\n")
    };
    shades.map(rule).collect()
}

/// Where a value lies on its axis.
fn place(axis: &Axis, series: &str, value: f64) -> Result<f64, PlotError> {
    let place = match axis.scale {
        Scale::Linear | Scale::Names(_) => value,
        Scale::Log2 => value.log2(),
        Scale::Log10 => value.log10(),
    };
    let error = || PlotError::Value { series: series.into(), axis: heading(axis), value: value.to_string() };
    place.is_finite().then_some(place).ok_or_else(error)
}

/// The value at a place.
fn value(scale: Scale, place: f64) -> f64 {
    match scale {
        Scale::Linear | Scale::Names(_) => place,
        Scale::Log2 => place.exp2(),
        Scale::Log10 => 10f64.powf(place),
    }
}

/// A curve's points at their places.
fn curve(figure: &Figure, series: &Series) -> Result<Vec<(f64, f64)>, PlotError> {
    let name = &series.name;
    if series.points.is_empty() {
        return Err(PlotError::Empty { series: name.clone() });
    }
    series.points.iter().map(|&(x, y)| Ok((place(&figure.x, name, x)?, place(&figure.y, name, y)?))).collect()
}

/// What an axis spans, in places.
#[derive(Clone, Debug, PartialEq)]
struct Range {
    from: f64,
    to: f64,
    /// Where ticks stand.
    ticks: Vec<f64>,
    /// Where finer lines stand.
    fine: Vec<f64>,
}

/// Ticks of an axis, at most.
const TICKS_MAX: f64 = 12.0;

impl Range {
    /// A range that holds all places; there is one at least, all are finite.
    fn around(scale: Scale, places: impl Iterator<Item = f64>) -> Range {
        let (least, most) = places.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), x| (a.min(x), b.max(x)));
        match scale {
            Scale::Linear => {
                let (least, most) = (least.min(0.0), most.max(0.0));
                let step = round_step(if least == most { 1.0 } else { (most - least) / 6.0 });
                // Some air above the highest curve.
                Range::stepped(
                    (least / step).floor() * step,
                    ((most + 0.02 * (most - least)) / step).ceil() * step,
                    step,
                )
            }
            // Half a place beside the first and the last.
            Scale::Names(names) => Range {
                from: -0.5,
                to: names.len() as f64 - 0.5,
                ticks: (0..names.len()).map(|place| place as f64).collect(),
                fine: Vec::new(),
            },
            Scale::Log2 => {
                let (from, to) = whole(least, most);
                Range::stepped(from, to, ((to - from) / TICKS_MAX).ceil())
            }
            Scale::Log10 => {
                let (from, to) = whole(least, most);
                let mut range = Range::stepped(from, to, ((to - from) / TICKS_MAX).ceil());
                let decades = (0..(to - from) as u32).map(|decade| from + f64::from(decade));
                range.fine =
                    decades.flat_map(|decade| (2..10).map(move |part| decade + f64::from(part).log10())).collect();
                range
            }
        }
    }

    fn stepped(from: f64, to: f64, step: f64) -> Range {
        let to = if to > from { to } else { from + step };
        let steps = ((to - from) / step).round() as u32;
        let ticks = (0..=steps).map(|index| from + f64::from(index) * step).filter(|tick| *tick <= to + step * 1e-6);
        Range { from, to, ticks: ticks.collect(), fine: Vec::new() }
    }
}

/// Places to pixels, in proportion.
impl Ranged for Range {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, place: &f64, (first, last): (i32, i32)) -> i32 {
        let part = (place - self.from) / (self.to - self.from);
        first + (part * f64::from(last - first)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { self.fine.clone() } else { self.ticks.clone() }
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.from..self.to
    }
}

/// The whole numbers around, different ones.
fn whole(least: f64, most: f64) -> (f64, f64) {
    let (from, to) = (least.floor(), most.ceil());
    if from < to { (from, to) } else { (from - 1.0, to + 1.0) }
}

/// The least of 1, 2, 5, 10, 20, ... (and their tenths) that is not below `step`, which is above zero.
fn round_step(step: f64) -> f64 {
    let decade = 10f64.powf(step.log10().floor());
    [1.0, 2.0, 5.0].into_iter().map(|part| part * decade).find(|round| *round >= step).unwrap_or(10.0 * decade)
}

fn draw(
    text: &mut String,
    figure: &Figure,
    curves: &[Vec<(f64, f64)>],
    levels: &[f64],
    x: &Range,
    y: &Range,
) -> Result<(), String> {
    let area = SVGBackend::with_string(text, SIZE).into_drawing_area();
    let (top, area) = area.split_vertically(legend_height(figure));
    let printed = |error: &dyn fmt::Display| error.to_string();
    legend(&top, figure).map_err(|error| printed(&error))?;
    let mut chart = ChartBuilder::on(&area)
        .margin(12)
        .margin_right(24)
        .x_label_area_size(48)
        .y_label_area_size(72)
        .build_cartesian_2d(x.clone(), y.clone())
        .map_err(|error| printed(&error))?;
    chart
        .configure_mesh()
        .axis_style(INK.0)
        .bold_line_style(GRID.0)
        .light_line_style(GRID.0.mix(0.5))
        .label_style(font(15))
        .axis_desc_style(font(16))
        .x_desc(heading(&figure.x))
        .y_desc(heading(&figure.y))
        .x_label_formatter(&|place| on_axis(&figure.x, value(figure.x.scale, *place)))
        .y_label_formatter(&|place| on_axis(&figure.y, value(figure.y.scale, *place)))
        .draw()
        .map_err(|error| printed(&error))?;
    for &level in levels {
        let line = DashedLineSeries::new([(x.from, level), (x.to, level)], 6, 4, INK.0.stroke_width(1));
        chart.draw_series(line).map_err(|error| printed(&error))?;
    }
    for (index, points) in curves.iter().enumerate() {
        let colour = PALETTE[index % PALETTE.len()].0;
        // Between names there is nothing that a line could show.
        if !matches!(figure.x.scale, Scale::Names(_)) {
            let line = LineSeries::new(points.iter().copied(), colour.stroke_width(2));
            chart.draw_series(line).map_err(|error| printed(&error))?;
        }
        let markers = points.iter().map(|&at| Marker { at, index, colour });
        chart.draw_series(markers).map_err(|error| printed(&error))?;
    }
    area.present().map_err(|error| printed(&error))
}

/// Entries of the legend beside each other.
const LEGEND_COLUMNS: usize = 2;

/// Pixels from one row of the legend to the next.
const LEGEND_ROW: i32 = 22;

/// Pixels that the legend takes above the plot.
fn legend_height(figure: &Figure) -> i32 {
    let entries = figure.series.len() + figure.stated.len();
    entries.div_ceil(LEGEND_COLUMNS) as i32 * LEGEND_ROW + 10
}

/// The curves' names, then those of what the paper states; above the plot, where no curve can be below them.
fn legend<'a>(area: &Area<'a>, figure: &Figure) -> Result<(), DrawingAreaErrorKind<std::io::Error>> {
    let column = SIZE.0 as i32 / LEGEND_COLUMNS as i32;
    let at = |entry: usize| {
        let (row, place) = (entry / LEGEND_COLUMNS, entry % LEGEND_COLUMNS);
        EmptyElement::<_, SVGBackend<'a>>::at((84 + place as i32 * (column - 36), 16 + row as i32 * LEGEND_ROW))
    };
    let name = |text: String| Text::new(text, (28, -8), font(15));
    for (index, series) in figure.series.iter().enumerate() {
        let colour = PALETTE[index % PALETTE.len()].0;
        let line = PathElement::new([(0, 0), (20, 0)], colour.stroke_width(2));
        area.draw(&(at(index) + line + Marker { at: (10, 0), index, colour } + name(series.name.clone())))?;
    }
    for (index, stated) in figure.stated.iter().enumerate() {
        let dash = |from: i32| PathElement::new([(from, 0), (from + 8, 0)], INK.0);
        let text = format!("{} ({})", stated.name, quantity(stated.value, &figure.y.unit));
        area.draw(&(at(figure.series.len() + index) + dash(0) + dash(12) + name(text)))?;
    }
    Ok(())
}

fn font(size: i32) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&INK.0)
}

/// The marker of a curve, by the curve's number: in turn a disc, a triangle, a square, a circle.
struct Marker<C> {
    at: C,
    index: usize,
    colour: RGBColor,
}

impl<'a, C> PointCollection<'a, C> for &'a Marker<C> {
    type Point = &'a C;
    type IntoIter = std::iter::Once<&'a C>;

    fn point_iter(self) -> Self::IntoIter {
        std::iter::once(&self.at)
    }
}

impl<C, DB: DrawingBackend> Drawable<DB> for Marker<C> {
    fn draw<I: Iterator<Item = (i32, i32)>>(
        &self,
        mut places: I,
        backend: &mut DB,
        _area: (u32, u32),
    ) -> Result<(), DrawingErrorKind<DB::ErrorType>> {
        let Some((x, y)) = places.next() else { return Ok(()) };
        let (filled, line) = (self.colour.filled(), self.colour.stroke_width(2));
        match self.index % 4 {
            0 => backend.draw_circle((x, y), 4, &filled, true),
            1 => backend.fill_polygon([(x, y - 5), (x - 5, y + 4), (x + 5, y + 4)], &filled),
            2 => backend.draw_rect((x - 4, y - 4), (x + 4, y + 4), &filled, true),
            _ => backend.draw_circle((x, y), 4, &line, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use rerail_sim::figures::Stated;

    use super::super::page::tests::figure;
    use super::*;

    #[test]
    fn a_figure_is_drawn_with_curves_levels_and_text_that_is_escaped() {
        let mut figure = figure();
        figure.series[0].name = "a < b & \"c\"".into();
        figure.source = "\"<script>\"".into();
        figure.stated.push(Stated { name: "peak <5>".into(), value: 5.0 });
        let svg = svg(&figure).expect("a plot");
        assert!(svg.starts_with("<svg role=\"img\" aria-label=\"&quot;&lt;script&gt;&quot;: "), "{svg}");
        assert!(svg.contains("a &lt; b &amp; &quot;c&quot;") && svg.contains("peak &lt;5&gt; (5 MB/s)"), "{svg}");
        assert!(!svg.contains("<script"), "{svg}");
        assert_eq!(svg.matches("<svg").count(), 1);
        assert!(svg.trim_end().ends_with("</svg>"), "the element is closed");
        // A disc for each point and one in the legend.
        let points = figure.series[0].points.len();
        assert_eq!(svg.matches("<circle").count(), points + 1);
    }

    #[test]
    fn undrawable_figure_is_an_error() {
        let mut none = figure();
        none.series.clear();
        assert_eq!(svg(&none), Err(PlotError::NoSeries));
        let mut empty = figure();
        empty.series[0].points.clear();
        assert_eq!(svg(&empty), Err(PlotError::Empty { series: "one".into() }));
        for point in [(0.0, 1.0), (8.0, f64::NAN), (-8.0, 1.0), (8.0, f64::INFINITY)] {
            let mut off = figure();
            off.series[0].points[0] = point;
            assert!(matches!(svg(&off), Err(PlotError::Value { .. })), "{point:?}");
        }
        let mut off = figure();
        off.stated.push(Stated { name: "level".into(), value: f64::NAN });
        let error = svg(&off).expect_err("no number").to_string();
        assert_eq!(error, "\"level\" can't be drawn: NaN has no place on the axis \"bandwidth (MB/s)\"");
    }

    #[test]
    fn every_colour_has_its_counterpart_on_a_dark_ground() {
        let (svg, rules) = (svg(&figure()).expect("a plot"), dark_rules());
        for attribute in ["fill=\"#", "stroke=\"#"] {
            for (at, _) in svg.match_indices(attribute) {
                let colour = &svg[at..at + attribute.len() + 7];
                assert!(rules.contains(&format!("[{colour}]")), "{colour} is drawn, but has no rule");
            }
        }
    }

    #[test]
    fn logarithmic_axes_have_ticks_at_whole_powers() {
        let axis = Axis::message_bytes();
        let places = [8.0, 100.0, 4_194_304.0].map(|value| place(&axis, "", value).expect("above zero"));
        let range = Range::around(Scale::Log2, places.into_iter());
        assert_eq!((range.from, range.to), (3.0, 22.0));
        let ticks: Vec<f64> = range.ticks.iter().map(|tick| value(Scale::Log2, *tick)).collect();
        assert_eq!(ticks[..3], [8.0, 32.0, 128.0]);
        // Each doubling is as far as the next.
        assert_eq!(places[2] - places[0], 19.0);

        let range = Range::around(Scale::Log10, [5.98f64, 4766.0].map(f64::log10).into_iter());
        assert_eq!(range.ticks, [0.0, 1.0, 2.0, 3.0, 4.0]);
        assert_eq!((range.fine.len(), value(Scale::Log10, range.fine[0]).round()), (32, 2.0));
    }

    #[test]
    fn linear_axes_start_at_zero_and_have_round_ticks() {
        let range = Range::around(Scale::Linear, [884.0, 1766.2].into_iter());
        assert_eq!((range.from, range.to), (0.0, 2000.0));
        assert_eq!(range.ticks, [0.0, 500.0, 1000.0, 1500.0, 2000.0]);
        let below = Range::around(Scale::Linear, [-3.0, 4.0].into_iter());
        assert!(below.from <= -3.0 && below.to >= 4.0 && below.ticks.contains(&0.0), "{below:?}");
    }

    #[test]
    fn range_of_a_single_value_surrounds_it() {
        for scale in [Scale::Linear, Scale::Log2, Scale::Log10] {
            for at in [0.0, 3.0] {
                let range = Range::around(scale, [at].into_iter());
                assert!(range.from <= at && at <= range.to && range.from < range.to, "{scale:?} {at}: {range:?}");
                assert!(range.ticks.len() >= 2, "{scale:?} {at}: {range:?}");
            }
        }
    }
}
