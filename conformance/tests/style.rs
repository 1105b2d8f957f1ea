//! Style as a test: what the code may not contain, how long files may be, where `unsafe` may stand, and which
//! module of the core may use which. There are no exceptions; if a rule is wrong, it changes here for all.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

#[path = "style/order.rs"]
mod order;

/// Every file that may contain `unsafe`, each with a safety argument. A new one is a decision of the
/// project's.
const UNSAFE_FILES: &[&str] = &[
    "conformance/contract/src/bed/mod.rs",
    "conformance/contract/src/memory.rs",
    "conformance/contract/tests/flawed/mod.rs",
    "conformance/contract/tests/ideal/device.rs",
    "conformance/contract/tests/ideal/memory.rs",
    "conformance/proof/defmt/src/main.rs",
    "conformance/proof/no-std/src/bare.rs",
    "conformance/proof/no-std/src/exchange.rs",
    "conformance/sim/src/cover/witness.rs",
    "conformance/sim/src/hca/device.rs",
    "conformance/sim/src/hca/dma.rs",
    "conformance/sim/src/hca/object.rs",
    "conformance/sim/src/hca/tests/fixture.rs",
    "conformance/sim/src/rails/access.rs",
    "conformance/sim/src/rails/forward.rs",
    "conformance/sim/src/rails/liar.rs",
    "conformance/sim/src/rails/memory.rs",
    "conformance/sim/src/rails/quirks.rs",
    "conformance/sim/src/rails/shm.rs",
    "conformance/sim/src/rails/stream.rs",
    "conformance/sim/src/rails/tests.rs",
    "conformance/sim/src/trace/tap.rs",
    "conformance/sim/tests/verbs_rail/cluster.rs",
    "conformance/testkit/src/shm.rs",
    "conformance/testkit/tests/shm/main.rs",
    "core/src/shm/cells.rs",
    "core/src/shm/consumer.rs",
    "core/src/shm/copy.rs",
    "core/src/shm/mapped.rs",
    "core/src/shm/model.rs",
    "core/src/shm/producer.rs",
    "core/src/shm/tests.rs",
    "core/src/store/arena.rs",
    "os-linux/capi/src/events.rs",
    "os-linux/capi/src/lib.rs",
    "os-linux/capi/src/names.rs",
    "os-linux/capi/src/one_sided.rs",
    "os-linux/examples/event_loop_tokio.rs",
    "os-linux/examples/event_loop_uring.rs",
    "os-linux/examples/verbs_cost.rs",
    "os-linux/ofi/src/abi/info.rs",
    "os-linux/ofi/src/abi/object.rs",
    "os-linux/ofi/src/info.rs",
    "os-linux/ofi/src/lib.rs",
    "os-linux/ofi/src/memory.rs",
    "os-linux/ofi/src/object/atomic.rs",
    "os-linux/ofi/src/object/av.rs",
    "os-linux/ofi/src/object/cntr.rs",
    "os-linux/ofi/src/object/cq.rs",
    "os-linux/ofi/src/object/domain.rs",
    "os-linux/ofi/src/object/ep.rs",
    "os-linux/ofi/src/object/fabric.rs",
    "os-linux/ofi/src/object/message.rs",
    "os-linux/ofi/src/object/mod.rs",
    "os-linux/ofi/src/object/mr.rs",
    "os-linux/ofi/src/object/msg.rs",
    "os-linux/ofi/src/object/rma.rs",
    "os-linux/ofi/src/object/tagged.rs",
    "os-linux/src/bootstrap/pmi1.rs",
    "os-linux/src/bootstrap/pmix.rs",
    "os-linux/src/bootstrap/server/signals.rs",
    "os-linux/src/bootstrap/server/spawn.rs",
    "os-linux/src/bootstrap/server/tests.rs",
    "os-linux/src/driver/at_once.rs",
    "os-linux/src/driver/direct.rs",
    "os-linux/src/driver/drive.rs",
    "os-linux/src/driver/express.rs",
    "os-linux/src/driver/open.rs",
    "os-linux/src/driver/round_timer.rs",
    "os-linux/src/driver/request.rs",
    "os-linux/src/driver/tests/hostile.rs",
    "os-linux/src/driver/tests/leave.rs",
    "os-linux/src/driver/tests/registration.rs",
    "os-linux/src/driver/tests/reopened.rs",
    "os-linux/src/memory.rs",
    "os-linux/src/memory/atomics.rs",
    "os-linux/src/memory/state.rs",
    "os-linux/src/memory/tests.rs",
    "os-linux/src/rail/loopback.rs",
    "os-linux/src/rail/loopback/tests.rs",
    "os-linux/src/rail/mod.rs",
    "os-linux/src/rail/shm/access.rs",
    "os-linux/src/rail/shm/copy.rs",
    "os-linux/src/rail/shm/gate.rs",
    "os-linux/src/rail/shm/link.rs",
    "os-linux/src/rail/shm/offers.rs",
    "os-linux/src/rail/shm/mod.rs",
    "os-linux/src/rail/shm/segment.rs",
    "os-linux/src/rail/shm/tests.rs",
    "os-linux/src/rail/shm/tests/access.rs",
    "os-linux/src/rail/shm/tests/gets.rs",
    "os-linux/src/rail/shm/tests/hostile.rs",
    "os-linux/src/rail/shm/tests/joint.rs",
    "os-linux/src/rail/shm/tests/reads.rs",
    "os-linux/src/rail/tcp/mod.rs",
    "os-linux/src/rail/tcp/receive.rs",
    "os-linux/src/rail/tcp/send.rs",
    "os-linux/src/rail/tcp/sys.rs",
    "os-linux/src/rail/tcp/tests.rs",
    "os-linux/src/rail/verbs/mod.rs",
    "os-linux/src/rail/verbs/registry.rs",
    "os-linux/src/rail/verbs/slab.rs",
    "os-linux/src/rail/verbs/tests/fake.rs",
    "os-linux/src/rail/verbs/tests/mod.rs",
    "os-linux/tests/steady_state.rs",
    "verbs-shim/rdma-core-sys/examples/layout.rs",
    "verbs-shim/rdma-core-sys/src/functions.rs",
    "verbs-shim/rdma-core-sys/src/inline.rs",
    "verbs-shim/rdma-core-sys/src/types.rs",
    "verbs-shim/src/contract/device.rs",
    "verbs-shim/src/contract/work.rs",
    "verbs-shim/src/ffi/events.rs",
    "verbs-shim/src/ffi/mod.rs",
    "verbs-shim/src/ffi/objects.rs",
    "verbs-shim/src/ffi/work.rs",
    "verbs-shim/src/ib/device.rs",
    "verbs-shim/src/tests/device.rs",
    "verbs-shim/src/tests/fake/mod.rs",
    "verbs-shim/src/tests/fake/objects.rs",
];

