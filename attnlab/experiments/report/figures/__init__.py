"""The figures of a report's page, each a pure function of records and comparison. Rows have the
same colours in all of them.
"""
