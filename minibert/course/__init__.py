"""The machinery of the course in notebooks/: the reader writes an engine, and mathematics judges it.

A backward is compared with the complex step of its forward, and element by element with minibert's backward,
which is proven in the same way. Everything else is compared with a second route to the same value, or has to
obey a law. The shapes of the questions are drawn for each check. Read `lesson` first, which every notebook
calls, then `judging`.
"""

from minibert.course import animations
from minibert.course.lesson import Lesson, begin
from minibert.course.showing import equal, say, show, source

__all__ = ["Lesson", "animations", "begin", "equal", "say", "show", "source"]