/// Where in the core such files may lie at all: the arena, and the ring in shared memory.
const UNSAFE_IN_CORE: &[&str] = &["core/src/store/arena.rs", "core/src/shm/"];

/// The layers of the core: a module, and what it names of its siblings, no less and no more. Data runs one
/// way; machines return verdicts and don't call each other; `endpoint` composes.
const LAYERS: &[(&str, &[&str])] = &[
    ("ids", &[]),
    ("log", &[]),
    ("mem", &[]),
    ("time", &[]),
    ("wire", &[]),
    ("store", &["ids", "time"]),
    ("shm", &["wire"]),
    ("api", &["ids", "mem", "store", "time", "wire"]),
    ("fast", &["ids", "store", "wire"]),
    ("rail", &["api", "ids", "time"]),
    ("seq", &["store"]),
    ("tag", &["api", "ids", "mem", "store"]),
    ("rel", &["mem", "seq", "store", "time"]),
    ("paths", &["api", "ids", "rail", "store", "time", "wire"]),
    ("op", &["api", "ids", "mem", "paths", "seq", "store", "time", "wire"]),
    ("peer", &["api", "fast", "ids", "mem", "op", "rail", "rel", "seq", "store", "time", "wire"]),
    (
        "endpoint",
        &[
            "api", "fast", "ids", "log", "mem", "op", "paths", "peer", "rail", "rel", "seq", "store", "tag", "time",
            "wire",
        ],
    ),
    ("shared", &["endpoint"]),
];

