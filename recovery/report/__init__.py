"""Reports: what incidents cost and what was done about them, from records to Markdown, HTML and JSON.

Pure: records and the time go in, text comes out. `recovery.cli.report` reads the records and prints the text.

- `incident_account`, `job_report`, `fleet_report`: from records to figures. Their structs are the JSON.
- `platform_ways`: what the platform alone would have cost, computed.
- `incident_page`, `job_page`, `fleet_page`: from figures to a document.
- `markdown`, `html`: from a document to text. Both escape every string.
"""
