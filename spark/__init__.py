"""Spark: access logs beside materialised stream state. Not written yet."""
