//! One HTML page: for each figure the paper's in words, ours as a plot, the claims, and the table behind the
//! plot.
//!
//! The page stands alone: no script, nothing loaded from anywhere, and nothing in it that depends on the
//! machine or on the moment, so that the same figures give the same page to the byte. Text is escaped
//! ([`escape`]) wherever it comes from.

use std::fmt::Write;

use rerail_sim::figures::{Claim, Figure};

use super::Chapter;
use super::plot::{PlotError, dark_rules, svg};
use super::text::{expected, heading, number, on_axis, quantity};
use super::timeline;

/// The page of these chapters.
///
/// # Errors
/// [`PlotError`] for the first figure that can't be drawn.
pub fn render(chapters: &[Chapter]) -> Result<String, PlotError> {
    let mut body = String::from("<h1>The papers' figures, run again</h1>\n");
    put(&mut body, format_args!("<p>{}</p>\n", escape(INTRODUCTION)));
    summary(&mut body, chapters);
    for chapter in chapters {
        put(&mut body, format_args!("<h2 id=\"{0}\">{0}</h2>\n", escape(chapter.name)));
        put(&mut body, format_args!("<p class=\"source\">{}</p>\n", escape(chapter.about)));
        for figure in &chapter.figures {
            section(&mut body, figure)?;
        }
    }
    let style = format!("{STYLE}@media (prefers-color-scheme: dark) {{\n{}}}\n", dark_rules());
    Ok(format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>rerail: the papers' figures, run again</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n\
         {body}<footer>rerail {}</footer>\n</main>\n</body>\n</html>\n",
        env!("CARGO_PKG_VERSION")
    ))
}

/// Text that means only itself, between tags and in quoted attributes.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}

const INTRODUCTION: &str = "All values are in the virtual time of simulated clusters: the transport is the real one, wires, \
    adapters, buses and processors are models whose constants are fitted to the papers' values of one rail. Broken lines \
    are values that the paper states. Wherever the paper gives no number, the expected value follows from its words, and the \
    tolerance is ours.";

