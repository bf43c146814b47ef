"""Tokenised text on disk: shards, written whole or in parts by many, and read as one.

Read `store` first: the files of one folder. `parts` lets several jobs write them, `joined` opens them all.
"""
