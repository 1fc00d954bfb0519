//! Measurements without a result, by the reason: what many lack is said once.

/// A line for each reason, with the names that have it, in the order of their first.
pub fn by_reason<'a>(gaps: impl Iterator<Item = (&'a String, &'a String)>) -> Vec<String> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (name, why) in gaps {
        match reasons.iter_mut().find(|(known, _)| known == why) {
            Some((_, names)) => names.push(name),
            None => reasons.push((why, vec![name])),
        }
    }
    reasons.into_iter().map(|(why, names)| format!("{}: {why}", names.join("; "))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_said_once_for_all_that_have_it() {
        let gaps = [("a", "no gcc"), ("b", "too slow"), ("c", "no gcc")];
        let gaps = gaps.map(|(name, why)| (name.to_owned(), why.to_owned()));
        let lines = by_reason(gaps.iter().map(|(name, why)| (name, why)));
        assert_eq!(lines, ["a; c: no gcc", "b: too slow"]);
    }
}
