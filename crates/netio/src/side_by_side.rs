//! Does work on several interfaces in parallel. The kernel makes each change wait for all processors or for its own
//! work on earlier changes, and many parallel changes together wait no longer than one.

use std::panic::resume_unwind;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// The largest number of threads that wait in parallel.
const THREADS: usize = 64;

/// Up to this number of items are worked on one after the other.
const FEW: usize = 4;

/// Returns the number of threads that work on this number of items in parallel.
pub fn threads(items: usize) -> usize {
    if items <= FEW { 1 } else { THREADS.min(items) }
}

/// Does `first` and `second` simultaneously, in the namespace of the calling thread.
pub fn both<A: Send, B>(first: impl FnOnce() -> A + Send, second: impl FnOnce() -> B) -> (A, B) {
    thread::scope(|scope| {
        let first = scope.spawn(first);
        let second = second();
        (
            first.join().unwrap_or_else(|panic| resume_unwind(panic)),
            second,
        )
    })
}

/// Does `work` on each of `items` and returns the results in the same order. For more than a few
/// items it uses several threads, in the calling thread's namespace.
///
/// # Errors
/// Returns the first failure in the order of `items`, after all items have been tried.
pub fn each<T: Send, R: Send, E: Send>(
    items: Vec<T>,
    work: impl Fn(T) -> Result<R, E> + Sync,
) -> Result<Vec<R>, E> {
    let count = items.len();
    if threads(count) == 1 {
        let done: Vec<_> = items.into_iter().map(work).collect();
        return done.into_iter().collect();
    }
    let waiting = Mutex::new(items.into_iter().enumerate());
    let next = || {
        waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .next()
    };
    let mut done: Vec<(usize, Result<R, E>)> = thread::scope(|scope| {
        let worker = || {
            let items = std::iter::from_fn(next);
            items.map(|(place, item)| (place, work(item))).collect()
        };
        let workers: Vec<_> = (0..threads(count)).map(|_| scope.spawn(worker)).collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        let all = joined
            .map(|done: thread::Result<Vec<_>>| done.unwrap_or_else(|panic| resume_unwind(panic)));
        all.flatten().collect()
    });
    done.sort_by_key(|(place, _)| *place);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_keep_the_order_and_the_first_failure_counts() {
        for count in [3usize, 500] {
            let items = || (0..count).collect();
            let doubled: Result<Vec<_>, ()> = each(items(), |n| Ok(2 * n));
            assert_eq!(
                doubled.unwrap(),
                (0..count).map(|n| 2 * n).collect::<Vec<_>>()
            );
            let failed: Result<Vec<()>, _> =
                each(items(), |n| if n == 0 { Ok(()) } else { Err(n) });
            assert_eq!(failed, Err(1));
        }
    }
}
