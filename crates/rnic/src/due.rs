//! The earliest of several times, on any clock.

/// The earliest of `dues`; none if none of them is there.
///
/// Not `flatten().min()`: that takes several times the instructions, for each message, and what the
/// compiler may make of it compares times that are not there, which valgrind reports in the
/// application though the outcome is dropped.
pub fn earliest<T: Ord + Copy, const N: usize>(dues: [Option<T>; N]) -> Option<T> {
    dues.into_iter().fold(None, |first, due| match (first, due) {
        (Some(first), Some(due)) if due < first => Some(due),
        (Some(first), _) => Some(first),
        (None, due) => due,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_not_the_earliest() {
        assert_eq!(earliest([None, Some(3), None, Some(2), Some(4), None]), Some(2));
        assert_eq!(earliest::<u64, 2>([None, None]), None);
    }
}
