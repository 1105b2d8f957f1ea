//! A history as SVG: a lane for each end of each rail, time from left to right, packets as lines from lane to
//! lane. Parts of time stand beside each other, each with an axis of its own. Colours are those of plots, so
//! that the page's rules for dark grounds hold here too; text is escaped.

use std::fmt::Write;

use rerail_sim::figures::{Flight, Sort, Timeline};

use super::page::escape;
use super::plot::{GRID, INK, PALETTE, Shade};
use super::text::number;

/// Width in pixels where nothing scales it.
const WIDTH: f64 = 760.0;

/// Left of the lanes, for their names.
const LEFT: f64 = 120.0;

/// Right of them.
const RIGHT: f64 = 16.0;

/// Above the lanes: the legend, and what happened across all.
const TOP: f64 = 92.0;

/// From a lane to the next.
const LANE: f64 = 76.0;

/// Below the lanes: the axis.
const BOTTOM: f64 = 52.0;

/// Between two parts of time.
const GAP: f64 = 14.0;

/// How long a packet that never comes is drawn, as a part of the way to the other lane.
const STUB: f64 = 0.35;

/// A packet's colour and how thick it is drawn.
fn line_style(sort: Sort) -> (Shade, f64) {
    match sort {
        Sort::Payload => (PALETTE[0], 1.0),
        Sort::Replay => (PALETTE[1], 2.5),
        Sort::Fence => (PALETTE[3], 2.5),
        Sort::Answer => (PALETTE[5], 2.5),
        Sort::Connect => (PALETTE[2], 2.5),
        Sort::Other => (GRID, 1.0),
    }
}

fn colour((shade, _): Shade) -> String {
    format!("#{:02X}{:02X}{:02X}", shade.0, shade.1, shade.2)
}

/// Where things lie.
struct Layout<'t> {
    timeline: &'t Timeline,
    height: f64,
}

impl Layout<'_> {
    /// The part of the width that a part of time has: from and to.
    fn part(&self, index: usize) -> (f64, f64) {
        let parts = self.timeline.windows.len().max(1) as f64;
        let width = (WIDTH - LEFT - RIGHT - GAP * (parts - 1.0)) / parts;
        let from = LEFT + index as f64 * (width + GAP);
        (from, from + width)
    }

    /// Where a moment lies in a part of time; outside of it, beyond its ends.
    fn x(&self, index: usize, at_us: f64) -> f64 {
        let ((from, to), (left, right)) = (self.timeline.windows[index], self.part(index));
        left + (at_us - from) / (to - from).max(f64::MIN_POSITIVE) * (right - left)
    }

    fn y(&self, lane: usize) -> f64 {
        TOP + (lane as f64 + 0.5) * LANE
    }

    fn bottom(&self) -> f64 {
        self.height - BOTTOM
    }
}

/// Appends; writing to a string can't fail.
fn put(text: &mut String, more: std::fmt::Arguments<'_>) {
    text.write_fmt(more).expect("a string takes whatever is written to it");
}

fn line(text: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64), stroke: &str, width: f64, more: &str) {
    put(
        text,
        format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"{stroke}\" stroke-width=\"{width}\"{more}/>\n"
        ),
    );
}

fn word(text: &mut String, (x, y): (f64, f64), size: u32, anchor: &str, words: &str) {
    let (ink, words) = (colour(INK), escape(words));
    put(
        text,
        format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" font-family=\"sans-serif\" text-anchor=\"{anchor}\" \
             fill=\"{ink}\">{words}</text>\n"
        ),
    );
}

/// The history as an `svg` element with a text alternative.
pub fn svg(timeline: &Timeline, name: &str) -> String {
    let height = TOP + timeline.lanes.len() as f64 * LANE + BOTTOM;
    let layout = Layout { timeline, height };
    let mut text = format!(
        "<svg role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {WIDTH} {height}\" xmlns=\"http://www.w3.org/2000/svg\">\n",
        escape(name)
    );
    legend(&mut text);
    for (lane, name) in timeline.lanes.iter().enumerate() {
        word(&mut text, (LEFT - 8.0, layout.y(lane) + 4.0), 13, "end", name);
    }
    for index in 0..timeline.windows.len() {
        part(&mut text, &layout, index);
    }
    text.push_str("</svg>\n");
    text
}

fn legend(text: &mut String) {
    for (place, sort) in Sort::ALL.into_iter().enumerate() {
        let (column, row) = (place % 3, place / 3);
        let (x, y) = (16.0 + column as f64 * 250.0, 16.0 + row as f64 * 20.0);
        let (shade, width) = line_style(sort);
        line(text, (x, y), (x + 24.0, y), &colour(shade), width, "");
        word(text, (x + 30.0, y + 4.0), 13, "start", sort.words());
    }
}