/// The lines of `ARCHITECTURE.md` between which the diagram of the core's modules stands. It is written by
/// `RERAIL_WRITE_MAP=1 cargo test -p rerail-conformance --test style`.
const MAP_BEGIN: &str = "<!-- style.rs, RERAIL_WRITE_MAP -->\n```text\n";
const MAP_END: &str = "```\n<!-- end -->";

/// Lines of a file.
const LINES_MAX: usize = 700;

/// The keyword, in two parts, so that this file doesn't contain it.
const UNSAFE: &str = concat!("un", "safe");

/// Words that mark unfinished work. In two parts, so that this file doesn't contain them.
const UNFINISHED: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

struct File {
    /// Path from the project's root, with `/`.
    path: String,
    text: String,
}

impl File {
    fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Lines with their numbers, without what follows `//`.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let code = |line: &'_ str| line.find("//").unwrap_or(line.len());
        self.text.lines().enumerate().map(move |(i, line)| (i + 1, &line[..code(line)]))
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate lies in the project").to_path_buf()
}

/// All text files of the project that people write.
fn files() -> Vec<File> {
    let mut found = Vec::new();
    for start in ["conformance", "core", "fuzz", "os-linux", "verbs-shim", ".ci"] {
        collect(&root().join(start), &mut found);
    }
    assert!(found.iter().any(|file| file.path == "core/src/lib.rs"), "the project is not where this test looks for it");
    found
}

fn collect(folder: &Path, found: &mut Vec<File>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.expect("the folder can be read").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() {
            if !["target", "corpus", "artifacts", "coverage"].contains(&name.as_str()) {
                collect(&path, found);
            }
        } else if ["rs", "sh", "toml", "md", "x"].iter().any(|end| name.ends_with(&format!(".{end}"))) || name == "run"
        {
            let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let path = path.strip_prefix(root()).expect("found below the root").to_string_lossy().replace('\\', "/");
            found.push(File { path, text });
        }
    }
}

/// Whether `text` contains `word` with no letter, digit or underscore beside it.
fn has_word(text: &str, word: &str) -> bool {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word)
        .any(|(at, _)| !text[..at].ends_with(part_of_word) && !text[at + word.len()..].starts_with(part_of_word))
}

/// Fails with one line per finding.
fn none(rule: &str, findings: Vec<String>) {
    assert!(findings.is_empty(), "{rule}:\n  {}", findings.join("\n  "));
}

#[test]
fn no_unfinished_code_is_left() {
    let mut findings = Vec::new();
    for file in files() {
        for (i, line) in file.text.lines().enumerate() {
            if UNFINISHED.iter().any(|word| has_word(line, word)) {
                findings.push(format!("{}:{}: {}", file.path, i + 1, line.trim()));
            }
        }
        for (i, line) in file.code().filter(|_| file.is_rust()) {
            if [concat!("to", "do!("), concat!("unimple", "mented!(")].iter().any(|stub| line.contains(stub)) {
                findings.push(format!("{}:{i}: {}", file.path, line.trim()));
            }
        }
    }
    none("finish it, or make an issue of it", findings);
}

#[test]
fn no_test_is_switched_off() {
    let mut findings = Vec::new();
    for file in files().iter().filter(|file| file.is_rust()) {
        for (i, line) in file.code().filter(|(_, line)| line.contains(concat!("#[ig", "nore"))) {
            findings.push(format!("{}:{i}: {}", file.path, line.trim()));
        }
    }
    none("a test runs, or it does not exist", findings);
}

#[test]
fn files_have_one_concern() {
    let long = |file: &File| file.text.lines().count() >= LINES_MAX;
    let files = files();
    let findings = files.iter().filter(|file| file.is_rust() && long(file));
    let findings = findings.map(|file| format!("{}: {} lines", file.path, file.text.lines().count())).collect();
    none(&format!("a file has fewer than {LINES_MAX} lines"), findings);
}

