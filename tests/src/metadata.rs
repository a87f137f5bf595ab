//! Metadata of the workspace and its dependencies, as Cargo reports it.

use std::{collections::BTreeSet, process::Command};

use serde::Deserialize;

use crate::repository;

/// Part of the output of `cargo metadata` that the checks read.
#[derive(Debug, Deserialize)]
pub struct Metadata {
    /// All packages, of the workspace and from registries.
    pub packages: Vec<Package>,
    /// Ids of the packages of the workspace.
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
    /// Package id assigned by Cargo.
    pub id: String,
    /// Name of the crate.
    pub name: String,
    /// Version of the crate.
    pub version: String,
    /// SPDX expression. `None`: the manifest has no licence.
    pub license: Option<String>,
    /// Registry or repository of the crate. `None` for a crate of the workspace.
    pub source: Option<String>,
    /// Path of the manifest on this machine.
    pub manifest_path: String,
    /// Dependencies that the manifest lists, of all kinds.
    pub dependencies: Vec<Dependency>,
}

/// One entry of the dependency tables of a crate.
#[derive(Debug, Deserialize)]
pub struct Dependency {
    /// Name of the required crate.
    pub name: String,
    /// `dev` or `build`. `None` for a normal dependency.
    pub kind: Option<String>,
}

impl Metadata {
    /// Runs `cargo metadata` for our Linux target, without network access.
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

    /// Returns the crates of the workspace.
    pub fn ours(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }

    /// Returns the crates from outside the workspace that are built. The lock file also lists crates that no enabled feature
    /// needs.
    pub fn theirs(&self) -> impl Iterator<Item = &Package> {
        let built = self.built();
        self.packages.iter().filter(move |package| {
            built.contains(&package.id) && !self.workspace_members.contains(&package.id)
        })
    }

    /// Returns the ids of the workspace's crates and of all their direct and indirect dependencies.
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
