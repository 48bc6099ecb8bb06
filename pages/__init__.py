"""Pages for people, in one self-contained HTML file each: charts and tables, light and dark. Pure.

page       `render_page`: sections into a file that asks nobody for anything
blocks     sections and sortable tables
charts     SVG
marks      bars, lines, symbols
scales     axes and ticks
figures    numbers with units
times      steps of a time axis
markup     elements; whatever is not markup is escaped
page.css, page.js, patterns.svg     parts of the files, as they are

The report shows whether page, blocks, charts, marks, scales, figures, times and markup work:
tests/spark/test_report.py.
"""
