//! Compiles the contracts with protox, so that no machine needs protoc. Nothing generated is committed.
#![expect(clippy::disallowed_methods, reason = "cargo tells a build script by environment where to write")]

use std::{env, error::Error, fmt::Write, fs, path::Path};

use protox::{Compiler, prost_reflect::DescriptorPool};

/// Option of a message that travels between services: the name of its topic.
const TOPIC_OPTION: &str = "onsale.events.v1.topic";

fn main() -> Result<(), Box<dyn Error>> {
    let contracts = contracts(Path::new("onsale"))?;
    let mut compiler = Compiler::new([".", "../third_party/proto"])?;
    compiler.include_imports(true).open_files(&contracts)?;

    let out_dir = env::var("OUT_DIR")?;
    let out_dir = Path::new(&out_dir);
    // Encoded by protox itself: a typed descriptor set would drop our options, which are extensions.
    fs::write(out_dir.join("descriptors.bin"), compiler.encode_file_descriptor_set())?;
    fs::write(out_dir.join("event_payloads.rs"), event_payloads(&compiler.descriptor_pool())?)?;

    // Only now with source info: the comments become Rust documentation, but no binary has to carry them.
    tonic_prost_build::configure()
        .bytes(".onsale.events.v1.Envelope.payload")
        .generate_default_stubs(true)
        .compile_fds(compiler.include_source_info(true).file_descriptor_set())?;

    println!("cargo:rerun-if-changed=onsale");
    println!("cargo:rerun-if-changed=../third_party/proto");
    Ok(())
}

/// Every `.proto` file below `folder`, in a stable order.
fn contracts(folder: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut found = Vec::new();
    let mut entries = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(fs::DirEntry::path);
    for entry in entries {
        let path = entry.path();
        if path.is_dir() {
            found.extend(contracts(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            found.push(path.to_str().ok_or("a contract's path is not UTF-8")?.to_owned());
        }
    }
    Ok(found)
}

/// An `EventPayload` for every message with a topic, so that no service writes a topic's name by hand.
fn event_payloads(pool: &DescriptorPool) -> Result<String, Box<dyn Error>> {
    let topic_option = pool.get_extension_by_name(TOPIC_OPTION).ok_or("the topic option is not declared")?;
    let mut implementations = String::new();
    for message in pool.all_messages() {
        let options = message.options();
        if !options.has_extension(&topic_option) {
            continue;
        }
        let topic = options.get_extension(&topic_option);
        let topic = topic.as_str().ok_or("the topic option is not a string")?;
        let (full_name, name) = (message.full_name(), message.name());
        writeln!(implementations, "impl EventPayload for events::v1::{name} {{")?;
        writeln!(implementations, "    const TOPIC: &'static str = {topic:?};")?;
        writeln!(implementations, "    const TYPE: &'static str = {full_name:?};")?;
        writeln!(implementations, "}}")?;
    }
    Ok(implementations)
}
