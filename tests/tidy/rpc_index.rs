//! The index from RPC to code, `docs/rpc-index.md`: generated from the contracts and from where the code is.

use std::fmt::Write as _;

use onsale_tests::repository::{self, SERVICES};

use super::assert_none;

const DOCUMENT: &str = "docs/rpc-index.md";

const INTRODUCTION: &str = "# RPC index

Each RPC with its contract and its use case. The handler is in `src/grpc.rs` (or a file of `src/grpc/`) of the same service and calls the
use case, whose first line shows the path of the call. `tests/tidy/rpc_index.rs` checks this page and prints the expected text.
";

/// RPCs that share the use case of another one, whose effect they have.
const SHARED: [(&str, &str); 1] = [("Heartbeat", "GetPosition")];

/// An RPC of a contract.
struct Rpc {
    service: &'static str,
    contract: String,
    grpc_service: String,
    name: String,
}

impl Rpc {
    /// Returns the file that holds the use case: named after the RPC, or after the one whose use case it shares.
    fn use_case(&self) -> String {
        let shared = SHARED.iter().find(|(rpc, _)| *rpc == self.name);
        let name = shared.map_or(self.name.as_str(), |(_, owner)| owner);
        format!("services/{}/src/app/{}.rs", self.service, snake_case(name))
    }
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for (index, letter) in name.char_indices() {
        if letter.is_ascii_uppercase() && index > 0 {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// Returns the word after `keyword` at the start of a line of a `.proto` file.
fn declared<'a>(line: &'a str, keyword: &str) -> Option<&'a str> {
    line.trim_start().strip_prefix(keyword)?.split(['(', ' ', '{']).next()
}

fn rpcs() -> Vec<Rpc> {
    let mut rpcs = Vec::new();
    for service in SERVICES {
        for file in repository::files(&format!("proto/onsale/{service}"), "_service.proto") {
            let mut grpc_service = "";
            for line in file.text.lines() {
                grpc_service = declared(line, "service ").unwrap_or(grpc_service);
                if let Some(name) = declared(line, "rpc ") {
                    rpcs.push(Rpc {
                        service,
                        contract: file.path.clone(),
                        grpc_service: grpc_service.to_owned(),
                        name: name.to_owned(),
                    });
                }
            }
        }
    }
    rpcs
}

/// Returns true if the README lists the RPC as not implemented; `tests/unserved.rs` keeps that list true.
fn is_unserved(rpc: &Rpc, readme: &str) -> bool {
    let service = format!("{}.v1.{}", rpc.service, rpc.grpc_service);
    readme.lines().any(|line| line.contains(&service) && line.split([' ', ',']).any(|word| word == rpc.name))
}

#[test]
fn every_rpc_has_a_use_case_of_its_name() {
    let readme = repository::read("README.md");
    let missing = rpcs().into_iter().filter(|rpc| !is_unserved(rpc, &readme));
    let missing: Vec<_> =
        missing.map(|rpc| rpc.use_case()).filter(|path| !repository::root().join(path).is_file()).collect();
    assert_none(&missing, "the use case of an RPC is in a file named after it");
}

#[test]
fn rpc_index_is_current() {
    let readme = repository::read("README.md");
    let mut expected = INTRODUCTION.to_owned();
    let mut table = String::new();
    for rpc in rpcs() {
        let name = format!("{}.v1.{}", rpc.service, rpc.grpc_service);
        if table != name {
            let _ = write!(
                expected,
                "\n## {name}\n\nContract: `{}`\n\n| RPC | use case |\n|---|---|\n",
                rpc.contract
            );
            table = name;
        }
        let place = if is_unserved(&rpc, &readme) {
            "not implemented yet".to_owned()
        } else {
            format!("`{}`", rpc.use_case())
        };
        let _ = writeln!(expected, "| {} | {place} |", rpc.name);
    }
    assert!(repository::read(DOCUMENT) == expected, "put this text into {DOCUMENT}:\n{expected}");
}
