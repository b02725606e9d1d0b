//! Draws the pictures of docs/effects: the outcomes of packets that crossed a link in virtual time, beside the formula of each effect.
//!
//! ```text
//! cargo run --example effect_pictures -- FOLDER
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
mod queues;
mod rates;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

use crate::drawing::Picture;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder] = arguments.as_slice() else {
        bail!("give the folder that the pictures go to");
    };
    fs::create_dir_all(folder).with_context(|| format!("cannot make {folder}"))?;
    let all = [
        losses::pictures()?,
        delays::pictures()?,
        order::pictures()?,
        changes::pictures()?,
        rates::pictures()?,
        queues::pictures()?,
    ];
    for Picture { name, svg } in all.into_iter().flatten() {
        let file = Path::new(folder).join(format!("{name}.svg"));
        let shown = file.display();
        fs::write(&file, report::on_paper(&svg) + "\n")
            .with_context(|| format!("cannot write {shown}"))?;
        println!("{shown}");
    }
    Ok(())
}
