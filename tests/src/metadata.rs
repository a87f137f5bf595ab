//! What Cargo says of the workspace and everything it depends on.

use std::{collections::BTreeSet, process::Command};

use serde::Deserialize;

use crate::repository;

/// The parts of `cargo metadata` that the checks read.
#[derive(Debug, Deserialize)]
pub struct Metadata {
    /// Ours and everybody else's.
    pub packages: Vec<Package>,
    /// The ids of ours.
    pub workspace_members: Vec<String>,
    resolve: Resolve,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Debug, Deserialize)]
struct Node {
    id: String,
    dependencies: Vec<String>,
}

/// One crate at one version.
#[derive(Debug, Deserialize)]
pub struct Package {
    /// Cargo's id of it.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// An SPDX expression, or none.
    pub license: Option<String>,
    /// Where it comes from; none for a crate of ours.
    pub source: Option<String>,
    /// Its manifest on this machine.
    pub manifest_path: String,
    /// What it asks for.
    pub dependencies: Vec<Dependency>,
}

/// One line of a crate's dependency tables.
#[derive(Debug, Deserialize)]
pub struct Dependency {
    /// The crate asked for.
    pub name: String,
    /// `dev`, `build`, or none for a normal one.
    pub kind: Option<String>,
}

impl Metadata {
    /// Asks Cargo, without the network, for the dependencies of our Linux targets.
    pub fn load() -> Result<Self, Box<dyn std::error::Error>> {
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--format-version=1", "--locked", "--offline"])
            .args(["--filter-platform=x86_64-unknown-linux-gnu"])
            .current_dir(repository::root())
            .output()?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// The crates of the workspace.
    pub fn ours(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }

    /// The crates that come from elsewhere and are built: the lock file also has what no feature switches on.
    pub fn theirs(&self) -> impl Iterator<Item = &Package> {
        let built = self.built();
        self.packages.iter().filter(move |package| {
            built.contains(&package.id) && !self.workspace_members.contains(&package.id)
        })
    }

    /// The ids of everything that ours depend on, directly or not, and of ours.
    fn built(&self) -> BTreeSet<&String> {
        let mut built = BTreeSet::new();
        let mut open: Vec<&String> = self.workspace_members.iter().collect();
        while let Some(id) = open.pop() {
            if built.insert(id) {
                let nodes = self.resolve.nodes.iter().filter(|node| node.id == *id);
                open.extend(nodes.flat_map(|node| &node.dependencies));
            }
        }
        built
    }
}
