//! `rerail report`: the papers' figures, run again in simulated clusters, as one page and as tables.
//!
//! The figures are data (`rerail_sim::figures`), the same that tests take; here they are drawn (`plot`,
//! `timeline`), set (`page`) and printed in the terminal.

mod page;
pub mod plot;
mod text;
mod timeline;

use std::fs::File;
use std::io::Write as _;
use std::num::NonZero;
use std::path::{Path, PathBuf};

use rerail_sim::figures::{Effort, Figure, FigureError, Lab, SETS, Set, Step};
use serde::Serialize;

use crate::cli::ReportArgs;
use crate::exit::{Exit, Failure};
use crate::interrupt;
use crate::output::{Align, Progress, Table, bad, bold, good, json, write_stdout};
use text::{expected, number, quantity};

/// A set of figures that was run.
#[derive(Clone, Debug, Serialize)]
struct Chapter {
    name: &'static str,
    about: &'static str,
    figures: Vec<Figure>,
}

/// All that was run, for programs.
#[derive(Clone, Debug, Serialize)]
struct Report<'a> {
    /// Claims of all figures.
    claims: usize,
    /// Those that do not hold.
    failed: usize,
    /// The page.
    page: &'a Path,
    sets: &'a [Chapter],
}

/// Runs the named sets, or all; writes the page, prints the claims.
///
/// # Errors
/// [`Exit::Verification`] where a simulation did not end clean, [`Exit::Usage`] where the page can't be
/// written.
pub fn run(args: &ReportArgs) -> Result<Exit, Failure> {
    run_of(args, SETS)
}

fn run_of(args: &ReportArgs, sets: &[Set]) -> Result<Exit, Failure> {
    // First: what it would hold is an hour's work.
    let file = make(&args.out)?;
    let wanted: Vec<&Set> = sets.iter().filter(|set| args.wants(set.name)).collect();
    let effort = if args.quick { Effort::Quick } else { Effort::Full };
    let progress = Progress::steps(!args.json, 0, "simulations");
    let mut on_step = |step: &Step| {
        progress.set_total(step.total);
        progress.set(step.done);
        progress.set_status(|| step.what.clone());
    };
    let mut lab = Lab::new(threads(args), &mut on_step);
    let run = |set: &&Set| {
        let figures = (set.figures)(&mut lab, effort)?;
        Ok(Chapter { name: set.name, about: set.about, figures })
    };
    let chapters: Vec<Chapter> =
        wanted.iter().map(run).collect::<Result<_, FigureError>>().map_err(Failure::verification)?;
    progress.finish();

    let page = page::render(&chapters).map_err(Failure::verification)?;
    write(&file, &page)?;
    let claims = || chapters.iter().flat_map(|chapter| &chapter.figures).flat_map(|figure| &figure.claims);
    let failed = claims().filter(|claim| !claim.holds()).count();
    match args.json {
        true => json(&Report { claims: claims().count(), failed, page: &file, sets: &chapters })?,
        false => write_stdout(&render(&chapters, &file, claims().count(), failed))?,
    }
    Ok(if failed == 0 { Exit::Ok } else { Exit::Verification })
}

/// As many as requested, else one per processor.
fn threads(args: &ReportArgs) -> NonZero<usize> {
    let requested = args.threads.and_then(|threads| NonZero::new(threads as usize));
    requested.or_else(|| std::thread::available_parallelism().ok()).unwrap_or(NonZero::<usize>::MIN)
}

/// Makes the page's folder where it is absent, and sees that the page can be written there. One that is there
/// stays until then.
fn make(folder: &Path) -> Result<PathBuf, Failure> {
    let file = folder.join("index.html");
    std::fs::create_dir_all(folder).map_err(|error| refused(folder, &error))?;
    let temporary = beside(&file);
    interrupt::make(&temporary, || File::create(&temporary)).map_err(|error| refused(&file, &error))?;
    let _ = std::fs::remove_file(&temporary);
    interrupt::done_with(&temporary);
    if file.is_dir() {
        return Err(refused(&file, &std::io::ErrorKind::IsADirectory.into()));
    }
    Ok(file)
}

/// Writes the page as a whole: one that is there stays until the new one is complete.
fn write(file: &Path, page: &str) -> Result<(), Failure> {
    let temporary = beside(file);
    let made = interrupt::make(&temporary, || File::create(&temporary));
    let written = made.and_then(|mut made| made.write_all(page.as_bytes()));
    let written = written.and_then(|()| std::fs::rename(&temporary, file));
    let written = written.map_err(|error| refused(file, &error));
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    interrupt::done_with(&temporary);
    written
}

/// Where the page is put together.
fn beside(file: &Path) -> PathBuf {
    file.with_file_name(format!(".index.html.{}.part", std::process::id()))
}

fn refused(path: &Path, error: &std::io::Error) -> Failure {
    Failure::usage(format!("{}: {error}", path.display()))
}

/// The claims, for people.
fn render(chapters: &[Chapter], file: &Path, claims: usize, failed: usize) -> String {
    let mut text = String::new();
    for figure in chapters.iter().flat_map(|chapter| &chapter.figures) {
        let mut table = Table::new(&[
            ("claim", Align::Left),
            ("expected", Align::Left),
            ("tolerance", Align::Right),
            ("measured", Align::Right),
            ("", Align::Left),
        ]);
        for claim in &figure.claims {
            table.row([
                claim.name.clone(),
                expected(claim),
                format!("{} %", number(claim.tolerance * 100.0)),
                quantity(claim.measured, claim.unit),
                if claim.holds() { good("holds") } else { bad("FAILS") },
            ]);
        }
        text += &format!("{}  {}\n{}\n\n", bold(&figure.source), figure.title, table.render());
    }
    text += &match failed {
        0 => good(&format!("all {claims} claims hold")),
        _ => bad(&format!("{failed} of {claims} claims do not hold")),
    };
    text + &format!("\n{}", file.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An interrupted report leaves the page as it was: none, or the one before.
    #[test]
    fn a_page_is_written_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let file = make(&folder.path().join("new")).unwrap();
        assert!(!file.exists());
        assert_eq!(std::fs::read_dir(folder.path().join("new")).unwrap().count(), 0);
        write(&file, "page").unwrap();
        assert_eq!(std::fs::read_to_string(make(&folder.path().join("new")).unwrap()).unwrap(), "page");
        assert_eq!(std::fs::read_dir(folder.path().join("new")).unwrap().count(), 1);
    }

    /// Before anything is run.
    #[test]
    fn unwritable_report_page_is_reported_before_the_run() {
        let set = Set { name: "never", about: "", figures: |_, _| panic!("it was run") };
        for out in ["/dev/null/page", "/proc/self"] {
            let args = ReportArgs { names: Vec::new(), out: out.into(), quick: true, threads: None, json: true };
            let printed = run_of(&args, std::slice::from_ref(&set)).unwrap_err();
            assert!(printed.exit == Exit::Usage && printed.message.starts_with(out), "{printed}");
        }
    }
}
