"""The report: numbers in, one self-contained HTML file out. No Spark here.

data       its input, filled by the run from the tables
page       `render`: the whole file, its glossary and footer
overview   headline figures and findings
traffic    requests, savings, latency
usage      streams, subjects, SSE, errors
state      the contents of streams, and their traffic
quality    lines read, quarantined and missing

tests/spark/test_report.py covers data, page, overview, traffic, usage and quality.
"""
