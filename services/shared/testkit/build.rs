//! Build script: compiles the test contract with protox. Generated code is never committed.

use std::{env, error::Error, fs, path::Path};

const CONTRACT: &str = "onsale/testkit/v1/echo_service.proto";
const INCLUDES: [&str; 3] = ["proto", "../../../proto", "../../../third_party/proto"];

fn main() -> Result<(), Box<dyn Error>> {
    let mut compiler = protox::Compiler::new(INCLUDES)?;
    compiler.include_source_info(false).include_imports(true).open_file(CONTRACT)?;

    // protox encodes the set itself, because a typed descriptor set would drop our method options, which are extensions.
    #[expect(clippy::disallowed_methods, reason = "Cargo tells a build script in no other way")]
    let out_dir = env::var("OUT_DIR")?;
    fs::write(Path::new(&out_dir).join("echo_descriptors.bin"), compiler.encode_file_descriptor_set())?;

    tonic_prost_build::configure()
        .generate_default_stubs(true)
        .compile_fds(compiler.file_descriptor_set())?;

    println!("cargo:rerun-if-changed=proto");
    println!("cargo:rerun-if-changed=../../../proto/onsale/auth/v1/access.proto");
    Ok(())
}
