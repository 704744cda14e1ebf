"""`report.html`: a run as a page to read, to look through and to pass on, made from the run's files alone.

`write_page` writes it. The template, its style and its script are the files beside this one.
"""

from diagnostics.report.page.writing import write_page

__all__ = ["write_page"]