#[test]
fn unsafe_occurs_only_in_listed_files() {
    let files = files();
    let mut found = BTreeSet::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        if file.code().any(|(_, line)| has_word(line, UNSAFE)) {
            found.insert(file.path.as_str());
        }
    }
    let listed: BTreeSet<&str> = UNSAFE_FILES.iter().copied().collect();
    none("not listed in UNSAFE_FILES", found.difference(&listed).map(|path| path.to_string()).collect());
    none(
        "listed in UNSAFE_FILES, but needs it no more",
        listed.difference(&found).map(|path| path.to_string()).collect(),
    );

    let outside = |path: &&&str| path.starts_with("core/") && !UNSAFE_IN_CORE.iter().any(|at| path.starts_with(at));
    none(
        "outside the arena and the ring of the core",
        listed.iter().filter(outside).map(|path| path.to_string()).collect(),
    );
}

/// The modules of the core, and which siblings each names anywhere in its code, tests included.
fn core_modules() -> BTreeMap<String, BTreeSet<String>> {
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in files() {
        let Some(inside) = file.path.strip_prefix("core/src/").filter(|_| file.is_rust()) else { continue };
        let module = inside.split(['/', '.']).next().unwrap_or_default();
        if module != "lib" {
            // Whole, as a group in braces may have several lines.
            let code: String = file.code().map(|(_, line)| line.trim()).collect::<Vec<_>>().join(" ");
            let named = crate_paths(&code).into_iter().map(|path| path.split("::").next().unwrap_or(&path).to_string());
            uses.entry(module.to_string()).or_default().extend(named.filter(|name| name != module));
        }
    }
    let macros = BTreeSet::from(["core".to_string(), "self".to_string(), String::new()]);
    uses.values_mut().for_each(|named| named.retain(|name| !macros.contains(name)));
    uses
}

/// Modules by layer: each names modules of lower layers only. The error is a circle of modules.
fn layers(uses: &BTreeMap<String, BTreeSet<String>>) -> Result<Vec<Vec<String>>, String> {
    let mut layers: Vec<Vec<String>> = Vec::new();
    let mut placed = BTreeSet::new();
    while placed.len() < uses.len() {
        let free = |(name, named): &(&String, &BTreeSet<String>)| !placed.contains(*name) && named.is_subset(&placed);
        let layer: Vec<String> = uses.iter().filter(free).map(|(name, _)| name.clone()).collect();
        if layer.is_empty() {
            return Err(circle(uses, &placed));
        }
        placed.extend(layer.iter().cloned());
        layers.push(layer);
    }
    Ok(layers)
}

/// A circle among the modules that are in no layer. Each of them names another one.
fn circle(uses: &BTreeMap<String, BTreeSet<String>>, placed: &BTreeSet<String>) -> String {
    let mut way: Vec<&String> = uses.keys().filter(|name| !placed.contains(*name)).take(1).collect();
    loop {
        let Some(next) = uses.get(way[way.len() - 1]).and_then(|named| named.difference(placed).next()) else {
            return format!("{} names what is no module of the core: {way:?}", way[way.len() - 1]);
        };
        way.push(next);
        if let Some(at) = way[..way.len() - 1].iter().position(|name| *name == next) {
            return way[at..].iter().map(|name| name.as_str()).collect::<Vec<_>>().join(" -> ");
        }
    }
}

/// What the diagram draws: a line for each layer, the lowest first; in brackets what a module names, without
/// what those name already.
fn map(uses: &BTreeMap<String, BTreeSet<String>>, layers: &[Vec<String>]) -> String {
    let mut below: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let mut lines = String::new();
    for layer in layers {
        let mut modules = Vec::new();
        for module in layer {
            let named = uses[module].iter().map(String::as_str);
            let indirect: BTreeSet<&str> = named.clone().flat_map(|name| below[name].clone()).collect();
            let direct: Vec<&str> = named.clone().filter(|name| !indirect.contains(name)).collect();
            modules.push(if direct.is_empty() { module.clone() } else { format!("{module}({})", direct.join(",")) });
            below.insert(module, named.chain(indirect).collect());
        }
        lines += &format!("{}\n", modules.join("  "));
    }
    lines
}

