//! The user's own profiles, which the API of links offers besides those that ship.

use std::sync::Arc;

use conditions::LinkSpec;

use crate::notes::warn;
use crate::profile_folders::{ProfileFile, ProfileFolders};
use crate::toml_file;

/// A profile that a user wrote, or that `farwire fit` wrote for the user.
#[derive(Debug)]
pub(super) struct OwnProfile {
    /// The name, as `--profile` accepts it.
    pub(super) name: String,
    /// A description in one line; empty if its file has none.
    pub(super) about: String,
    /// Whether `farwire fit` wrote it.
    pub(super) is_fitted: bool,
    /// The conditions of the link.
    pub(super) conditions: LinkSpec,
}

/// Reads the profiles in `folders` that do not ship with farwire. One that is wrong is left out, with a warning.
pub(super) fn read(folders: &ProfileFolders) -> Arc<[OwnProfile]> {
    let files = folders.all().unwrap_or_else(|error| {
        warn(format_args!(
            "the page and the API offer only the profiles that ship: {error:#}"
        ));
        Vec::new()
    });
    let own = files.iter().filter(|file| !file.is_shipped());
    own.filter_map(|file| read_one(file, folders)).collect()
}

fn read_one(file: &ProfileFile, folders: &ProfileFolders) -> Option<OwnProfile> {
    match toml_file::read_profile(&file.name, folders) {
        Ok(conditions) => Some(OwnProfile {
            name: file.name.clone(),
            about: file.about().to_owned(),
            is_fitted: file.is_fitted(),
            conditions,
        }),
        Err(error) => {
            warn(format_args!("profile {}: {error:#}", file.name));
            None
        }
    }
}
