"""The report: numbers in, one self-contained HTML file out. No Spark here.

data       what it is made of, filled by the run from the tables
page       `render`: the whole file, its policy, words and footer
overview   headline figures and what stands out
traffic    requests, savings, latency          usage     streams, subjects, SSE, errors
state      what streams hold, beside traffic   quality   what was read and what was not
blocks     sections and sortable tables        charts    SVG
marks      bars, lines, symbols                scales    axes and ticks
figures    numbers with units
markup     elements; whatever is not markup is escaped
report.css, report.js, patterns.svg            parts of the file, as they are
"""

from spark.report.data import ReportData, choose_step
from spark.report.page import render

__all__ = ["ReportData", "choose_step", "render"]
