"""From a plan to its records: processes, slots, locks, the choice on validation and the one look at the test split."""