#[test]
fn the_core_is_layered() {
    let uses = core_modules();
    let listed: BTreeMap<String, BTreeSet<String>> = LAYERS
        .iter()
        .map(|(name, named)| (name.to_string(), named.iter().map(|it| it.to_string()).collect()))
        .collect();
    let mut findings = Vec::new();
    for module in uses.keys().chain(listed.keys()).collect::<BTreeSet<_>>() {
        if uses.get(module) != listed.get(module) {
            findings.push(format!("{module} names {:?}, listed {:?}", uses.get(module), listed.get(module)));
        }
    }
    none("the layers of the core are those in LAYERS", findings);
    let layers = layers(&uses).unwrap_or_else(|circle| panic!("modules of the core name each other: {circle}"));

    let path = root().join("ARCHITECTURE.md");
    let text = fs::read_to_string(&path).expect("ARCHITECTURE.md can be read");
    let (before, rest) = text.split_once(MAP_BEGIN).expect("the diagram has a beginning");
    let (drawn, after) = rest.split_once(MAP_END).expect("the diagram has an end");
    let map = map(&uses, &layers);
    if std::env::var_os("RERAIL_WRITE_MAP").is_some() {
        fs::write(&path, format!("{before}{MAP_BEGIN}{map}{MAP_END}{after}")).expect("ARCHITECTURE.md can be written");
    } else {
        assert_eq!(drawn, map, "the diagram of the core; RERAIL_WRITE_MAP=1 writes it");
    }
}

/// The helpers of the diagram: what it leaves out, and that it finds a circle.
#[test]
fn circles_are_found_and_lines_are_not_drawn_twice() {
    let graph = |edges: &[(&str, &[&str])]| -> BTreeMap<String, BTreeSet<String>> {
        edges.iter().map(|(name, named)| (name.to_string(), named.iter().map(|it| it.to_string()).collect())).collect()
    };
    let tree = graph(&[("a", &[]), ("b", &["a"]), ("c", &["a", "b"]), ("d", &["a"])]);
    let found = layers(&tree).unwrap();
    assert_eq!(found, [vec!["a"], vec!["b", "d"], vec!["c"]]);
    assert_eq!(map(&tree, &found), "a\nb(a)  d(a)\nc(b)\n");
    let ring = graph(&[("a", &[]), ("b", &["a", "d"]), ("c", &["b"]), ("d", &["c"]), ("e", &["d"])]);
    assert_eq!(layers(&ring), Err("b -> d -> c -> b".to_string()));
    assert!(layers(&graph(&[("a", &["z"])])).is_err());
}

/// The paths behind each `crate::` of a line; a group in braces gives one for each of its members.
fn crate_paths(line: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for (at, start) in line.match_indices("crate::") {
        if line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '$') {
            continue;
        }
        let rest = &line[at + start.len()..];
        let members = match rest.strip_prefix('{') {
            Some(group) => group.split('}').next().unwrap_or_default().split(',').collect(),
            None => vec![rest],
        };
        for member in members {
            let end = member.trim().find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
            paths.push(member.trim()[..end.unwrap_or(member.trim().len())].to_string());
        }
    }
    paths
}

/// Types in the signatures of a transport that are the standard library's.
const STANDARD: &[&str] = &[
    "BorrowedFd",
    "Box",
    "Context",
    "Duration",
    "FnMut",
    "Item",
    "Iterator",
    "None",
    "Option",
    "Poll",
    "Result",
    "Self",
    "Send",
    "String",
    "Unpin",
    "Vec",
];

