//! The results of parts as a text table, a page and a figure.

mod figure;
pub(crate) mod page;
pub(crate) mod rows;
pub(crate) mod spread;
pub(crate) mod table;
