"""From the records to a report: statistics, verdicts, tables, pages. Pure functions of what a sweep's folder holds."""