const STYLE: &str = "\
:root { color-scheme: light dark; --ground: #fff; --ink: #222226; --dim: #62626a; --line: #d8d8de; --well: #00693f; \
--wrong: #b3261e }
@media (prefers-color-scheme: dark) { :root { --ground: #17171b; --ink: #e4e4e8; --dim: #a0a0aa; --line: #3c3c44; \
--well: #57d39b; --wrong: #ff8a80 } }
body { margin: 0; background: var(--ground); color: var(--ink); font: 16px/1.5 system-ui, sans-serif }
main { max-width: 800px; margin: 0 auto; padding: 1rem }
h1 { font-size: 1.6rem } h2 { font-size: 1.3rem; margin-top: 3rem } h3 { font-size: 1.1rem; margin-top: 2.5rem }
h2, footer { border-top: 1px solid var(--line); padding-top: 1rem }
dt { font-weight: 600 } dd { margin: 0 0 .5rem 0 }
.source, footer, caption { color: var(--dim) }
svg { width: 100%; height: auto; margin: 1rem 0 }
.wide { overflow-x: auto }
table { border-collapse: collapse; margin: 1rem 0; font-size: .9rem; font-variant-numeric: tabular-nums }
caption { text-align: left; padding-bottom: .3rem }
th, td { text-align: left; padding: .2rem .8rem .2rem 0; border-bottom: 1px solid var(--line); vertical-align: top }
th.number, td.number { text-align: right }
.holds { color: var(--well); font-weight: 600 } .fails { color: var(--wrong); font-weight: 600 }
a { color: inherit }
";

/// Appends; writing to a string can't fail.
fn put(text: &mut String, more: std::fmt::Arguments<'_>) {
    text.write_fmt(more).expect("a string takes whatever is written to it");
}

/// How many claims hold, and which don't.
fn summary(body: &mut String, chapters: &[Chapter]) {
    let figures = || chapters.iter().flat_map(|chapter| &chapter.figures);
    let claims = figures().map(|figure| figure.claims.len()).sum::<usize>();
    let failed: Vec<(&Figure, &Claim)> = figures()
        .flat_map(|figure| figure.claims.iter().map(move |claim| (figure, claim)))
        .filter(|(_, claim)| !claim.holds())
        .collect();
    if failed.is_empty() {
        return put(body, format_args!("<p class=\"holds\">All {claims} claims hold.</p>\n"));
    }
    put(body, format_args!("<p class=\"fails\">{} of {claims} claims do not hold:</p>\n<ul>\n", failed.len()));
    for (figure, claim) in failed {
        let (id, source, name) = (anchor(figure), escape(&figure.source), escape(&claim.name));
        put(body, format_args!("<li><a href=\"#{id}\">{source}</a>: {name}</li>\n"));
    }
    body.push_str("</ul>\n");
}

/// A figure's place on the page: letters, digits and hyphens.
fn anchor(figure: &Figure) -> String {
    let words = figure.source.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-")
}

fn section(body: &mut String, figure: &Figure) -> Result<(), PlotError> {
    let (id, source, title) = (anchor(figure), escape(&figure.source), escape(&figure.title));
    put(body, format_args!("<section id=\"{id}\">\n<h3>{source}: {title}</h3>\n"));
    let (paper, ours) = (escape(&figure.paper), escape(&figure.ours));
    put(body, format_args!("<dl><dt>The paper's</dt><dd>{paper}</dd><dt>Ours</dt><dd>{ours}</dd></dl>\n"));
    match &figure.timeline {
        Some(timeline) => body.push_str(&timeline::svg(timeline, &format!("{}: {}", figure.source, figure.title))),
        None => body.push_str(&svg(figure)?),
    }
    claims(body, figure);
    if !figure.series.is_empty() {
        points(body, figure);
    }
    body.push_str("</section>\n");
    Ok(())
}

/// What must be so, and whether it is.
fn claims(body: &mut String, figure: &Figure) {
    body.push_str(
        "<div class=\"wide\"><table><caption>Claims</caption>\n<tr><th>claim</th><th>expected</th>\
         <th class=\"number\">tolerance</th><th class=\"number\">ours</th><th></th></tr>\n",
    );
    for claim in &figure.claims {
        let (word, class) = if claim.holds() { ("holds", "holds") } else { ("fails", "fails") };
        put(
            body,
            format_args!(
                "<tr><td>{}</td><td>{}</td><td class=\"number\">{} %</td><td class=\"number\">{}</td>\
                 <td class=\"{class}\">{word}</td></tr>\n",
                escape(&claim.name),
                escape(&expected(claim)),
                number(claim.tolerance * 100.0),
                escape(&quantity(claim.measured, claim.unit)),
            ),
        );
    }
    body.push_str("</table></div>\n");
}

/// The table behind the plot: a row for each x that any curve has.
fn points(body: &mut String, figure: &Figure) {
    let mut places: Vec<f64> = figure.series.iter().flat_map(|series| &series.points).map(|point| point.0).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    put(
        body,
        format_args!(
            "<div class=\"wide\"><table><caption>{}</caption>\n<tr><th class=\"number\">{}</th>",
            escape(&heading(&figure.y)),
            escape(&heading(&figure.x))
        ),
    );
    for series in &figure.series {
        put(body, format_args!("<th class=\"number\">{}</th>", escape(&series.name)));
    }
    body.push_str("</tr>\n");
    for x in places {
        put(body, format_args!("<tr><td class=\"number\">{}</td>", escape(&on_axis(&figure.x, x))));
        for series in &figure.series {
            let cell = series.at(x).map(number).unwrap_or_default();
            put(body, format_args!("<td class=\"number\">{cell}</td>"));
        }
        body.push_str("</tr>\n");
    }
    body.push_str("</table></div>\n");
}

#[cfg(test)]
pub(super) mod tests {
    use rerail_sim::figures::{Axis, Relation, Scale, Series};

    use super::*;

    /// A figure of two curves, for tests of what is made of it.
    pub fn figure() -> Figure {
        let series = |name: &str, points: &[(f64, f64)]| Series { name: name.into(), points: points.to_vec() };
        Figure {
            source: "some-paper-1999, figure 3".into(),
            title: "Bandwidth".into(),
            paper: "It grows.".into(),
            ours: "It grows here too.".into(),
            timeline: None,
            x: Axis::message_bytes(),
            y: Axis { label: "bandwidth".into(), unit: "MB/s".into(), scale: Scale::Linear },
            series: vec![
                series("one", &[(8.0, 1.0), (64.0, 3.0), (65536.0, 4.0)]),
                series("two", &[(8.0, 1.5), (65536.0, 8.25)]),
            ],
            stated: Vec::new(),
            claims: vec![claim(8.25)],
        }
    }

    fn claim(measured: f64) -> Claim {
        let relation = Relation::AtLeast;
        Claim { name: "peak".into(), expected: 8.0, relation, tolerance: 0.0, measured, unit: "MB/s" }
    }

    fn page(figures: Vec<Figure>) -> String {
        render(&[Chapter { name: "some", about: "Some paper", figures }]).expect("a page")
    }

    #[test]
    fn report_table_has_a_row_per_size_and_empty_cells() {
        let page = page(vec![figure()]);
        let row = |cells: [&str; 3]| {
            let cells: Vec<String> = cells.iter().map(|cell| format!("<td class=\"number\">{cell}</td>")).collect();
            format!("<tr>{}</tr>", cells.concat())
        };
        for cells in [["8", "1", "1.5"], ["64", "3", ""], ["64K", "4", "8.25"]] {
            assert!(page.contains(&row(cells)), "{cells:?} in {page}");
        }
    }

    #[test]
    fn a_figure_with_a_picture_has_no_plot_and_no_table_behind_it() {
        let timeline = rerail_sim::figures::Timeline { lanes: vec!["rank 0, a".into()], ..Default::default() };
        let page = page(vec![Figure { series: Vec::new(), timeline: Some(timeline), ..figure() }]);
        assert_eq!((page.matches("<svg ").count(), page.matches("<table>").count()), (1, 1), "{page}");
        assert!(page.contains("rank 0, a") && page.contains("<caption>Claims</caption>"), "{page}");
    }

    #[test]
    fn claims_that_fail_are_named_at_the_top() {
        let well = page(vec![figure()]);
        assert!(well.contains("All 1 claims hold.") && !well.contains(">fails<"));
        let mut wrong = figure();
        wrong.claims.push(claim(7.9));
        let page = page(vec![wrong]);
        assert!(page.contains("1 of 2 claims do not hold:"), "{page}");
        assert!(page.contains("<li><a href=\"#some-paper-1999-figure-3\">some-paper-1999, figure 3</a>: peak</li>"));
        assert!(page.contains("<section id=\"some-paper-1999-figure-3\">"));
        assert!(page.contains("<td class=\"fails\">fails</td>") && page.contains("<td class=\"holds\">holds</td>"));
    }

    #[test]
    fn report_text_is_escaped_everywhere() {
        let hostile = "<img src=x onerror=\"a('b')\"> & co";
        let mut figure = figure();
        for text in [&mut figure.source, &mut figure.title, &mut figure.paper, &mut figure.ours] {
            *text = hostile.into();
        }
        for text in [&mut figure.x.label, &mut figure.y.label, &mut figure.y.unit] {
            *text = hostile.into();
        }
        figure.series[0].name = hostile.into();
        figure.claims[0].name = hostile.into();
        figure.claims[0].measured = 0.0;
        let page = page(vec![figure]);
        assert!(!page.contains("<img") && !page.contains("onerror=\""), "{page}");
        assert_eq!(escape(hostile), "&lt;img src=x onerror=&quot;a(&#39;b&#39;)&quot;&gt; &amp; co");
    }

    #[test]
    fn the_page_loads_nothing_and_is_the_same_each_time() {
        let first = page(vec![figure()]);
        assert_eq!(first, page(vec![figure()]));
        // The name of SVG's namespace is the only address, and is not loaded.
        let addresses: Vec<_> = first.match_indices("://").collect();
        assert_eq!(addresses.len(), first.matches("xmlns=\"http://www.w3.org/2000/svg\"").count(), "{addresses:?}");
        for word in ["<script", "<link", " src=", "@import", "url("] {
            assert!(!first.contains(word), "{word}");
        }
        assert!(first.contains("prefers-color-scheme: dark"));
    }

    #[test]
    fn a_figure_without_points_is_an_error_not_a_page() {
        let mut empty = figure();
        empty.series[1].points.clear();
        let result = render(&[Chapter { name: "some", about: "", figures: vec![figure(), empty] }]);
        assert_eq!(result, Err(PlotError::Empty { series: "two".into() }));
    }
}
