//! The page of a running link, in Chromium: a user's actions, and their effect on the link. The accessibility of all pages, and the layout and drawings of reports.

mod axe;
pub(crate) mod browser;
mod drawings;
mod reports;
mod run;
mod walk;
