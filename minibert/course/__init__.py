"""The machinery of the course in notebooks/: the reader writes an engine, and mathematics judges it.

A backward is compared with the complex step of its forward, and element by element with minibert's backward,
which is proven in the same way. Everything else is compared with a second route to the same value, or has to
obey a law. The shapes of the questions are drawn for each check.

From an answer to its verdict, when a cell of a notebook calls `lesson.check(linear)`:

1. `exercises` has read stub, check, solution and common mistakes from the source of the notebook.
2. `lesson` chooses a judge. `judging` has one for operations that the gradient check covers, and one for any
   other function, with criteria that the check names or that `routes` has.
3. The judge draws questions, and asks them with limits of time and output (`running`).
4. `comparing` accepts an answer, or rejects it with a sentence.
5. A rejected answer is explained: `mistakes` looks for a common mistake that answers alike, or else
   `diagnosis` says where the answer is off, by which of the `laws`, and under which condition.
6. `mine` writes an operation that has passed to mine.py, where the next notebook finds it.

`showing` prints what a lesson has to say; `animations` and `memory` are tools of some notebooks, and `finale`
puts the last run together from the reader's functions.

`minibert course grade` marks the folders of students by the same judges. `grading` goes through all
exercises: `answers` finds a function as text, `honesty` tells whether it is its author's own work, `confined`
calls it in a child process, and `carried` brings back what it returns, as data. `notes` writes what teachers
read.

To add an exercise, edit the source of its notebook, such as notebooks/05_gradients_you_can_trust.py:

1. A heading in the text, `### Exercise 05.12 (core): what it asks for`; or easy, or hard.
2. A cell with the stub: `# Exercise 05.12`, and functions of a docstring and three dots.
3. A cell with the check. `lesson.check(linear)` is enough for an operation of the gradient check. Any other
   function needs at least a way to draw its arguments, and one to judge: `lesson.check(gain, draw=draw_pair,
   same_as=gain_by_counting)`. `judging.Route` lists these fields. A way that gives the answer away goes into
   `routes` instead, by the name of the function.
4. A text with two hints, and below "Solution 05.12" the solution and a table of at least five common
   mistakes: each replaces a part of the solution, and has a sentence for whoever makes it.
5. In this folder: its minutes in `notes.MINUTES`, if they are not the usual ones; `lesson.CURRICULUM`, if it
   is an operation of pre-training; `mine.TOOLS`, if the last run uses it.
6. tests/course/student_answers.txt: right answers that are written in another way, and wrong ones, with what
   has to be said of each. `make test-course` tries these, the mistakes, and mutants of the solution.
7. `python tests/support/teaching.py` renews the tables of the docs, and `make notebooks` the notebook.
"""

from minibert.course import animations
from minibert.course.lesson import Lesson, begin
from minibert.course.showing import equal, say, show, source

__all__ = ["Lesson", "animations", "begin", "equal", "say", "show", "source"]
