//! The page of a running link, in Chromium: a user's actions, and their effect on the link. The accessibility of all pages.

mod axe;
mod browser;
mod run;
mod walk;
