//! Limits of the cost of a link's conditions.

/// The most packets that may result from one, itself included: each stage of a path that copies doubles them.
pub const MOST_COPIES: u32 = 16;

/// The most stages of one path.
pub const MOST_STAGES: usize = 32;

/// The most stages of a link; a stage that several paths share counts once.
pub const MOST_STAGES_IN_ALL: usize = 256;

/// The most classes of a link, without class 0.
pub const MOST_CLASSES: u16 = 128;

/// The most hops whose drops a link counts separately, those that were removed while it ran included.
pub(crate) const MOST_NAMES_OF_HOPS: usize = 1 << 8;

/// The most steps of all schedules of a link together.
pub const MOST_STEPS: usize = 1 << 16;

/// The most flow queues of all FQ-CoDel queues of a link together.
pub const MOST_FLOW_QUEUES: usize = 1 << 17;
