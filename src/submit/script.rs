//! The batch script of a pass: each task checks its node, then runs the shard with the task's
//! number.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::nodes::{DOCTOR, NODES};
use super::paths;
use super::shared_directory::{LOG, Pass, SCENARIO, SHARDS, job_name};
use super::{Submission, array};
use instruments::failure::{Blame, Failure};

/// The time that a task gets in addition to twice its planned time: for the test bed, the baseline
/// and slower nodes.
const SPARE: Duration = Duration::from_secs(600);

/// Returns the script of `pass`, which excludes the nodes in `without`. `times` are the expected
/// times of the shards, in order.
pub(super) fn of(
    submission: &Submission<'_>,
    directory: &Path,
    id: &str,
    pass: &Pass,
    times: &[Duration],
    without: &[&str],
) -> Result<String, Failure> {
    let key = &submission.asked;
    check(directory).or_bad_input()?;
    let (program, file) = paths::of_program().context("where this program is")?;
    // A link to the program, or a link in its path, may exist only on this host.
    let fallback = if program == file {
        String::new()
    } else {
        format!("[ -x \"$farwire\" ] || farwire={}\n", quoted(&text(&file)?))
    };
    let limit = limit(submission.resources.time, pass, times).or_bad_input()?;
    let head = head(submission, directory, id, pass, limit, without)?;
    let words = |options: &[String]| -> String {
        let words = options.iter().map(|option| format!(" {}", quoted(option)));
        words.collect()
    };
    let shards = times.len();
    Ok(format!(
        r#"{head}
# {shards} shards of {name}; the number of a task is that of its shard.
dir={dir}
farwire={program}
{fallback}version={version}
scenario={scenario}
out={SHARDS}/$SLURM_ARRAY_TASK_ID/pass-{number}
node=${{SLURMD_NODENAME:-$(hostname)}}

# Excludes this node, also for waiting tasks.
cannot() {{
    printf '%s\n' "$1" >"{NODES}/$node.$SLURM_JOB_ID" && mv "{NODES}/$node.$SLURM_JOB_ID" "{NODES}/$node.cannot"
    all=$(cd {NODES} && ls | sed -n 's/\.cannot$//p' | tr '\n' ',')
    scontrol update "JobId=$SLURM_ARRAY_JOB_ID" "ExcNodeList=${{all%,}}" >/dev/null 2>&1
    echo "farwire: $node cannot: $1" >&2
    exit 3
}}

# -P resolves `..` after a symbolic link as the kernel does.
cd -P "$dir" || exit 1
[ ! -e "{NODES}/$node.cannot" ] || cannot "$(cat "{NODES}/$node.cannot")"
[ -x "$farwire" ] || cannot "there is no $farwire"
found=$("$farwire" --version 2>&1) || cannot "$farwire does not run: $found"
[ "$found" = "$version" ] || cannot "its $farwire is $found, not $version"
[ -r "$scenario" ] || cannot "there is no $scenario"
if [ ! -e "{NODES}/$node.ok" ]; then
    "$farwire" doctor --json "{NODES}/$node.$SLURM_JOB_ID"
    code=$?
    mv "{NODES}/$node.$SLURM_JOB_ID" "{NODES}/$node.json" || exit 1
    [ "$code" != 3 ] || cannot "{DOCTOR}"
    [ "$code" = 0 ] && : >"{NODES}/$node.ok" || exit 1
fi
cmp -s "$scenario" {SCENARIO} || {{
    echo "farwire: $scenario has changed since it was submitted; $dir keeps the old one as {SCENARIO}" >&2
    exit 2
}}
if [ -e "$out/record.jsonl" ]; then
    "$farwire" run --resume "$dir/$out"{resumed}
else
    "$farwire" run "$scenario" --shard "$SLURM_ARRAY_TASK_ID/{shards}"{options}{resumed} --out "$dir/$out"
fi
code=$?
# Another node may have what this one lacks.
[ "$code" != 3 ] || cannot "$(tail -n 1 "{LOG}/{number}-$SLURM_ARRAY_TASK_ID.txt")"
exit "$code"
"#,
        name = key.name,
        dir = quoted(&text(directory)?),
        program = quoted(&text(&program)?),
        version = quoted(&key.farwire),
        scenario = quoted(&text(&key.scenario)?),
        number = pass.number,
        options = words(&key.options),
        resumed = words(&key.also_resumed),
    ))
}

