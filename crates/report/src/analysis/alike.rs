//! Checks whether two records can be compared.

use conditions::require;

use crate::case_conditions::link;
use crate::error::Result;
use record::Record;

/// The field of a case in which two records may differ on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DifferingField {
    /// The TCP congestion control of the senders.
    Congestion,
    /// The emulated conditions.
    Links,
    /// The instruments and their options.
    Instruments,
}

impl DifferingField {
    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Congestion => "congestion",
            Self::Links => "links",
            Self::Instruments => "instruments",
        }
    }

    /// Returns the field in a sentence, without an article.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::Congestion => "congestion control",
            Self::Links => "links",
            Self::Instruments => "instruments",
        }
    }
}

/// Checks that both records are of scenarios with one name.
pub(super) fn check_name(reference: &Record, record: &Record) -> Result<()> {
    let (old, new) = (&reference.plan().name, &record.plan().name);
    require!(
        old == new,
        "records of different scenarios: `{old}` and `{new}`"
    );
    Ok(())
}

/// Checks that both records were shortened, or neither.
pub(super) fn check_length(reference: &Record, record: &Record) -> Result<()> {
    require!(
        reference.plan().quick == record.plan().quick,
        "only one of the records was shortened by --quick"
    );
    Ok(())
}

/// Checks that cases of the same name have the same conditions and instruments, apart from the field in which they may
/// differ. Returns the links that differ, in words.
pub(super) fn check_cases(
    reference: &Record,
    record: &Record,
    may_differ: Option<DifferingField>,
) -> Result<Vec<String>> {
    let mut across = Vec::new();
    for case in &reference.plan().cases {
        let Some(other) = record.plan().case(&case.name) else {
            continue;
        };
        let controls = case.congestion == other.congestion;
        let instruments = case.instruments == other.instruments;
        for (what, field, alike) in [
            ("test bed", None, case.bed == other.bed),
            (
                "congestion control",
                Some(DifferingField::Congestion),
                controls,
            ),
            (
                "set of instruments",
                Some(DifferingField::Instruments),
                instruments,
            ),
        ] {
            let advice = field.map_or_else(String::new, |field| {
                format!("; if that is on purpose, use --by {}", field.name())
            });
            require!(
                alike || (field.is_some() && field == may_differ),
                "records of different scenarios: case `{}` differs in its {what}{advice}",
                case.name
            );
        }
        if case.link != other.link {
            let links = [link(&case.link), link(&other.link)];
            let links = format!(
                "case `{}`: {} in the reference, {} in the record",
                case.name, links[0], links[1]
            );
            require!(
                may_differ == Some(DifferingField::Links),
                "the links differ: {links}; to compare links, use --by links, or make them cases of one scenario with one \
                 of them as its `reference`; to look for regressions anyway, use --across-links"
            );
            across.push(links);
        }
    }
    Ok(across)
}