#[test]
fn rerail_linux_re_exports_what_its_functions_name() {
    let files = files();
    let lib = files.iter().find(|file| file.path == "os-linux/src/lib.rs").expect("the crate's root");
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.path.starts_with("os-linux/src/driver/")) {
        let code: String =
            file.code().take_while(|(i, _)| *i <= own_lines(file)).map(|(_, line)| line.trim()).collect();
        // Methods of the transport and of what makes one.
        for block in ["impl Transport {", "> Transport<C> {", "impl Opening {", "impl Contacts {"] {
            for methods in code.split(block).skip(1).map(|rest| rest.split("}impl").next().unwrap_or(rest)) {
                for signature in methods.split("pub fn ").skip(1).map(|rest| rest.split('{').next().unwrap_or(rest)) {
                    let words = signature.split(|c: char| !(c.is_alphanumeric() || c == '_'));
                    let types = words.filter(|word| word.len() > 1 && word.starts_with(|c: char| c.is_uppercase()));
                    let missing = types.filter(|it| !STANDARD.contains(it) && !has_word(&lib.text, it));
                    findings.extend(missing.map(|it| format!("{}: {it}", file.path)));
                }
            }
        }
    }
    none("a user of rerail_linux needs no other crate", findings);
}

#[test]
fn the_library_starts_no_thread() {
    let files = files();
    let tests = test_modules(&files);
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let library = file.path.starts_with("core/src/") || file.path.starts_with("os-linux/src/");
        if !library
            || tests.iter().any(|test| file.path == format!("{test}.rs") || file.path.starts_with(&format!("{test}/")))
        {
            continue;
        }
        let own = own_lines(file);
        for (i, line) in file.code().filter(|(i, _)| *i <= own) {
            if ["std::thread", "thread::spawn", "thread::scope", "thread::Builder"].iter().any(|it| line.contains(it)) {
                findings.push(format!("{}:{i}: {}", file.path, line.trim()));
            }
        }
    }
    none("threads are the embedder's", findings);
}

/// Where policies are named one by one: where they are declared, and where they are implemented.
const POLICY_FILES: &[&str] = &["core/src/api/config/policy.rs", "core/src/rail/sched/"];

