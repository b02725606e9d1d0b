//! What an error means for the exit code.

/// Exit code when a run or an expectation failed.
pub(crate) const FAILED: u8 = 1;
/// Exit code for bad input.
pub(crate) const BAD_INPUT: u8 = 2;
/// Exit code when the machine lacks what is needed.
pub(crate) const MACHINE_LACKS: u8 = 3;

/// The user's input is wrong; the text says what would be right.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct BadInput(String);

/// The machine lacks something; the text says what, and the way round it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct MachineLacks(String);

/// Marks `error` as the fault of what the user gave.
pub(crate) fn bad_input(error: anyhow::Error) -> anyhow::Error {
    BadInput(format!("{error:#}")).into()
}

/// Marks `error` as the fault of the machine.
pub(crate) fn machine_lacks(error: anyhow::Error) -> anyhow::Error {
    MachineLacks(format!("{error:#}")).into()
}

/// The exit code that goes with `error`.
pub(crate) fn exit_code(error: &anyhow::Error) -> u8 {
    if error.is::<BadInput>() {
        BAD_INPUT
    } else if error.is::<MachineLacks>() {
        MACHINE_LACKS
    } else {
        FAILED
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Context, anyhow};

    #[test]
    fn a_mark_survives_context_and_keeps_the_whole_text() {
        let error = bad_input(anyhow!("inner").context("outer"));
        assert_eq!(error.to_string(), "outer: inner");
        let error = Err::<(), _>(error).context("more").unwrap_err();
        assert_eq!(exit_code(&error), BAD_INPUT);
        assert_eq!(exit_code(&machine_lacks(anyhow!("x"))), MACHINE_LACKS);
        assert_eq!(exit_code(&anyhow!("x")), FAILED);
    }
}
