"""The machinery of the course in notebooks/: the reader writes an engine, and mathematics judges it.

A backward is judged by the complex step of its forward, and each element by minibert's own, proven alike;
everything else by a second route to the same value or a law that the answer has to obey, on fresh shapes.
"""

from minibert.course.lesson import Lesson, begin
from minibert.course.showing import equal, say, show, source

__all__ = ["Lesson", "begin", "equal", "say", "show", "source"]