/// Whether a line names a policy of the table: a variant, not a function or a constant.
fn names_policy(line: &str) -> bool {
    line.match_indices("Policy::").any(|(at, prefix)| {
        let is_whole = !line[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let mut name = line[at + prefix.len()..].chars();
        let is_variant = match (name.next(), name.next()) {
            (Some('*' | '{'), _) => true,
            (Some(first), Some(second)) => first.is_ascii_uppercase() && second.is_ascii_lowercase(),
            _ => false,
        };
        is_whole && is_variant
    })
}

/// What the endpoint does otherwise for some policies is a property that `sched` declares, so that a new
/// policy is a file there and a row of the table.
#[test]
fn policies_are_named_only_in_the_scheduler() {
    let files = files();
    let tests = test_modules(&files);
    let mut findings = Vec::new();
    let in_product = |path: &str| path.starts_with("core/src/") || path.starts_with("os-linux/");
    for file in files.iter().filter(|file| file.is_rust() && in_product(&file.path)) {
        let may = file.path.contains("/tests/") || POLICY_FILES.iter().any(|path| file.path.starts_with(path));
        if may
            || tests.iter().any(|test| file.path == format!("{test}.rs") || file.path.starts_with(&format!("{test}/")))
        {
            continue;
        }
        let own = own_lines(file);
        for (i, line) in file.code().filter(|(i, line)| *i <= own && names_policy(line)) {
            findings.push(format!("{}:{i}: {}", file.path, line.trim()));
        }
    }
    none("use a property or a method of the scheduler", findings);
}

/// Lines of a file before the tests that stand in it.
fn own_lines(file: &File) -> usize {
    let lines: Vec<&str> = file.text.lines().map(str::trim).collect();
    let begins_tests = |pair: &[&str]| pair[0] == "#[cfg(test)]" && pair[1].ends_with('{');
    lines.windows(2).position(begins_tests).unwrap_or(lines.len())
}

/// Paths (without `.rs`) of modules that are declared under a `cfg` with `test` in it.
fn test_modules(files: &[File]) -> Vec<String> {
    let mut modules = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let (folder, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
        let folder = match name {
            "lib.rs" | "main.rs" | "mod.rs" => folder.to_string(),
            other => format!("{folder}/{}", other.trim_end_matches(".rs")),
        };
        let (mut for_tests, mut path) = (false, None);
        for (_, line) in file.code() {
            let line = line.trim();
            if line.starts_with("#[cfg(") {
                for_tests |= has_word(line, "test");
            } else if let Some(attribute) = line.strip_prefix("#[path = \"") {
                // Such a path counts from the folder of the file that it stands in.
                let beside = file.path.rsplit_once('/').map_or("", |(folder, _)| folder);
                path = Some(format!("{beside}/{}", attribute.split(".rs").next().unwrap_or_default()));
            } else if !line.starts_with("#[") {
                let declared = line.strip_suffix(';').and_then(|line| line.rsplit_once("mod ")).map(|(_, name)| name);
                if let Some(module) = declared.filter(|_| for_tests) {
                    modules.push(path.take().unwrap_or_else(|| format!("{folder}/{module}")));
                }
                (for_tests, path) = (false, None);
            }
        }
    }
    modules
}

/// The helpers above decide what the rules see.
#[test]
fn rule_helpers_detect_sample_violations() {
    assert!(has_word("a word, yes", "word") && !has_word("swords, words", "word") && !has_word("word_less", "word"));
    assert_eq!(crate_paths("use crate::{ids::PeerId, wire};"), ["ids::PeerId", "wire"]);
    assert_eq!(crate_paths("x: crate::time::Time, $crate::log::debug!()"), ["time::Time"]);
    let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
    let files = [
        file("a/src/lib.rs", "#[cfg(all(test, loom))]\nmod model;\nmod real;\n"),
        file("a/src/real.rs", "#[cfg(test)]\n#[path = \"real_tests.rs\"]\nmod tests;\n"),
        file("a/src/b/mod.rs", "#[cfg(any(test, feature = \"harness\"))]\npub mod harness;\n"),
    ];
    assert_eq!(test_modules(&files), ["a/src/model", "a/src/real_tests", "a/src/b/harness"]);
    assert_eq!(files[0].code().nth(1), Some((2, "mod model;")));
    let inside = file("b.rs", "#[cfg(test)]\nmod tests;\nuse c;\n#[cfg(test)]\nmod more {\n}\n");
    assert_eq!((own_lines(&inside), own_lines(&files[0])), (3, 3));
    let named =
        ["x == Policy::Balanced", "matches!(it, crate::config::Policy::Even)", "use Policy::{Even};", "use Policy::*"];
    assert!(named.into_iter().all(names_policy));
    let others = ["Policy::DEFAULT", "Policy::named(name)", "Policy::ALL", "AckPolicy::Never", "Policy::RAIL_CHOICES"];
    assert!(!others.into_iter().any(names_policy));
}

/// Columns of a comment, or of a line of Markdown. Tables, and what stands verbatim, have their own form.
const COLUMNS_MAX: usize = 110;

#[test]
fn prose_is_at_most_110_columns_wide() {
    let mut findings = Vec::new();
    let mut files = files();
    for entry in fs::read_dir(root()).expect("the project's folder can be read") {
        let path = entry.expect("the folder can be read").path();
        if path.extension().is_some_and(|end| end == "md") {
            let text = fs::read_to_string(&path).expect("a document can be read");
            let name = path.file_name().expect("it has a name").to_string_lossy().into_owned();
            files.push(File { path: name, text });
        }
    }
    let is_markdown = |file: &File| file.path.ends_with(".md");
    for file in files.iter().filter(|file| file.is_rust() || is_markdown(file)) {
        let mut is_verbatim = false;
        for (i, line) in file.text.lines().enumerate() {
            let comment = ["///", "//!", "//"].iter().find_map(|mark| line.trim_start().strip_prefix(mark));
            let Some(prose) = comment.or(is_markdown(file).then_some(line)) else { continue };
            is_verbatim ^= prose.trim_start().starts_with("```");
            let is_form = prose.trim_start().starts_with('|') || prose.starts_with("    ");
            if line.chars().count() > COLUMNS_MAX && !is_verbatim && !is_form {
                findings.push(format!("{}:{}: {} columns", file.path, i + 1, line.chars().count()));
            }
        }
    }
    none("prose is at most 110 columns wide", findings);
}
