"""Questions, judgement and presentation: the command line, the wizard and the report."""

__version__ = "0.1.0"
