"""The machinery of the course in notebooks/: the reader writes an engine, and mathematics judges it.

    from minibert import course
    lesson = course.begin("05")
    lesson.check(linear_backward)

Nothing here knows an answer. A backward is judged by the complex step of its forward, everything else by a
second route to the same value or by a law that the answer has to obey, on shapes drawn afresh at every run.
"""

from minibert.course.lesson import Lesson, begin
from minibert.course.showing import equal, say, show, source

__all__ = ["Lesson", "begin", "equal", "say", "show", "source"]
