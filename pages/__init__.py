"""Self-contained HTML pages with charts and tables, light and dark. Pure.

page       `render_page`: sections to one file that loads nothing else
blocks     sections and sortable tables
charts     SVG
marks      bars, lines, symbols
scales     axes and ticks
figures    numbers with units
times      steps of a time axis
markup     elements; everything else is escaped
page.css, page.js, patterns.svg     embedded in every page

tests/spark/test_report.py covers page, blocks, charts, marks, scales, figures, times and markup.
"""
