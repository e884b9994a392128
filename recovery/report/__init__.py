"""Reports: what incidents cost and what was done about them, from records to Markdown, HTML and JSON.

The package is pure: records and the time go in, text comes out. `recovery.cli.report` reads the records and prints the
text.

- `incident_account`, `group_totals`, `reports`: from records to figures. Their structs are the JSON.
- `platform_ways`: what the platform alone would have cost, computed.
- `incident_page`, `platform_page`, `totals_page`: from figures to a document.
- `markdown`, `html`: from a document to text. Both escape every string.
"""
