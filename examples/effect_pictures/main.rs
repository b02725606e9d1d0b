//! Draws the pictures of docs/effects and docs/profiles.md: the outcomes of packets that crossed a link in virtual time, beside the formula of
//! each effect and beside what each profile states.
//!
//! ```text
//! cargo run --example effect_pictures -- docs/effects/pictures docs/pictures/profiles
//! ```
//!
//! Every link is written as a user writes it, with the seed 1, so the pictures are the same every time.
#![allow(
    clippy::disallowed_macros,
    reason = "it prints its results, and nobody else uses it"
)]

mod changes;
mod crossing;
mod delays;
mod drawing;
mod losses;
mod order;
mod profiles;
mod queues;
mod rates;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::drawing::Picture;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [of_effects, of_profiles] = arguments.as_slice() else {
        bail!("give the folder of the pictures of effects, and that of the pictures of profiles");
    };
    let effects = [
        losses::pictures()?,
        delays::pictures()?,
        order::pictures()?,
        changes::pictures()?,
        rates::pictures()?,
        queues::pictures()?,
    ];
    write(of_effects, effects.into_iter().flatten())?;
    write(of_profiles, profiles::pictures()?)
}

/// Writes each picture into a file of its name.
fn write(folder: &str, pictures: impl IntoIterator<Item = Picture>) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {folder}"))?;
    for Picture { name, svg } in pictures {
        let file = Path::new(folder).join(format!("{name}.svg"));
        let shown = file.display();
        fs::write(&file, report::on_paper(&svg) + "\n")
            .with_context(|| format!("cannot write {shown}"))?;
        println!("{shown}");
    }
    Ok(())
}