/// Returns the lines that Slurm reads.
fn head(
    submission: &Submission<'_>,
    directory: &Path,
    id: &str,
    pass: &Pass,
    limit: u64,
    without: &[&str],
) -> Result<String> {
    let resources = &submission.resources;
    let max_tasks = resources.max_tasks.map(|most| format!("%{most}"));
    let log = directory.join(LOG).join(format!("{}-%a.txt", pass.number));
    let mut lines = vec![
        format!("--job-name={}", job_name(&submission.asked.name, id, pass)),
        format!(
            "--array={}{}",
            array::list(&pass.shards),
            max_tasks.unwrap_or_default()
        ),
        "--nodes=1".to_owned(),
        "--ntasks=1".to_owned(),
        format!("--cpus-per-task={}", resources.cpus),
        format!("--time={limit}"),
        format!("--output=\"{}\"", text(&log)?),
        "--open-mode=truncate".to_owned(),
        // Farwire itself hands in again any task that ends early.
        "--no-requeue".to_owned(),
    ];
    let partition = resources.partition.as_ref();
    lines.extend(partition.map(|name| format!("--partition={name}")));
    if !without.is_empty() {
        lines.push(format!("--exclude={}", without.join(",")));
    }
    let lines = lines.iter().map(|line| format!("#SBATCH {line}\n"));
    Ok(format!("#!/bin/sh\n{}", lines.collect::<String>()))
}

/// Returns the time limit of a task in minutes.
fn limit(requested: Option<Duration>, pass: &Pass, times: &[Duration]) -> Result<u64> {
    let times = pass
        .shards
        .iter()
        .filter_map(|shard| times.get(*shard as usize - 1));
    let longest = times.max().copied().unwrap_or_default();
    let limit = requested.unwrap_or(longest * 2 + SPARE);
    ensure!(
        limit >= longest,
        "--time {} s: a shard is expected to take {:.0} s; reduce --shard-time for shorter shards",
        limit.as_secs_f64(),
        longest.as_secs_f64().ceil()
    );
    Ok(limit.as_secs().div_ceil(60).max(1))
}

/// Refuses a path that Slurm would change or split.
fn check(directory: &Path) -> Result<()> {
    let path = text(directory)?;
    let odd = path
        .chars()
        .find(|c| "%\\\"".contains(*c) || c.is_control());
    ensure!(
        odd.is_none(),
        "{path:?}: Slurm does not allow %, \\, quotation marks or line breaks in file names"
    );
    Ok(())
}

fn text(path: &Path) -> Result<String> {
    let text = path.to_str();
    Ok(text
        .with_context(|| format!("{}: the path is not UTF-8", path.display()))?
        .to_owned())
}

/// Quotes one word for a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_word_stays_one_word() {
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }

    #[test]
    fn a_path_that_slurm_would_change_is_refused() {
        assert!(check(Path::new("/work/a b")).is_ok());
        for odd in ["/work/100%", "/work/a\"b", "/work/a\\b", "/work/a\nb"] {
            assert!(check(Path::new(odd)).is_err(), "{odd}");
        }
    }

    #[test]
    fn a_task_has_time_for_its_shard() {
        let pass = Pass {
            number: 2,
            shards: vec![1, 3],
            cancelled: false,
            partition: None,
        };
        let times = [90, 1000, 60].map(Duration::from_secs);
        assert_eq!(limit(None, &pass, &times).unwrap(), 13);
        let minutes = |seconds| limit(Some(Duration::from_secs(seconds)), &pass, &times);
        assert_eq!(minutes(91).unwrap(), 2);
        assert!(
            minutes(89)
                .unwrap_err()
                .to_string()
                .contains("expected to take 90 s")
        );
    }
}
