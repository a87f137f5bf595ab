//! Compiles the contracts with protox, so that no machine needs protoc. Generated code is not committed.
#![expect(
    clippy::disallowed_methods,
    reason = "cargo passes the output folder to a build script in the environment"
)]

use std::{env, error::Error, fmt::Write, fs, path::Path};

use protox::{
    Compiler,
    prost_reflect::{DescriptorPool, MessageDescriptor, Value},
};

/// Message options of event payloads: topic, source and listeners.
const TOPIC_OPTION: &str = "onsale.events.v1.topic";
const SOURCE_OPTION: &str = "onsale.events.v1.source";
const LISTENERS_OPTION: &str = "onsale.events.v1.listeners";

fn main() -> Result<(), Box<dyn Error>> {
    let contracts = contracts(Path::new("onsale"))?;
    let mut compiler = Compiler::new([".", "../third_party/proto"])?;
    compiler.include_imports(true).open_files(&contracts)?;

    let out_dir = env::var("OUT_DIR")?;
    let out_dir = Path::new(&out_dir);
    // Encoded by protox itself, because `prost_types` would drop our options, which are extensions.
    fs::write(out_dir.join("descriptors.bin"), compiler.encode_file_descriptor_set())?;
    fs::write(out_dir.join("event_payloads.rs"), event_payloads(&compiler.descriptor_pool())?)?;

    // Source info is included only here: comments become Rust documentation but are not stored in binaries.
    tonic_prost_build::configure()
        .bytes(".onsale.events.v1.Envelope.payload")
        .codec_path("crate::codec::LeanCodec")
        .generate_default_stubs(true)
        .compile_fds(compiler.include_source_info(true).file_descriptor_set())?;

    println!("cargo:rerun-if-changed=onsale");
    println!("cargo:rerun-if-changed=../third_party/proto");
    Ok(())
}

/// Returns every `.proto` file below `folder` in a stable order.
fn contracts(folder: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut found = Vec::new();
    let mut entries = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(fs::DirEntry::path);
    for entry in entries {
        let path = entry.path();
        if path.is_dir() {
            found.extend(contracts(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            found.push(path.to_str().ok_or("the path of a contract is not UTF-8")?.to_owned());
        }
    }
    Ok(found)
}

/// Generates an `EventPayload` for every message with a topic, and the list of all topics, so that services contain no topic names
/// or names of other services as text.
fn event_payloads(pool: &DescriptorPool) -> Result<String, Box<dyn Error>> {
    let mut implementations = String::new();
    let mut topics = String::new();
    for message in pool.all_messages() {
        let topic = texts(pool, &message, TOPIC_OPTION)?;
        let source = texts(pool, &message, SOURCE_OPTION)?;
        let listeners = texts(pool, &message, LISTENERS_OPTION)?;
        let (full_name, name) = (message.full_name(), message.name());
        let (topic, source) = match (topic.as_slice(), source.as_slice()) {
            ([topic], [source]) if !listeners.is_empty() => (topic, source),
            ([], []) if listeners.is_empty() => continue,
            _ => return Err(format!("{full_name} needs all of topic, source and listeners, or none").into()),
        };
        writeln!(implementations, "impl EventPayload for events::v1::{name} {{")?;
        writeln!(implementations, "    const TOPIC: &'static str = {topic:?};")?;
        writeln!(implementations, "    const TYPE: &'static str = {full_name:?};")?;
        writeln!(implementations, "    const SOURCE: &'static str = {source:?};")?;
        writeln!(implementations, "    const LISTENERS: &'static [&'static str] = &{listeners:?};")?;
        writeln!(implementations, "}}")?;
        writeln!(topics, "    Topic::of::<events::v1::{name}>(),")?;
    }
    writeln!(implementations, "/// Every topic of the contract.")?;
    writeln!(implementations, "pub const TOPICS: &[Topic] = &[\n{topics}];")?;
    Ok(implementations)
}

/// Returns the texts of an option of `message`; empty if the option is not set.
fn texts(
    pool: &DescriptorPool,
    message: &MessageDescriptor,
    option: &str,
) -> Result<Vec<String>, Box<dyn Error>> {
    let extension = pool.get_extension_by_name(option).ok_or_else(|| format!("{option} is not declared"))?;
    let options = message.options();
    if !options.has_extension(&extension) {
        return Ok(Vec::new());
    }
    let value = options.get_extension(&extension);
    let values = value.as_list().unwrap_or(std::slice::from_ref(&value));
    Ok(values.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}
