//! The header against the library: a program of C that is compiled with all warnings, linked with both forms
//! of the library and run; sizes and names. Without a C compiler the test compares only the names, and
//! reports that.

use std::path::{Path, PathBuf};
use std::process::Command;

const HEADER: &str = include_str!("../include/rerail.h");
const LIBRARY: &str = concat!(
    include_str!("../src/lib.rs"),
    include_str!("../src/names.rs"),
    include_str!("../src/one_sided.rs"),
    include_str!("../src/events.rs")
);

/// Where cargo has put the library: beside this test.
fn libraries() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    test.parent().expect("it lies in a folder").to_path_buf()
}

fn compile(source: &Path, name: &str, arguments: &[&str]) -> Option<PathBuf> {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let include = Path::new(env!("CARGO_MANIFEST_DIR")).join("include");
    let mut compiler = Command::new("cc");
    compiler.args(["-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I"]).arg(include);
    let output = compiler.arg("-o").args([&program, source]).args(arguments).output().ok()?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

#[test]
fn every_function_is_declared_and_every_declaration_exists() {
    let names = |text: &str, fronts: &[&str]| -> Vec<String> {
        let front = |line: &str| fronts.iter().find_map(|front| line.strip_prefix(front).map(str::to_owned));
        let mut names: Vec<String> = text
            .lines()
            .filter_map(front)
            .filter_map(|rest| rest.split_once('(').map(|(name, _)| name.to_owned()))
            .filter(|name| name.starts_with("rerail_"))
            .collect();
        names.sort();
        names
    };
    let defined = names(LIBRARY, &[concat!("pub un", "safe extern \"C\" fn ")]);
    assert_eq!(defined, names(HEADER, &["int ", "size_t ", "const char *"]));
    assert!(defined.len() > 15);
}

#[test]
fn a_program_of_c_exchanges_messages() {
    both_forms("program");
}

#[test]
fn programs_of_c_meet_by_name() {
    both_forms("names");
}

fn both_forms(program: &str) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/{program}.c"));
    let folder = libraries();
    let (search, run) = (format!("-L{}", folder.display()), format!("-Wl,-rpath,{}", folder.display()));
    let archive = folder.join("librerail_c.a").display().to_string();
    let forms: [(&str, &[&str]); 2] =
        [("shared", &[&search, &run, "-lrerail_c"]), ("static", &[&archive, "-lpthread", "-ldl", "-lm", "-lgcc_s"])];
    for (name, arguments) in forms {
        let Some(program) = compile(&source, &format!("{program}-{name}"), arguments) else {
            println!("absent: a C compiler");
            return;
        };
        let output = Command::new(program).output().expect("it runs");
        assert!(output.status.success(), "{name}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn events_have_one_size() {
    let source = Path::new(env!("CARGO_TARGET_TMPDIR")).join("size.c");
    let text = "#include <stdio.h>\n#include \"rerail.h\"\n\
        int main(void) { printf(\"%zu\", sizeof(rerail_event)); return 0; }\n";
    std::fs::write(&source, text).expect("the test's folder can be written to");
    let Some(program) = compile(&source, "size", &[]) else {
        println!("absent: a C compiler");
        return;
    };
    let output = Command::new(program).output().expect("it runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout), rerail_c::EVENT_BYTES.to_string());
}
