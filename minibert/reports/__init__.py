"""Show the results of a run: metrics, pictures, pages, the model card, and what is wrong with a training.

Read `results` first: what `report.json` holds, and how it is printed. `page` writes it as HTML by the
templates beside it, and `doctor` judges a run by its record.
"""
