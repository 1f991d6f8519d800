"""The style of report.html."""
