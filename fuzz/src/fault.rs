//! Any text as a plan of faults: no panic, and what is shown of a plan reads as the same plan.

use weft_fault::FaultPlan;

/// `data` as the text of a plan.
pub fn fault_plan(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match FaultPlan::parse(text) {
        Ok(plan) => {
            let shown = plan.to_string();
            let again = FaultPlan::parse(&shown).unwrap_or_else(|error| panic!("{shown}: {error}"));
            assert_eq!(again.to_string(), shown);
            assert_eq!(again.faults.len(), plan.faults.len());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
