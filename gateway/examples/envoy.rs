//! Writes the configuration of Envoy into a folder: `envoy.yaml`, and the public contract `onsale.pb` for REST transcoding.
//! Usage: `cargo run -p onsale-gateway --example envoy -- FOLDER [GATEWAY_HOST]`

use std::{error::Error, fs, path::PathBuf};

use onsale_gateway::{
    descriptors,
    envoy::{EnvoySettings, HostPort, render},
};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder: PathBuf = arguments.next().ok_or("missing folder; usage: -- FOLDER [GATEWAY_HOST]")?.into();
    let mut settings =
        EnvoySettings { descriptor_path: folder.join("onsale.pb"), ..EnvoySettings::default() };
    if let Some(host) = arguments.next() {
        settings.listen = ([0, 0, 0, 0], 8080).into();
        settings.gateway_grpc = HostPort { host: host.clone(), port: 7100 };
        settings.gateway_http = HostPort { host, port: 7110 };
    }
    fs::create_dir_all(&folder)?;
    fs::write(&settings.descriptor_path, descriptors::public()?)?;
    fs::write(folder.join("envoy.yaml"), render(&settings)?)?;
    Ok(())
}
