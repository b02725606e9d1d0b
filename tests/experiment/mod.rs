//! The commands `run`, `calibrate`, `measure`, `serve` and `report`, as a user runs them.

mod beds;
mod calibrated;
mod compared;
mod drawn;
mod formats;
mod instruments;
mod interrupted;
mod kept;
mod pages;
mod refusals;
mod resumed;
mod runs;
mod screen;
mod several;
mod sharded;
mod shipped;