/// One part of time: lanes, packets, what happened, axis.
fn part(text: &mut String, layout: &Layout<'_>, index: usize) {
    let ((left, right), (from, to)) = (layout.part(index), layout.timeline.windows[index]);
    let (ink, grid) = (colour(INK), colour(GRID));
    let (top, height) = (TOP - 24.0, layout.bottom() - TOP + 24.0);
    put(
        text,
        format_args!(
            "<clipPath id=\"part{index}\"><rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{height:.1}\"/></clipPath>\n",
            right - left
        ),
    );
    for lane in 0..layout.timeline.lanes.len() {
        line(text, (left, layout.y(lane)), (right, layout.y(lane)), &ink, 1.0, "");
    }
    put(text, format_args!("<g clip-path=\"url(#part{index})\">\n"));
    // What matters most is drawn last.
    for sort in Sort::ALL.into_iter().rev().filter(|sort| *sort != Sort::Replay).chain([Sort::Replay]) {
        for flight in layout.timeline.flights.iter().filter(|flight| flight.sort == sort) {
            packet(text, layout, index, flight);
        }
    }
    text.push_str("</g>\n");
    marks(text, layout, index);
    let ticks = 5;
    for tick in 0..=ticks {
        let at_us = from + (to - from) * f64::from(tick) / f64::from(ticks);
        let x = layout.x(index, at_us);
        line(text, (x, layout.bottom()), (x, layout.bottom() + 5.0), &ink, 1.0, "");
        // From the fault on: its moment is the first mark's.
        let zero = layout.timeline.marks.first().map_or(0.0, |mark| mark.at_us);
        word(text, (x, layout.bottom() + 20.0), 12, "middle", &number(at_us - zero));
    }
    line(text, (left, layout.bottom()), (right, layout.bottom()), &grid, 1.0, "");
    let words = if index == 0 { "us since the fault" } else { "us" };
    word(text, ((left + right) / 2.0, layout.bottom() + 40.0), 13, "middle", words);
}

fn packet(text: &mut String, layout: &Layout<'_>, index: usize, flight: &Flight) {
    let (shade, width) = line_style(flight.sort);
    let (y1, y2) = (layout.y(flight.from), layout.y(flight.to));
    let x1 = layout.x(index, flight.sent_us);
    match flight.taken_us {
        Some(taken_us) => line(text, (x1, y1), (layout.x(index, taken_us), y2), &colour(shade), width, ""),
        None => {
            let (x, y) = (x1 + 6.0, y1 + (y2 - y1) * STUB);
            line(text, (x1, y1), (x, y), &colour(shade), width, " stroke-dasharray=\"3 2\"");
            for (dx, dy) in [(3.0, 3.0), (3.0, -3.0)] {
                line(text, (x - dx, y - dy), (x + dx, y + dy), &colour(shade), width, "");
            }
        }
    }
}

/// Across all lanes as broken lines with their names above, at one lane as a disc with its name. Names that
/// would stand on each other are moved down, or up.
fn marks(text: &mut String, layout: &Layout<'_>, index: usize) {
    let (from, to) = layout.timeline.windows[index];
    let mut last: Vec<(Option<usize>, f64, u32)> = Vec::new();
    for mark in layout.timeline.marks.iter().filter(|mark| (from..=to).contains(&mark.at_us)) {
        let x = layout.x(index, mark.at_us);
        let near = last.iter().rev().find(|(lane, at, _)| *lane == mark.lane && (x - at).abs() < 46.0);
        let step = near.map_or(0, |(_, _, step)| (step + 1) % 3);
        last.push((mark.lane, x, step));
        match mark.lane {
            None => {
                let y = TOP - 26.0 - 13.0 * f64::from(step % 2);
                line(text, (x, y + 4.0), (x, layout.bottom()), &colour(INK), 1.0, " stroke-dasharray=\"5 4\"");
                word(text, (x, y), 12, "middle", &mark.name);
            }
            Some(lane) => {
                let (y, ink) = (layout.y(lane), colour(INK));
                put(text, format_args!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{ink}\"/>\n"));
                word(text, (x + 4.0, y - 7.0 - 12.0 * f64::from(step)), 12, "start", &mark.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rerail_sim::figures::Mark;

    use super::*;

    fn timeline() -> Timeline {
        let flight = |sort, sent_us, taken_us| Flight { sort, from: 0, to: 1, sent_us, taken_us };
        Timeline {
            lanes: vec!["rank 0, <a>".into(), "rank 1, <a>".into()],
            windows: vec![(10.0, 20.0), (100.0, 120.0)],
            flights: vec![flight(Sort::Payload, 10.0, None), flight(Sort::Replay, 100.0, Some(120.0))],
            marks: vec![
                Mark { lane: None, at_us: 12.0, name: "fault".into() },
                Mark { lane: Some(0), at_us: 15.0, name: "down & out".into() },
                Mark { lane: Some(0), at_us: 50.0, name: "not shown".into() },
            ],
        }
    }

    #[test]
    fn moments_lie_in_their_part_of_the_width() {
        let timeline = timeline();
        let layout = Layout { timeline: &timeline, height: 400.0 };
        let ((first, end), (next, last)) = (layout.part(0), layout.part(1));
        assert_eq!((first, last, next - end), (LEFT, WIDTH - RIGHT, GAP));
        assert_eq!([10.0, 15.0, 20.0].map(|at| layout.x(0, at)), [first, (first + end) / 2.0, end]);
        assert_eq!(layout.x(1, 100.0), next);
    }

    #[test]
    fn timeline_names_are_escaped_and_gaps_are_omitted() {
        let text = svg(&timeline(), "a \"b\"");
        assert!(text.contains("rank 0, &lt;a&gt;") && text.contains("down &amp; out"), "{text}");
        assert!(text.contains("aria-label=\"a &quot;b&quot;\"") && !text.contains("not shown"), "{text}");
        assert_eq!((text.matches("<svg ").count(), text.matches("</svg>").count()), (1, 1));
    }

    #[test]
    fn undelivered_packet_is_marked_in_the_timeline() {
        let mut timeline = timeline();
        timeline.windows.truncate(1);
        timeline.flights.truncate(1);
        let dashes = |timeline: &Timeline| svg(timeline, "").matches("stroke-dasharray=\"3 2\"").count();
        assert_eq!(dashes(&timeline), 1);
        timeline.flights[0].taken_us = Some(12.0);
        assert_eq!(dashes(&timeline), 0);
    }
}
