//! The page of a running link, in Chromium: what a user does there by hand, and that the link follows.

mod axe;
mod browser;
mod run;
mod walk;
