"""The report: numbers in, one self-contained HTML file out. No Spark here.

data       what it is made of, filled by the run from the tables
page       `render`: the whole file, its words and footer
overview   headline figures and what stands out
traffic    requests, savings, latency
usage      streams, subjects, SSE, errors
state      what streams hold, beside traffic
quality    what was read and what was not

tests/spark/test_report.py covers data, page, overview, traffic, usage and quality.
"""
